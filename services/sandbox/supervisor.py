"""The first program in an isolated place: starts the one program that the place is for, watches it and tells the host.

It runs inside (a process of its own, no package of the project, few imports: contextlib alone would cost a third of a start),
speaks frames over descriptors 0 and 1, and serves one program.
Invariant: it trusts the host and no program; what it keeps of a program is bounded, and when it reports an end, every
process of the program is dead. Python programs run in a fork of it, which spares them the interpreter's start.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # the module signal would import enum, a millisecond
import errno
import gc
import marshal
import os
import select
import struct
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:  # typing takes as long to import as all the rest together
    from typing import Any

HEADER = struct.Struct("!cI")
ENDED = struct.Struct("!idQQ10s")
SIGKILL, SIGSTOP, SIGPIPE, SIGXCPU, SIGXFSZ = 9, 19, 13, 24, 25
PR_SET_DUMPABLE, PR_SET_CHILD_SUBREAPER = 4, 36

S_IFMT, S_IFREG = 0o170000, 0o100000

CHANNEL = 3
"""The descriptor of the channel, and of no other thing in a program that has none."""

CHUNK = 1 << 16
TICK_MS = 50
"""How often orphans are reaped, at least, while the program runs."""

COUNT_EVERY_S = 0.1
"""How often the processor time of the tree is counted: a limit is kept to about this, times the cores."""

MAX_ENTRIES = 20_000
"""Files and directories in a scratch directory whose size is counted, not capped by a file system of its own."""

MAX_PENDING = 1 << 20
"""Unread channel bytes kept for the program before the host has to wait."""


class Control:
    """The line to the host: frames of kind (1 byte), length (4 bytes), body."""

    def __init__(self, source: int, sink: int) -> None:
        self.source, self.sink = source, sink

    def send(self, kind: bytes, body: bytes = b"") -> None:
        left = memoryview(HEADER.pack(kind, len(body)) + body)
        while left:
            left = left[os.write(self.sink, left) :]

    def receive(self) -> tuple[bytes, bytes]:
        kind, size = HEADER.unpack(self._exactly(HEADER.size))
        return kind, self._exactly(size)

    def _exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            part = os.read(self.source, min(size - len(data), 1 << 20))
            if not part:  # the host is gone
                die()
            data += part
        return bytes(data)


class Kept:
    """Head and tail of a stream, `size` bytes together."""

    def __init__(self, size: int) -> None:
        self.total = 0
        self._half = size // 2
        self._rest = size - self._half
        self._head = bytearray()
        self._tail = bytearray()

    def add(self, data: bytes) -> None:
        self.total += len(data)
        room = self._half - len(self._head)
        self._head += data[:room]
        self._tail += data[room:] if room > 0 else data
        if len(self._tail) > self._rest + 16 * CHUNK:
            del self._tail[: len(self._tail) - self._rest]

    def value(self) -> bytes:
        tail = self._tail[len(self._tail) - self._rest :] if len(self._tail) > self._rest else self._tail
        cut = self.total - len(self._head) - len(tail)
        return bytes(self._head + (b"\n[%d bytes left out]\n" % cut if cut else b"") + tail)


def die() -> None:
    """End at once, with everything below: nobody is listening."""
    Children(exclusive=os.getpid() == 1).kill()
    os._exit(0)


def prctl(option: int, value: int) -> None:
    """The system call, without the millisecond that importing ctypes takes."""
    try:
        import _ctypes

        _ctypes.call_function(_ctypes.dlsym(_ctypes.dlopen(None, 0), "prctl"), (option, value, 0, 0, 0))  # type: ignore[arg-type]
    except (ImportError, AttributeError, OSError):
        import ctypes

        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


class Children:
    """All processes below this one, to end them. `exclusive`: nothing else has this user id or is in this PID namespace."""

    def __init__(self, *, exclusive: bool) -> None:
        self._exclusive = exclusive

    def kill(self) -> None:
        """Kill and reap until there are none. Orphans come to us: we are their namespace's first process or a subreaper."""
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
            while True:
                self._signal()
                while os.waitpid(-1, 0 if self._exclusive else os.WNOHANG)[0]:
                    pass
                select.poll().poll(1)
        except ChildProcessError:  # no child is left
            return

    def _signal(self) -> None:
        if self._exclusive:
            try:
                os.kill(-1, SIGKILL)
            except OSError as error:  # EPERM: one that changed its user, which nothing here can
                if error.errno != errno.ESRCH:
                    raise
            return
        for signal in (SIGSTOP, SIGSTOP, SIGKILL):  # stopped processes start no more while we look for the others
            for pid in descendants():
                try:  # noqa: SIM105
                    os.kill(pid, signal)
                except OSError:
                    pass


