"""Where the local broker keeps things: its data, which outlive every run, and its cache, which may be deleted any time."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

DATA_SETTING = "ROLLSTREAM_BROKER_DIR"
CACHE_SETTING = "ROLLSTREAM_CACHE_DIR"


def default_data_dir() -> Path:
    """The directory named by `ROLLSTREAM_BROKER_DIR`, else one in the user's data directory."""
    setting = os.environ.get(DATA_SETTING)
    if setting:
        return Path(setting).expanduser().absolute()
    import platformdirs

    return platformdirs.user_data_path("rollstream") / "broker"


def cache_dir() -> Path:
    """The directory named by `ROLLSTREAM_CACHE_DIR`, else the user's cache directory; jars are kept under it."""
    setting = os.environ.get(CACHE_SETTING)
    if setting:
        return Path(setting).expanduser().absolute()
    import platformdirs

    return platformdirs.user_cache_path("rollstream")


@dataclass(frozen=True, slots=True)
class Layout:
    """The files of one broker's data directory."""

    root: Path

    @property
    def log_dir(self) -> Path:
        """Kafka's own data: topics, offsets, the metadata log."""
        return self.root / "kafka"

    @property
    def properties(self) -> Path:
        return self.root / "server.properties"

    @property
    def ports(self) -> Path:
        """The ports last used, so that a restarted broker is found where it was."""
        return self.root / "ports.json"

    @property
    def state(self) -> Path:
        """Who runs this broker now; may be stale."""
        return self.root / "running.json"

    @property
    def lock(self) -> Path:
        return self.root / "lock"

    @property
    def output(self) -> Path:
        """What the JVM writes to stdout and stderr."""
        return self.root / "broker.log"

    @property
    def formatted(self) -> bool:
        # Kafka writes this file last, so a format that was interrupted is seen and done again.
        return (self.log_dir / "meta.properties").is_file()
