"""`memlog token`: who may reach the server over HTTP, and what each may do."""

from __future__ import annotations

import functools
import shlex
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import click
import msgspec

from memlog.closest import did_you_mean
from memlog.commands import ProjectName
from memlog.controls import safe
from memlog.errors import InvalidParameter, MemlogError, shorten
from memlog.settings import TOOLSETS, Settings
from memlog.shell import command_line
from memlog.storage.disk import stands
from memlog.times import DAY_US, iso
from server.cli import output
from server.cli.options import (
    PROJECT,
    Command,
    Helpful,
    NamedPath,
    Number,
    data_dir_option,
    json_option,
    said_before,
)
from server.cli.printing import new_table, open_console, print_json, say
from server.cli.running import here, store_of, with_settings
from server.rights.grants import RIGHTS, Grant, Right

if TYPE_CHECKING:
    from server.rights.tokens import Tokens

TokenName = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._@-]{0,99}\Z")]

DAYS_MAX = 36_500


class Kept(NamedTuple):
    """The tokens of a server with these settings."""

    tokens: Tokens
    settings: Settings


tokens_file_option = click.option(
    "--tokens-file",
    type=NamedPath("Name a file, or leave it out.", dir_okay=False),
    help="File of the tokens.  [env: MEMLOG_TOKENS_FILE]",
)


@click.group("token", cls=Helpful)
@data_dir_option
@tokens_file_option
def token_command(**_: object) -> None:
    """Make, list and revoke the bearer tokens of `memlog serve --transport http`.

    \b
    Example: memlog token new laptop --right write --project my-app
    """


def with_tokens(command: Command) -> Command:
    """Gives a command the tokens as its first argument; where they are may be said before its name or behind it."""

    @tokens_file_option
    @with_settings
    @functools.wraps(command)
    def run(settings: Settings, tokens_file: Path | None, **arguments: Any) -> Any:
        from server.rights.tokens import Tokens, tokens_path

        file = tokens_file or said_before("tokens_file")
        click.get_current_context().meta[_NAMED_FILE] = file
        try:
            return command(Kept(Tokens(file or tokens_path(settings)), settings), **arguments)
        except MemlogError as error:
            error.suggestion = error.suggestion and _of_file(error.suggestion)
            raise

    return run


_NAMED_FILE = f"{__name__}.tokens_file"


def _of_file(advice: str) -> str:
    """The same, with each command in it about the file of tokens that was named to the one that runs."""
    file = click.get_current_context().meta[_NAMED_FILE]
    if file is None:
        return advice
    return advice.replace("`memlog token", f"`memlog token --tokens-file {shlex.quote(str(file))}")


@token_command.command("new")
@click.argument("name")
@click.option(
    "--right",
    type=click.Choice(RIGHTS),
    default="write",
    show_default=True,
    help="read; write inside projects too; admin: make, archive and delete projects too.",
)
@click.option(
    "--project",
    "projects",
    multiple=True,
    type=PROJECT,
    help="A project to reach; default: all.",
)
@click.option(
    "--toolset",
    "toolsets",
    multiple=True,
    type=click.Choice(TOOLSETS),
    help="A toolset to be offered; default: all.",
)
@click.option("--days", type=Number(0, DAYS_MAX, min_open=True), help="How long it is good for.")
@with_tokens
def new(
    kept: Kept,
    name: str,
    right: Right,
    projects: Sequence[str],
    toolsets: Sequence[str],
    days: float | None,
) -> None:
    """Make a token and print it, the only time. The name is recorded on all that is written with it.

    \b
    Example: memlog token new phone --right read --project home --days 90
    """
    try:
        msgspec.convert(name, TokenName)
    except msgspec.ValidationError as error:
        raise InvalidParameter(
            f"The name {shorten(name)!r} cannot be used",
            suggestion="Take up to 100 letters, digits and . _ @ -, the first a letter or a digit.",
        ) from error
    try:
        msgspec.convert(projects, list[ProjectName])
    except msgspec.ValidationError as error:
        raise InvalidParameter(f"No project can have that name: {error}") from error
    grant = Grant(name, right, tuple(projects) or None, tuple(toolsets) or None)
    expires_us = None if days is None else time.time_ns() // 1_000 + int(days * DAY_US)
    output.require()
    token = kept.tokens.new(grant, expires_us=expires_us)
    try:
        say(token)
    except OSError:  # nobody has seen it, and its name is to be had again
        kept.tokens.revoke(name)
        raise
    say("This is the only time it is shown; what is kept is its hash.", err=True)
    for warning in _not_there(kept.settings, projects):
        say(f"Warning: {here(warning)}", err=True)


def _not_there(settings: Settings, projects: Sequence[str]) -> Iterator[str]:
    """A warning for each project that is yet to be made, and not made on its first use."""
    if not projects:
        return
    try:
        with store_of(settings) as store:
            there = [row.name for row in store.projects("all")]
    except MemlogError:  # other commands say what is wrong; the token is made
        return
    reached = Grant(projects=(*there, settings.project))
    for name in projects:
        if not reached.reaches(name):
            made = f"`{command_line('memlog projects create', name)}` makes it."
            near = did_you_mean(name, there) or made
            yield f"There is no project '{name}' yet: the token reaches it once it is made. {near}"


@token_command.command("list")
@json_option
@with_tokens
def list_tokens(kept: Kept, as_json: bool) -> None:
    """Show the tokens there are, by name, and what each may do.

    \b
    Example: memlog token list
    """
    tokens = kept.tokens.all()
    rows = [
        {
            "name": each.name,
            "right": each.right,
            "projects": each.projects,
            "toolsets": each.toolsets,
            "created": each.created,
            "expires": None if each.expires_us is None else iso(each.expires_us),
            "expired": each.expired,
        }
        for each in tokens
    ]
    if as_json:
        print_json(rows)
        return
    if not tokens:
        say(_none_left(kept.tokens) or "There are no tokens yet.")
        return
    from rich.markup import escape

    table = new_table("name", "right", "projects", "toolsets", "created", "expires")
    for each in tokens:
        table.add_row(
            each.name,
            each.right,
            escape(safe(", ".join(each.projects))) if each.projects is not None else "all",
            ", ".join(each.toolsets) if each.toolsets is not None else "all",
            _shown(each.created),
            _shown(iso(each.expires_us)) if each.expires_us else "never",
        )
    open_console().print(table)


def _none_left(tokens: Tokens) -> str | None:
    """What a file without a token means, which is not what no file does: nobody is let in."""
    if tokens.all() or not stands(tokens.path):
        return None
    making = here(_of_file("`memlog token new NAME` makes one."))
    return (
        f"No token is left in {tokens.path}, and while the file is there a server asks for one. "
        f"{making}"
    )


def _shown(time: str) -> str:
    """A time to the second, which a narrow terminal shows on two lines."""
    return time[:19].replace("T", " ") + "Z"


@token_command.command("revoke")
@click.argument("name")
@with_tokens
def revoke(kept: Kept, name: str) -> None:
    """Take a token back; running servers refuse it from their next request on.

    \b
    Example: memlog token revoke phone
    """
    kept.tokens.revoke(name)
    say(f"revoked {name}")
    if left := _none_left(kept.tokens):
        say(left, err=True)
