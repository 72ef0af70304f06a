"""A command as somebody can copy it into a shell."""

from __future__ import annotations

import shlex
from pathlib import Path


def command_line(command: str, *arguments: str | Path) -> str:
    """`command`, options and all, with these arguments behind it; after `--` where one would be taken for an option."""
    said = [shlex.quote(str(each)) for each in arguments]
    dashed = any(str(each).startswith("-") for each in arguments)
    return " ".join([command, *(["--"] if dashed else []), *said])
