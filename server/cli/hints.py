"""What an error advises, in the words of the command line: the core advises callers of tools."""

from __future__ import annotations

import json
import re
import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from memlog.errors import MemlogError
from memlog.shell import command_line, of_project


def _restored(found: re.Match[str]) -> str:
    run = "Run" if found[1] == "Call" else "run"
    return f"{run} `{command_line('memlog projects restore', json.loads(found[2])['name'])}`, or "


def _for_this_python(found: re.Match[str]) -> str:
    """What installs packages for the Python that runs: environments that uv makes, and pipx by it, have no pip."""
    python, prefix = shlex.quote(sys.executable), Path(sys.prefix)
    if find_spec("pip") is not None:
        return f"`{python} -m pip install {found[1]}`"
    if (prefix / "pipx_metadata.json").is_file():
        return f"`pipx runpip {shlex.quote(prefix.name)} install {found[1]}`"
    return f"`uv pip install --python {python} {found[1]}`"


_MAKING = "`memlog projects create NAME`"

_SPOKEN: tuple[tuple[str, str | Callable[[re.Match[str]], str]], ...] = (
    (r"switch_project to another one\.", "name another project with --project."),
    (r'(Call|call) restore_project with (\{"name": ".*"\}), or ', _restored),
    (
        r"Call list_projects to see all\. Call create_project to make it\.",
        f"Run {_MAKING} to make it, or `memlog projects` to see all.",
    ),
    (r"Call switch_project to use it,", "Name it with --project to use it,"),
    (r"Use switch_project to select one\.", "Name one with --project."),
    (r"Or name one in the call itself: .*", "Or set MEMLOG_PROJECT."),
    (r"Use archive_project and restore_project\.", "Use `memlog projects archive` or `restore`."),
    (r"Call list_projects to see what there is\.", "Run `memlog projects` to see what there is."),
    (r"Call get_history", "Run `memlog log`"),
    (r"Call list_threads to see all there are\.", "Run `memlog log`: it names the threads."),
    (r"call again; nothing was written\.", "run the command again."),
    (r"^Call again\b", "Run the command again"),
    (r"then call again\.", "then run the command again."),
    (r"Pass cascade=true", "Pass --cascade"),
    (r'Undo it first: \{"position": (\d+)\}\.', r"Pass --position \1 to undo it first."),
    (r'undo \{"position": (\d+)\} brings', r"`memlog undo --position \1` brings"),
    (r"Pass last=", "Pass --last "),
    (r"Look for it with search_nodes", "Look for it with `memlog search`"),
    (r"name that in `project`\.", "name that project."),
    (r"Call search_memories or list_recent_memories to find it", "`memlog search --json` finds it"),
    (r"`python -m pip install ([^`]+)` with the Python of memlog \([^)]+\)", _for_this_python),
    (r"Start the server with (\S+) to switch it on", r"Set \1 to switch it on"),
    (r"Leave --from out to ask for now\.", "Pass a moment that has passed."),
    (r"Leave \S+ out to ask for now\.", "Leave it out to ask for now."),
    (
        r"Mend every item under `problems`, then send the whole request again\.",
        "Mend every one of them, then run the command again.",
    ),
)
"""What a tool's caller is told, and what to tell instead. A test looks that no tool's name is left over."""

_OF_NO_PROJECT = re.compile(r"`memlog (?:log|replay|search|undo)\b(?! (?:-- |[^-]))")
"""A command that names no project, and so is about the default one."""


_ADVISED = re.compile(r"(^|`)(memlog (?!health\b)[a-z]+)")
"""A command that takes --data-dir; `memlog health` asks a server."""


def of_folder(text: str, data_dir: Path | None) -> str:
    """A text with its commands about this data directory, where one is given; else they are about the usual one."""
    if data_dir is None:
        return text
    named = f" --data-dir {shlex.quote(str(data_dir))}"
    return _ADVISED.sub(lambda found: found[0] + named, text)


def spoken(text: str, project: str | None = None) -> str:
    """An error's message or suggestion, with commands in place of tools; of `project`, where one is given."""
    for told, instead in _SPOKEN:
        text = re.sub(told, instead, text)
    if project is None:
        return text
    text = text.replace(_MAKING, f"`{command_line('memlog projects create', project)}`")
    named = f" --project {shlex.quote(project)}"
    return of_project(_OF_NO_PROJECT.sub(lambda found: found[0] + named, text), project)


def hint_of(error: MemlogError, project: str | None = None) -> str | None:
    """What an error advises, said so; None where it advises nothing."""
    return spoken(error.suggestion, project) if error.suggestion else None


@contextmanager
def spoken_of(project: str | None, data_dir: Path | None) -> Iterator[None]:
    """What an error from here advises can be typed as it stands, also where it is about another project than the
    default one, or another data directory than the usual one: the core does not know what a command named."""
    try:
        yield
    except MemlogError as error:
        hint = hint_of(error, project)
        error.suggestion = hint and of_folder(hint, data_dir)
        raise
