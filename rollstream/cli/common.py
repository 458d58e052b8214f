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
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, ParamSpec, TextIO, TypeVar, cast

import typer
from typer.core import TyperCommand, TyperGroup

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


def add(app: typer.Typer, function: Callable[..., None], panel: str | None = None, name: str | None = None) -> None:
    """Add a command under `name` (by default its function's), with its docstring as help."""
    help_text = flowing(function.__doc__ or "")
    app.command(name or function.__name__, cls=Grouped, rich_help_panel=panel, help=help_text)(command(function))


def flowing(text: str) -> str:
    """Help whose paragraphs wrap at the terminal's width, except those that are indented: examples keep their lines."""
    paragraphs = inspect.cleandoc(text).split("\n\n")
    return "\n\n".join(f"\b\n{p}" if p.startswith(" ") else " ".join(p.split("\n")) for p in paragraphs)


class Sections(TyperGroup):
    """A group whose help lists its commands under their panels.

    Help is click's plain text: drawing it with rich would double the time until the shell answers (measured: 0.15 s of
    CPU in all, 0.13 of them for importing typer; 0.14 more for rich's help, most of it for a Markdown parser).
    """

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        panels: dict[str, list[tuple[str, str]]] = {}
        for panel, name, says in self.rows(ctx):
            panels.setdefault(panel, []).append((name, says))
        for panel, rows in panels.items():
            with formatter.section(panel):
                formatter.write_dl(rows)

    def rows(self, ctx: Any) -> list[tuple[str, str, str]]:
        """Panel, name and first sentence of each command, in order."""
        found = ((name, self.get_command(ctx, name)) for name in self.list_commands(ctx))
        return [(_panel(c) or "Commands", name, _first_sentence(c)) for name, c in found if c is not None and not c.hidden]


class Grouped(TyperCommand):
    """A command whose help lists options, and arguments, under their panels; those without one stand where it is usual."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        parameters = self.get_params(ctx)
        arguments = [p for p in parameters if p.param_type_name == "argument"]
        panels: dict[str, list[tuple[str, str]]] = {} if any(map(_panel, arguments)) else {"Arguments": []}
        for parameter in [p for p in parameters if p not in arguments]:
            _put(panels, _panel(parameter) or "Options", parameter.get_help_record(ctx))
        for parameter in arguments:
            _put(panels, _panel(parameter) or "Arguments", parameter.get_help_record(ctx))
        for panel, rows in panels.items():
            if rows:
                with formatter.section(panel):
                    formatter.write_dl(rows)


def _panel(parameter: Any) -> str | None:
    panel = getattr(parameter, "rich_help_panel", None)
    return panel if isinstance(panel, str) else None


def _put(panels: dict[str, list[tuple[str, str]]], panel: str, row: tuple[str, str] | None) -> None:
    if row is not None:
        panels.setdefault(panel, []).append(row)


def _first_sentence(found: Any) -> str:
    text = str(found.help or "").split("\n\n")[0]
    return text if ". " not in text else text[: text.index(". ") + 1]


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
    """Settings with these flags on top; dotted keys are spelled with a double underscore in `flags`.

    Their variants are declared, so every registry of this process knows them.
    """
    from environments.own import declare
    from rollstream.settings import load

    given: dict[str, Any] = {}
    for text in assignments or []:
        key, separator, value = text.partition("=")
        if not separator:
            raise UsageError(f"--set {text}: write KEY=VALUE, such as --set agent.in_flight=512")
        given[key.strip()] = value
    more = {key.replace("__", "."): value for key, value in flags.items()}
    named = {"kafka.bootstrap_servers": bootstrap_servers, "topics.prefix": prefix, **more}
    loaded = load({**given, **{k: v for k, v in named.items() if v is not None}}, config)
    declare(loaded.settings.variants)
    return loaded


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

    from rollstream.stderr import StandardError

    if state.debug:
        logging.basicConfig(level=logging.DEBUG)
    else:
        logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(cast("TextIO", StandardError())))


def _described(error: Exception) -> tuple[str, int]:
    """Message and exit code of an error, by its kind. The kinds are looked up here so that help need not import them."""
    from rollstream.broker.errors import BrokerError
    from rollstream.settings import SettingsError
    from schemas.errors import RolloutError
    from services.runtime.admin import AdminError
    from services.runtime.connection import BadConnectionError
    from services.runtime.delivery import StopWorkerError

    text = str(error)
    if isinstance(error, UsageError | SettingsError | BadConnectionError):
        return text, USAGE
    if isinstance(error, RolloutError) and error.detail:
        text = f"{text} ({error.detail})"
    if isinstance(error, RolloutError | AdminError | BrokerError | StopWorkerError):
        return text, CANNOT
    if isinstance(error, OSError) and error.filename:
        return f"{error.filename}: {error.strerror}", USAGE
    return f"{type(error).__name__}: {text} (a defect; --debug shows where: rollstream --debug …)", CANNOT


def _forget_stdout() -> None:
    """Whoever read our output is gone (`| head`); Python would complain about it once more when it flushes at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
