"""Apache Kafka's jars: resolved once from a Maven repository, then remembered as a class path.

Invariant: a class path that is handed out names files that were whole when they were listed and still have the size they
had then; anything else is fetched again. A warm start reads one small file and never imports the resolver.
"""

from __future__ import annotations

import fcntl
import json
import os
import sys
import zipfile
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

from rollstream.broker.errors import BrokerError
from rollstream.broker.java import INSTALL
from rollstream.broker.paths import cache_dir

KAFKA_VERSION = "4.2.0"
COORDINATES = (f"org.apache.kafka:kafka_2.13:{KAFKA_VERSION}", "org.slf4j:slf4j-simple:1.7.36")
HOME_SETTING = "ROLLSTREAM_KAFKA_HOME"
MIRROR_SETTING = "ROLLSTREAM_MAVEN_REPOSITORY"

_ATTEMPTS = 3  # a dropped connection costs one; what is already here is not fetched again
_PARALLEL = 8  # 46 jars of mostly a few hundred KB: latency, not bandwidth, is what they cost
_HTTP_TIMEOUT_S = 30
_REPORT_EVERY = 8

Report = Callable[[str], None]
"""Is told, in one line each, what takes time: a first download, a first format."""


def to_stderr(line: str) -> None:
    """The default `Report`."""
    print(line, file=sys.stderr, flush=True)  # noqa: T201


def kafka_jars(report: Report = to_stderr) -> list[Path]:
    """The class path of Apache Kafka: of the unpacked one that `ROLLSTREAM_KAFKA_HOME` names, else from the cache.

    Blocks while it downloads (45 MB, about 15 s) the first time. Raises `BrokerError`.
    """
    home = os.environ.get(HOME_SETTING)
    if home:
        return _unpacked(Path(home).expanduser().absolute())
    return _remembered() or _resolve(report)


def discard_damaged() -> list[Path]:
    """Read every cached jar and description in full, delete the damaged ones, and say which they were."""
    damaged = [path for path in _repository().rglob("*") if path.is_file() and not _whole(path)]
    for path in damaged:
        path.unlink(missing_ok=True)
    if damaged:
        _listing().unlink(missing_ok=True)
    return damaged


def _home() -> Path:
    return cache_dir() / f"kafka-{KAFKA_VERSION}"


def _repository() -> Path:
    return _home() / "repository"


def _listing() -> Path:
    return _home() / "classpath.json"


def _unpacked(home: Path) -> list[Path]:
    jars = sorted((home / "libs").glob("*.jar"))
    if not any(jar.name.startswith("kafka-clients-") for jar in jars):
        raise BrokerError(
            f"{HOME_SETTING}={home} does not look like an unpacked Apache Kafka: there is no libs/kafka-clients-*.jar in it"
        )
    return jars


def _remembered() -> list[Path] | None:
    try:
        listing = json.loads(_listing().read_bytes())
        if tuple(listing["coordinates"]) != COORDINATES:
            return None
        jars = [_repository() / name for name, _ in listing["jars"]]
        sizes = [size for _, size in listing["jars"]]
        return jars if [jar.stat().st_size for jar in jars] == sizes else None
    except (OSError, ValueError, KeyError, TypeError):
        return None  # absent, damaged, or a file of it is gone: resolved again


def _remember(jars: list[Path]) -> None:
    listing = {"coordinates": COORDINATES, "jars": [(str(jar.relative_to(_repository())), jar.stat().st_size) for jar in jars]}
    draft = _listing().with_suffix(".part")
    draft.write_text(json.dumps(listing))
    draft.replace(_listing())


def _resolve(report: Report) -> list[Path]:
    with _exclusively():
        jars = _remembered()  # another process may have done it while this one waited
        if jars is None:
            discard_damaged()
            jars = _with_retries(report)
            _remember(jars)
        return jars


def _with_retries(report: Report) -> list[Path]:
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            jars = _download(report)
            damaged = [jar.name for jar in jars if not _whole(jar)]
            if not damaged:
                return jars
            raise OSError(f"damaged on arrival: {', '.join(damaged)}")
        except ImportError as error:
            raise BrokerError(f"the local Kafka needs the extra `local`: {INSTALL}") from error
        except (OSError, RuntimeError, AssertionError, ValueError, ET.ParseError) as error:  # what requests and jgo raise
            discard_damaged()
            if attempt == _ATTEMPTS:
                raise BrokerError(
                    f"Apache Kafka {KAFKA_VERSION} could not be downloaded ({attempt} tries): {error}. Set {MIRROR_SETTING} "
                    f"to a Maven mirror you can reach, or {HOME_SETTING} to an unpacked Kafka, or use --bootstrap-servers"
                ) from error
            report(f"download of Apache Kafka interrupted ({error}); trying again")
    raise AssertionError("unreachable: the last attempt returns or raises")


def _download(report: Report) -> list[Path]:
    from jgo.maven import MavenContext, PythonResolver

    report(f"downloading Apache Kafka {KAFKA_VERSION} (45 MB, once)")
    mirror = os.environ.get(MIRROR_SETTING)
    # The resolver is named so that jgo's other one, which runs Maven, is never picked.
    context = MavenContext(
        resolver=PythonResolver(),
        repo_cache=_repository(),
        remote_repos={"mirror": mirror.rstrip("/")} if mirror else None,
        timeout=_HTTP_TIMEOUT_S,
    )
    wanted, needed = context.resolver.resolve([context.create_dependency(coordinate) for coordinate in COORDINATES])
    jars: list[Path] = []
    with ThreadPoolExecutor(_PARALLEL) as pool:
        for jar in pool.map(_fetch, [*wanted, *needed]):
            jars.append(jar)
            if len(jars) % _REPORT_EVERY == 0:
                report(f"downloading Apache Kafka {KAFKA_VERSION}: {len(jars)} of {len(wanted) + len(needed)} jars")
    return jars


def _fetch(dependency: Any) -> Path:
    return Path(dependency.artifact.resolve())


def _whole(path: Path) -> bool:
    """Whether a jar's checksums hold and a project description parses. Other files are not judged."""
    try:
        if path.suffix == ".jar":
            with zipfile.ZipFile(path) as jar:
                return jar.testzip() is None
        if path.suffix == ".pom":
            ET.parse(path)  # noqa: S314  comes from the same place as the code that we are about to run
        return True
    except (OSError, ValueError, EOFError, ET.ParseError, zipfile.BadZipFile, zlib.error):
        return False


@contextmanager
def _exclusively() -> Iterator[None]:
    """One process downloads, others wait for it; the lock ends with its holder."""
    _repository().mkdir(parents=True, exist_ok=True)
    with (_home() / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