def descendants() -> list[int]:
    """Process ids below this process, by the parents that /proc tells."""
    below: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):  # noqa: PTH208
        if name.isdigit() and (stat := _stat(name)):
            below.setdefault(int(stat[1]), []).append(int(name))
    found, todo = [], [os.getpid()]
    while todo:
        children = below.get(todo.pop(), [])
        found += children
        todo += children
    return found


def _stat(pid: str) -> list[bytes]:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123 - pathlib's import costs more than all of this
            return file.read().rpartition(b") ")[2].split()
    except OSError:
        return []


def cpu_seconds() -> float:
    """Processor time of all below: reaped ones by the kernel's count, living ones by /proc."""
    times = os.times()
    ticks = 0.0
    for pid in descendants():
        stat = _stat(str(pid))
        if stat:
            ticks += sum(map(int, stat[11:15]))
    return times.children_user + times.children_system + ticks / os.sysconf("SC_CLK_TCK")


def disk_use(directory: str) -> float:
    """Bytes of disk that a tree takes; more than any limit when it has more entries than a program needs."""
    total, entries, todo = 0.0, 0, [directory]
    while todo:
        try:
            for entry in os.scandir(todo.pop()):
                entries += 1
                total += entry.stat(follow_symlinks=False).st_blocks * 512
                if entry.is_dir(follow_symlinks=False):
                    todo.append(entry.path)
        except OSError as error:  # gone, or made unreadable for us
            if error.errno == errno.ENAMETOOLONG:  # so deep that nobody can count it by its path
                return float("inf")
        if entries > MAX_ENTRIES:
            return float("inf")
    return total


def write_files(files: dict[str, bytes]) -> None:
    """Into the (empty) working directory; the host has checked the names."""
    for name, data in files.items():
        directory = os.path.dirname(name)  # noqa: PTH120
        if directory:
            os.makedirs(directory, exist_ok=True)  # noqa: PTH103
        fd = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644)
        with os.fdopen(fd, "wb") as file:
            file.write(data)


def read_file(name: str, limit: int) -> bytes | None:
    """A regular file of at most `limit` bytes whose path holds no link; None otherwise."""
    *directories, last = name.split("/")
    at = os.open(".", os.O_RDONLY | os.O_DIRECTORY)
    try:
        for part in directories:
            below = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=at)
            os.close(at)
            at = below
        fd = os.open(last, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=at)
    except OSError:
        return None
    finally:
        os.close(at)
    about = os.fstat(fd)
    if about.st_mode & S_IFMT != S_IFREG or about.st_size > limit or about.st_uid != os.getuid():
        os.close(fd)
        return None
    with os.fdopen(fd, "rb") as file:
        data = file.read(limit + 1)
    return data if len(data) <= limit else None


