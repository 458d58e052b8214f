"""Logs of a worker process: structlog on stderr, one line an event; JSON where no person watches."""

from __future__ import annotations

import logging
import sys
from typing import Literal, TextIO, cast

import structlog

from rollstream.stderr import StandardError

_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


def set_up(level: Literal["debug", "info", "warning", "error"], form: Literal["auto", "text", "json"]) -> None:
    """Configure structlog, and keep the Kafka client's retries out of the log unless debugging."""
    as_json = form == "json" or (form == "auto" and not sys.stderr.isatty())
    renderer = structlog.processors.JSONRenderer() if as_json else structlog.dev.ConsoleRenderer()
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(_LEVELS[level]),
        logger_factory=structlog.PrintLoggerFactory(cast("TextIO", StandardError())),
    )
    logging.basicConfig(level=_LEVELS[level], stream=sys.stderr)
    if level != "debug":
        logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
        logging.getLogger("faststream").setLevel(logging.WARNING)
