"""A command as somebody can copy it into a shell."""

from __future__ import annotations

import shlex
from pathlib import Path

_WAYS_OUT = (
    ("`memlog repair PROJECT`", "memlog repair"),
    ("`memlog restore FOLDER PROJECT --replace`", "memlog restore --replace", "FOLDER"),
    ("`memlog projects delete PROJECT`", "memlog projects delete"),
)
"""What a damaged log advises (`errors.DamagedLog`), and the command with what stands before the project."""


def command_line(command: str, *arguments: str | Path) -> str:
    """`command`, options and all, with these arguments behind it; after `--` where one would be taken for an option."""
    said = [shlex.quote(str(each)) for each in arguments]
    dashed = any(str(each).startswith("-") for each in arguments)
    return " ".join([command, *(["--"] if dashed else []), *said])


def of_project(text: str, project: str) -> str:
    """A text with its ways out of a damage as they are typed for this project."""
    for told, *typed in _WAYS_OUT:
        text = text.replace(told, f"`{command_line(*typed, project)}`")
    return text