class Watch:
    """The running program as the supervisor sees it."""

    def __init__(self, control: Control, order: dict[str, Any], pid: int, ends: dict[str, int]) -> None:
        self.control, self.order, self.pid, self.ends = control, order, pid, ends
        self.kept = {"out": Kept(order["output"]), "err": Kept(order["output"])}
        self.pending = {"in": bytearray(order["stdin"]), "channel": bytearray()}
        self.limit = b""
        self.next_count = 0.0
        self.names = {fd: name for name, fd in ends.items()}
        for fd in ends.values():
            os.set_blocking(fd, False)

    def until_ended(self, children: Children) -> None:
        """Serve until the program's first process has ended, then end the others and report."""
        status = None
        if not self.pending["in"]:
            self._close("in")
        while status is None:
            self._serve()
            status = self._reap()
            self._count()
        children.kill()
        for name in ("out", "err", "channel"):
            while name in self.ends and self._read(name):
                pass
            self._close(name)
        times = os.times()
        out, err = self.kept["out"].value(), self.kept["err"].value()
        cpu = times.children_user + times.children_system
        self.control.send(b"e", ENDED.pack(status, cpu, len(out), len(err), self.limit) + out + err)

    def _serve(self) -> None:
        poll = select.poll()
        for name, fd in self.ends.items():
            wants = 0 if name == "in" else select.POLLIN
            poll.register(fd, wants | (select.POLLOUT if self.pending.get(name) else 0))
        poll.register(self.control.source, select.POLLIN if len(self.pending["channel"]) < MAX_PENDING else 0)
        for fd, event in poll.poll(TICK_MS):
            if fd == self.control.source:
                self._obey()
                continue
            name = self.names[fd]
            if name in self.ends and event & select.POLLOUT:
                self._write(name)
            if name in self.ends and name in ("out", "err", "channel") and event & ~select.POLLOUT:
                self._read(name)
            elif name in self.ends and event & (select.POLLERR | select.POLLHUP) and name != "pid":
                self._close(name)

    def _obey(self) -> None:
        kind, body = self.control.receive()
        if kind == b"K":
            self._kill()
        elif kind == b"C" and "channel" in self.ends:
            self.pending["channel"] += body
            self._write("channel")

    def _read(self, name: str) -> bool:
        try:
            data = os.read(self.ends[name], CHUNK)
        except BlockingIOError:
            return False
        except OSError:  # a channel whose other end broke off
            data = b""
        if not data:
            self._close(name)
        elif name == "channel":
            self.control.send(b"c", data)
        else:
            self.kept[name].add(data)
            if self.kept[name].total > self.order["output_total"] and not self.limit:
                self.limit = b"output"
                self._kill()
        return bool(data)

    def _write(self, name: str) -> None:
        pending = self.pending[name]
        try:
            del pending[: os.write(self.ends[name], pending[:CHUNK])]
        except BlockingIOError:
            return
        except OSError:  # it reads no more
            pending.clear()
        if name == "in" and not pending:
            self._close(name)

    def _close(self, name: str) -> None:
        fd = self.ends.pop(name, None)
        if fd is not None:
            os.close(fd)
            if name == "channel":
                self.control.send(b"c")

    def _kill(self) -> None:
        try:  # noqa: SIM105
            os.kill(self.pid, SIGKILL)
        except ProcessLookupError:
            pass

    def _reap(self) -> int | None:
        """The status of the program's first process once it has ended; orphans of it are taken note of and forgotten."""
        status = None
        try:
            while (found := os.waitpid(-1, os.WNOHANG))[0]:
                if found[0] == self.pid:
                    status = os.waitstatus_to_exitcode(found[1])
        except ChildProcessError:
            pass
        if status == -SIGXCPU and not self.limit:
            self.limit = b"cpu"
        return status

    def _count(self) -> None:
        allowed, now = self.order["cpu_s"], time.monotonic()
        if self.limit or now < self.next_count:
            return
        self.next_count = now + COUNT_EVERY_S
        if allowed is not None and cpu_seconds() > allowed:
            self.limit = b"cpu"
        elif self.order["scratch"] and disk_use(".") > self.order["scratch"]:
            self.limit = b"scratch"
        if self.limit:
            self._kill()


def start(control: Control, order: dict[str, Any]) -> Watch | None:
    """Fork the program's first process. None in that process, which then has its descriptors and its limits."""
    inside, outside = {}, {}
    for name in ("in", "out", "err"):
        read, write = os.pipe()
        inside[name], outside[name] = (read, write) if name == "in" else (write, read)
    if order["channel"]:
        import _socket

        ours, theirs = _socket.socketpair()
        outside["channel"], inside["channel"] = ours.detach(), theirs.detach()
    gc.freeze()  # collections in the program leave the pages alone that it shares with us
    pid = os.fork()
    if pid:
        for fd in inside.values():
            os.close(fd)
        outside["pid"] = os.pidfd_open(pid)
        return Watch(control, order, pid, outside)
    become(order, inside)
    return None


def become(order: dict[str, Any], inside: dict[str, int]) -> None:
    """Turn this process into one that may run the program."""
    os.setsid()
    at = [os.dup2(fd, 64 + place) for place, fd in enumerate(inside.values())]  # out of the way of 0 to 3
    for place, fd in enumerate(at):
        os.dup2(fd, place, inheritable=place < CHANNEL)
    os.closerange(len(at), 256)
    _signal.signal(SIGPIPE, _signal.SIG_IGN)
    try:
        with open("/proc/self/oom_score_adj", "w") as file:  # noqa: PTH123 - the program dies of its memory, not we
            file.write("1000")
    except OSError:
        pass
    if order["confine"]:
        from confine import confine  # type: ignore[import-not-found]  # beside this file, in the kit

        confine(order["confine"])
    prctl(PR_SET_DUMPABLE, 1)
    import resource

    for kind, value in order["rlimits"].items():
        soft = value if isinstance(value, int) else value[0]
        hard = value if isinstance(value, int) else value[1]
        ceiling = resource.getrlimit(kind)[1]
        if ceiling != resource.RLIM_INFINITY:
            soft, hard = min(soft, ceiling), min(hard, ceiling)
        resource.setrlimit(kind, (soft, hard))


