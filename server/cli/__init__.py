"""The command line: where everything is put together. It may import all; nothing imports it.

Each command lives in a module of its own, imported when it is asked for, so that `memlog serve` is up
without waiting for what other commands need.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from memlog import __version__
from memlog.closest import did_you_mean
from memlog.errors import MemlogError
from server.cli import output
from server.cli.hints import spoken
from server.cli.options import Helpful
from server.cli.printing import say

COMMANDS = {
    "serve": "server.cli.serve",
    "demo": "server.cli.demo",
    "recall": "server.cli.recall",
    "search": "server.cli.search",
    "log": "server.cli.log",
    "show": "server.cli.show",
    "diff": "server.cli.diff",
    "undo": "server.cli.undo",
    "stats": "server.cli.stats",
    "projects": "server.cli.projects",
    "import": "server.cli.transfer",
    "export": "server.cli.transfer",
    "backup": "server.cli.backup",
    "restore": "server.cli.backup",
    "replay": "server.cli.replay",
    "verify": "server.cli.verify",
    "repair": "server.cli.repair",
    "purge": "server.cli.purge",
    "token": "server.cli.token",
    "doctor": "server.cli.doctor",
    "health": "server.cli.health",
}

PROBLEMS_SHOWN_MAX = 20
"""Of a file with a mistake in every line."""


class Interrupted(BaseException):
    """Ctrl-C within a command, which click must not make an end of."""


class Commands(Helpful):
    """Finds a command by name and imports its module only then."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = import_module(COMMANDS[cmd_name])
        command: click.Command = getattr(module, f"{cmd_name}_command")
        return command

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as error:
            raise Interrupted from error

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Raises UsageError, which offers the commands that are nearest."""
        if args[0] not in COMMANDS and not args[0].startswith("-"):
            near = did_you_mean(args[0], COMMANDS)
            ctx.fail(" ".join(filter(None, [f"No such command '{args[0]}'.", near])))
        return super().resolve_command(ctx, args)


@click.command(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, prog_name="memlog")
def cli() -> None:
    """A durable memory for language-model agents: an append-only log, and everything else from it.

    \b
    Example: memlog demo
    """


def _exit() -> None:
    sys.exit(1)


def main(arguments: list[str] | None = None, interrupted: Callable[[], None] = _exit) -> None:
    """Runs the command line; errors go to stderr in words, with exit code 1.

    `interrupted` ends the process after Ctrl-C, which may leave a thread behind that waits for ever.
    """
    output.spell_out_what_it_lacks()
    try:
        cli.main(args=arguments, prog_name="memlog")
    except Interrupted:
        say("\nAborted!", err=True)
        interrupted()
    except MemlogError as error:
        say(explained(error), err=True)
        sys.exit(1)
    except UnicodeEncodeError as error:
        # No text that is kept has half a character, only what was typed.
        say(f"error: {error.object!a} is not valid UTF-8", err=True)
        say("hint: Type it, and name the data directory, in UTF-8.", err=True)
        sys.exit(1)
    except OSError as error:  # of a file that a command was given, or of the output
        where = error.filename or "output"
        say(f"error: {where}: {error.strerror or error}", err=True)
        if isinstance(error.filename, str) and (hint := _advice(Path(error.filename), error)):
            say(f"hint: {spoken(hint)}", err=True)
        output.forget()
        sys.exit(1)


def _advice(file: Path, error: OSError) -> str | None:
    """What to do where a file that a command was given can be neither read nor written."""
    from memlog.storage.errors import advice

    if isinstance(error, FileNotFoundError) and not file.parent.exists():
        return f"There is no folder '{file.parent}': make it or name another, then call again."
    return advice(file, error)


def explained(error: MemlogError) -> str:
    """An error as a tired person wants it: what, where, and what to do."""
    lines = [f"error: {error.message}"]
    if len(error.problems) == 1 and error.problems[0].path not in error.message:
        lines = [f"error: {error.problems[0].path}: {error.message}"]
    if len(error.problems) > 1:
        for problem in error.problems[:PROBLEMS_SHOWN_MAX]:
            lines.append(f"  {problem.path}: {problem.problem}")
            if problem.suggestion:
                lines.append(f"    {problem.suggestion}")
        if len(error.problems) > PROBLEMS_SHOWN_MAX:
            lines.append(f"  … and {len(error.problems) - PROBLEMS_SHOWN_MAX} more.")
    if error.suggestion:
        lines.append(f"hint: {error.suggestion}")
    return "\n".join(map(spoken, lines))
