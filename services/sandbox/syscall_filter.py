"""The system calls that a sandboxed program may not make, as a seccomp program.

Owns the lists and their compilation to classic BPF. Invariant: a call made in another ABI than the machine's own (32-bit,
x32) kills the program, so no number means something else than it says here.
Source of the format: linux/seccomp.h, linux/filter.h, linux/audit.h; numbers: asm/unistd_64.h and asm-generic/unistd.h.
"""

from __future__ import annotations

import errno
import platform
import struct
from collections.abc import Iterable
from dataclasses import dataclass

# name: (x86_64, aarch64); None where the architecture does not have it.
_NUMBERS: dict[str, tuple[int | None, int | None]] = {
    "acct": (163, 89),
    "add_key": (248, 217),
    "bpf": (321, 280),
    "chmod": (90, None),
    "chown": (92, None),
    "chroot": (161, 51),
    "clock_settime": (227, 112),
    "delete_module": (176, 106),
    "fanotify_init": (300, 262),
    "fchmodat": (268, 53),
    "fchmodat2": (452, 452),
    "fchownat": (260, 54),
    "finit_module": (313, 273),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fsopen": (430, 430),
    "fspick": (433, 433),
    "futimesat": (261, None),
    "init_module": (175, 105),
    "inotify_init": (253, None),
    "inotify_init1": (294, 26),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "io_uring_setup": (425, 425),
    "ioprio_set": (251, 30),
    "kcmp": (312, 272),
    "kexec_file_load": (320, 294),
    "kexec_load": (246, 104),
    "keyctl": (250, 219),
    "kill": (62, 129),
    "lchown": (94, None),
    "lremovexattr": (198, 15),
    "lsetxattr": (189, 6),
    "migrate_pages": (256, 238),
    "mount": (165, 40),
    "mount_setattr": (442, 442),
    "move_mount": (429, 429),
    "move_pages": (279, 239),
    "mq_open": (240, 180),
    "msgget": (68, 186),
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    "open_tree": (428, 428),
    "perf_event_open": (298, 241),
    "pidfd_getfd": (438, 438),
    "pidfd_send_signal": (424, 424),
    "pivot_root": (155, 41),
    "process_madvise": (440, 440),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "ptrace": (101, 117),
    "quotactl": (179, 60),
    "reboot": (169, 142),
    "removexattr": (197, 14),
    "request_key": (249, 218),
    "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240),
    "sched_setaffinity": (203, 122),
    "sched_setattr": (314, 274),
    "sched_setparam": (142, 118),
    "sched_setscheduler": (144, 119),
    "semget": (64, 190),
    "setdomainname": (171, 162),
    "sethostname": (170, 161),
    "setns": (308, 268),
    "setpriority": (141, 140),
    "settimeofday": (164, 170),
    "setxattr": (188, 5),
    "shmget": (29, 194),
    "socket": (41, 198),
    "swapoff": (168, 225),
    "swapon": (167, 224),
    "syslog": (103, 116),
    "tgkill": (234, 131),
    "tkill": (200, 130),
    "truncate": (76, 45),
    "umount2": (166, 39),
    "unshare": (272, 97),
    "userfaultfd": (323, 282),
    "utime": (132, None),
    "utimensat": (280, 88),
    "utimes": (235, None),
}
_CLONE, _CLONE3, _PRLIMIT = (56, 220), (435, 435), (302, 261)

_NAMES_ALWAYS = [
    "acct",
    "add_key",
    "bpf",
    "chroot",
    "clock_settime",
    "delete_module",
    "fanotify_init",
    "finit_module",
    "fsconfig",
    "fsmount",
    "fsopen",
    "fspick",
    "init_module",
    "io_uring_enter",
    "io_uring_register",
    "io_uring_setup",
    "kcmp",
    "kexec_file_load",
    "kexec_load",
    "keyctl",
    "mount",
    "mount_setattr",
    "move_mount",
    "move_pages",
    "migrate_pages",
    "name_to_handle_at",
    "open_by_handle_at",
    "open_tree",
    "perf_event_open",
    "pidfd_getfd",
    "pivot_root",
    "process_madvise",
    "process_vm_readv",
    "process_vm_writev",
    "ptrace",
    "quotactl",
    "reboot",
    "request_key",
    "setdomainname",
    "sethostname",
    "setns",
    "settimeofday",
    "swapoff",
    "swapon",
    "syslog",
    "umount2",
    "unshare",
    "userfaultfd",
]
"""What leads to other namespaces, other processes' memory or seldom-used kernel code; no program of a task needs it."""

_NAMES_SHARED_SYSTEM = ["inotify_init", "inotify_init1", "mq_open", "msgget", "semget", "shmget", "truncate"]
"""What reaches beyond the file tree where the machine's namespaces are shared with the program."""

