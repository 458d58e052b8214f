"""What the commands share: options, settings, the connection, and how errors end.

Invariant: an error that a user can meet is one line on stderr that says what to do, with the exit code of its kind; a
traceback appears only with --debug. Text from rows, models and servers reaches the terminal through `printable` alone.
"""

from __future__ import annotations

import functools
import inspect
import os
import sys
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, ParamSpec, TypeVar

import typer

if TYPE_CHECKING:
    from rollstream.settings import Loaded, Settings
    from schemas.topics import Topics
    from services.runtime.connection import Connection

OK, CANNOT, USAGE, SOME_FAILED, STOPPED = 0, 1, 2, 3, 130

_PANEL = "Where"

BootstrapServers = Annotated[
    str | None,
    typer.Option(
        "--bootstrap-servers",
        "-b",
        metavar="HOST:PORT",
        help="The Kafka to use, several by comma. Without it: the local broker that runs.",
        rich_help_panel=_PANEL,
    ),
]
Prefix = Annotated[
    str | None, typer.Option("--prefix", metavar="NAME", help="Prefix of the topics' names.", rich_help_panel=_PANEL)
]
ConfigFile = Annotated[
    Path | None, typer.Option("--config", metavar="FILE", help="Settings file (TOML or YAML).", rich_help_panel=_PANEL)
]
Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="KEY=VALUE", help="Any setting, such as model.url=…; may be repeated.", rich_help_panel=_PANEL
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="JSON for programs instead of text for people.")]

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(slots=True)
class State:
    """What holds for the whole process."""

    debug: bool = False


state = State()


class UsageError(Exception):
    """The command line contradicts itself or names something that is not there."""


def command(function: Callable[P, None]) -> Callable[P, None]:
    """Makes a function a command: known errors end as one line and an exit code."""

    @functools.wraps(function)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            function(*args, **kwargs)
        except typer.Exit:
            raise
        except KeyboardInterrupt:
            raise typer.Exit(STOPPED) from None
        except BrokenPipeError:
            _forget_stdout()
            raise typer.Exit(OK) from None
        except Exception as e:
            if state.debug:
                raise
            fail(*_described(e))

    return wrapped


def add(app: typer.Typer, function: Callable[..., None], panel: str | None = None) -> None:
    """Add a command under its function's name, with its docstring as help."""
    app.command(function.__name__, rich_help_panel=panel, help=flowing(function.__doc__ or ""))(command(function))


def flowing(text: str) -> str:
    """Help with each paragraph on one line, so that it wraps at the terminal's width and not also at ours.

    Lines that begin with white space keep their breaks.
    """
    paragraphs = inspect.cleandoc(text).split("\n\n")
    return "\n\n".join(p if "\n " in p else " ".join(p.split("\n")) for p in paragraphs)


def run_async(main: Coroutine[Any, Any, T]) -> T:
    """Run a command's coroutine; Ctrl-C cancels it and ends as `KeyboardInterrupt`."""
    import asyncio

    quiet_logs()
    return asyncio.run(main)


def fail(message: str, code: int) -> NoReturn:
    """End with one line on stderr."""
    say(f"rollstream: {message}")
    raise typer.Exit(code)


def say(message: str) -> None:
    """A line for the person at the terminal, on stderr."""
    from rollstream.text import printable

    typer.echo("\n".join(printable(line) for line in message.splitlines()), err=True)


def load_settings(
    bootstrap_servers: str | None = None,
    prefix: str | None = None,
    config: Path | None = None,
    assignments: list[str] | None = None,
    **flags: Any,
) -> Loaded:
    """Settings with these flags on top; dotted keys are spelled with a double underscore in `flags`."""
    from rollstream.settings import load

    given: dict[str, Any] = {}
    for text in assignments or []:
        key, separator, value = text.partition("=")
        if not separator:
            raise UsageError(f"--set {text}: write KEY=VALUE, such as --set agent.in_flight=512")
        given[key.strip()] = value
    more = {key.replace("__", "."): value for key, value in flags.items()}
    named = {"kafka.bootstrap_servers": bootstrap_servers, "topics.prefix": prefix, **more}
    return load({**given, **{k: v for k, v in named.items() if v is not None}}, config)


def connection_of(settings: Settings) -> Connection:
    """The configured broker, else the local one that runs; raises `UsageError` when there is neither."""
    if settings.kafka.bootstrap_servers:
        return settings.kafka.connection(settings.kafka.bootstrap_servers)
    from rollstream.broker import find_running

    running = find_running(settings.broker.data_dir)
    if running is None:
        raise UsageError("no broker: name one with --bootstrap-servers, or start a local one with `rollstream broker start`")
    return running.connection


def topics_of(settings: Settings) -> Topics:
    """The pipeline's topics as configured."""
    from schemas.topics import Topics

    return Topics(settings.topics.prefix, settings.topics.partitions)


def quiet_logs() -> None:
    """Logs to stderr, and only what matters: clients log every retry, which a command's own error says better."""
    import logging

    import structlog

    if state.debug:
        logging.basicConfig(level=logging.DEBUG)
    else:
        logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))


def _described(error: Exception) -> tuple[str, int]:
    """Message and exit code of an error, by its kind. The kinds are looked up here so that help need not import them."""
    from rollstream.broker.errors import BrokerError
    from rollstream.settings import SettingsError
    from schemas.errors import RolloutError
    from services.runtime.admin import AdminError
    from services.runtime.connection import BadConnectionError

    text = str(error)
    if isinstance(error, UsageError | SettingsError | BadConnectionError):
        return text, USAGE
    if isinstance(error, RolloutError) and error.detail:
        text = f"{text} ({error.detail})"
    if isinstance(error, RolloutError | AdminError | BrokerError):
        return text, CANNOT
    if isinstance(error, OSError) and error.filename:
        return f"{error.filename}: {error.strerror}", USAGE
    return f"{type(error).__name__}: {text} (a defect; --debug shows where: rollstream --debug …)", CANNOT


def _forget_stdout() -> None:
    """Whoever read our output is gone (`| head`); Python would complain about it once more when it flushes at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