def run(order: dict[str, Any]) -> None:
    """The program itself: a Python script or `-c` here and now, anything else by exec."""
    python, argv, env = order["python"], order["argv"], order["env"]
    if argv[0] != python:
        execute(argv, env)
    elif is_script(argv[1:]):
        interpret(argv[1:], env)
    else:
        execute([sys.executable, *argv[1:]], env)


def is_script(words: list[str]) -> bool:
    """Whether these arguments of Python name a script, or `-c` and code; other options need an interpreter of their own."""
    return bool(words) and (not words[0].startswith("-") or (words[0] == "-c" and len(words) > 1))


def execute(argv: list[str], env: dict[str, str]) -> None:
    for number in (SIGPIPE, SIGXFSZ):  # Python ignores them, which exec would hand down
        _signal.signal(number, _signal.SIG_DFL)
    try:
        os.execvpe(argv[0], argv, env)  # noqa: S606
    except OSError as error:
        os.write(2, f"{argv[0]}: {error.strerror}\n".encode(errors="backslashreplace"))
        os._exit(127 if error.errno == errno.ENOENT else 126)


def interpret(argv: list[str], env: dict[str, str]) -> None:
    """Run a script as `python script` would: its own `__main__`, its directory first on the path.

    `sys.stdout` and the others were made for descriptors that were no terminals and no files, and pipes have taken their place.
    """
    os.environ.clear()
    os.environ.update(env)
    main = type(sys)("__main__")
    if argv[0] == "-c":
        source, filename, sys.argv = argv[1].encode(), "<string>", ["-c", *argv[2:]]
        sys.path[0] = ""
    else:
        filename, sys.argv = os.path.abspath(argv[0]), list(argv)  # noqa: PTH100
        sys.path[0] = os.path.dirname(filename)  # noqa: PTH120
        main.__file__ = filename
        try:
            with open(filename, "rb") as file:  # noqa: PTH123
                source = file.read()
        except OSError as error:
            sys.stderr.write(f"{sys.executable}: can't open file {filename!r}: [Errno {error.errno}] {error.strerror}\n")
            sys.exit(2)
    main.__builtins__ = __builtins__  # type: ignore[attr-defined]
    sys.modules["__main__"] = main
    sys.excepthook = without_us
    exec(compile(source, filename, "exec", dont_inherit=True), main.__dict__)  # noqa: S102 - this is what the place is for


def without_us(kind: type[BaseException], error: BaseException, trace: Any) -> None:
    """Print a traceback that begins in the program."""
    while trace is not None and trace.tb_frame.f_code.co_filename == without_us.__code__.co_filename:
        trace = trace.tb_next
    sys.__excepthook__(kind, error.with_traceback(trace), trace)


def settle(workdir: str, user: int) -> None:
    """Become an ordinary user for good, out of reach of other processes of that user, in the working directory."""
    if user >= 0:
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
    prctl(PR_SET_DUMPABLE, 0)
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    os.umask(0o022)
    os.makedirs(workdir, mode=0o700, exist_ok=True)  # noqa: PTH103
    os.chdir(workdir)


def main() -> dict[str, Any] | None:
    """Serve one program. In the program's own process the order comes back, for the caller to run."""
    workdir, user, exclusive = sys.argv[1], int(sys.argv[2]), sys.argv[3] == "exclusive"
    control = Control(os.dup(0), os.dup(1))
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    settle(workdir, user)
    control.send(b"r")
    while True:
        kind, body = control.receive()
        order = marshal.loads(body) if body else {}  # noqa: S302 - from the host
        if kind == b"L":
            try:
                write_files(order["files"])
            except OSError as error:
                control.send(b"x", f"{error.strerror}: {error.filename}".encode(errors="backslashreplace"))
                continue
            watch = start(control, order)
            if watch is None:
                return order
            watch.until_ended(Children(exclusive=exclusive))
        elif kind == b"F":
            left = order["limit"]
            for place, name in enumerate(order["names"]):
                data = read_file(name, left)
                if data is not None:
                    left -= len(data)
                    control.send(b"f", struct.pack("!I", place) + data)
            control.send(b"d")


if __name__ == "__main__":
    run(main() or {})