_NAMES_SHARED_USER = [
    "chmod",
    "chown",
    "fchmodat",
    "fchmodat2",
    "fchownat",
    "futimesat",
    "ioprio_set",
    "lchown",
    "lremovexattr",
    "lsetxattr",
    "removexattr",
    "sched_setaffinity",
    "sched_setattr",
    "sched_setparam",
    "sched_setscheduler",
    "setpriority",
    "setxattr",
    "utime",
    "utimensat",
    "utimes",
]
"""What changes files and processes of the same user; Landlock does not cover it."""

_NAMES_SIGNALS = ["kill", "pidfd_send_signal", "rt_sigqueueinfo", "rt_tgsigqueueinfo", "tgkill", "tkill"]

_ARCHITECTURES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
_NEW_NAMESPACES = 0x7E020000
"""CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID and NEWNET; NEWTIME exists for unshare and clone3 alone."""

_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _KILL, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT = 0, 4, 16


_FAMILIES = (1, 2, 10)
"""AF_UNIX, AF_INET, AF_INET6. Others reach past a network namespace (AF_VSOCK: the hypervisor) or to seldom-used kernel code.

Without AF_NETLINK, looking up names works (glibc then takes both IP versions to be there); interfaces cannot be listed."""


@dataclass(frozen=True, slots=True)
class Sharing:
    """What the program shares with the machine, which decides what more is refused."""

    system: bool = False
    user: bool = False
    signals: bool = False
    network: bool = True
    """True also where an empty network namespace keeps programs off the network: then sockets of `_FAMILIES` remain."""


def compile_filter(sharing: Sharing = Sharing(), machine: str | None = None) -> bytes:
    """The BPF program (8 bytes an instruction), or nothing for an architecture whose numbers are not known here."""
    machine = machine or platform.machine()
    if machine not in _ARCHITECTURES:
        return b""
    column, audit = _ARCHITECTURES[machine]
    code = [(_LOAD, 0, 0, _ARCHITECTURE), (_EQUAL, 1, 0, audit), (_RETURN, 0, 0, _KILL), (_LOAD, 0, 0, _NUMBER)]
    if machine == "x86_64":
        code += [(_AT_LEAST, 0, 1, 0x40000000), (_RETURN, 0, 0, _KILL)]  # x32
    for name in _refused(sharing):
        number = _NUMBERS[name][column]
        if number is not None:
            code += _refuse(number, errno.EPERM)
    code += _only_usual_sockets(column) if sharing.network else _refuse_socket(column)
    code += _refuse(_CLONE3[column], errno.ENOSYS)  # libc falls back to clone, whose flags can be read here
    if sharing.user:
        code += [(_EQUAL, 0, 4, _PRLIMIT[column]), (_LOAD, 0, 0, _FIRST_ARGUMENT), *_unless_equal(0), (_RETURN, 0, 0, _ALLOW)]
    code += [(_EQUAL, 0, 3, _CLONE[column]), (_LOAD, 0, 0, _FIRST_ARGUMENT), (_ANY_BIT, 0, 1, _NEW_NAMESPACES)]
    code += [(_RETURN, 0, 0, _ERRNO | errno.EPERM), (_RETURN, 0, 0, _ALLOW)]
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in code)


def _refused(sharing: Sharing) -> Iterable[str]:
    yield from _NAMES_ALWAYS
    if sharing.system:
        yield from _NAMES_SHARED_SYSTEM
    if sharing.user:
        yield from _NAMES_SHARED_USER
    if sharing.signals:
        yield from _NAMES_SIGNALS


def _refuse(number: int, error: int) -> list[tuple[int, int, int, int]]:
    return [(_EQUAL, 0, 1, number), (_RETURN, 0, 0, _ERRNO | error)]


def _unless_equal(value: int) -> list[tuple[int, int, int, int]]:
    return [(_EQUAL, 1, 0, value), (_RETURN, 0, 0, _ERRNO | errno.EPERM)]


def _refuse_socket(column: int) -> list[tuple[int, int, int, int]]:
    number = _NUMBERS["socket"][column]
    assert number is not None
    return _refuse(number, errno.EACCES)


def _only_usual_sockets(column: int) -> list[tuple[int, int, int, int]]:
    number = _NUMBERS["socket"][column]
    assert number is not None
    tests = [(_EQUAL, len(_FAMILIES) - place, 0, family) for place, family in enumerate(_FAMILIES)]
    told = [(_RETURN, 0, 0, _ERRNO | errno.EAFNOSUPPORT), (_RETURN, 0, 0, _ALLOW)]
    return [(_EQUAL, 0, len(tests) + 3, number), (_LOAD, 0, 0, _FIRST_ARGUMENT), *tests, *told]
