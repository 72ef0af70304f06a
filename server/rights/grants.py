"""What a client may do and reach: its right, its projects, its toolsets, and the name it acts under.

Whoever starts memlog over stdio may do everything. Over HTTP a grant comes from a token, and is only
ever narrowed on its way to the tools: what a grant does not reach looks as if it did not exist.
"""

from __future__ import annotations

from typing import Literal, get_args

import msgspec

from memlog.rows import text_key

Right = Literal["read", "write", "admin"]
"""Each holds those before it: read; write inside projects; make, archive, restore and delete projects."""

RIGHTS: tuple[Right, ...] = get_args(Right)

ENVIRONMENT = "environment"
"""The name of who comes with the token of the environment."""

OAUTH = "oauth:"
"""So the names of those begin who come with an access token of an authorization server."""


class Grant(msgspec.Struct, frozen=True):
    """`name` is recorded as the actor on every event; None for `projects` or `toolsets` means all. `token` is the
    hash of the token of the file that it came with: what one of the same name grants later is another grant."""

    name: str | None = None
    right: Right = "admin"
    projects: tuple[str, ...] | None = None
    toolsets: tuple[str, ...] | None = None
    token: str | None = None

    def allows(self, right: Right) -> bool:
        return RIGHTS.index(right) <= RIGHTS.index(self.right)

    def reaches(self, project: str) -> bool:
        """By the same rule by which two names are one project."""
        if self.projects is None:
            return True
        return text_key(project) in {text_key(name) for name in self.projects}

    def offers(self, toolset: str) -> bool:
        return self.toolsets is None or toolset in self.toolsets

    def within(self, project: str) -> Grant:
        """The same for one project alone; for none where that is out of reach."""
        projects = (project,) if self.reaches(project) else ()
        return msgspec.structs.replace(self, projects=projects)

    @property
    def within_reach(self) -> str:
        """A sentence for who asked for a project that is out of reach."""
        named = ", ".join(f"'{name}'" for name in self.projects or ())
        return f"Within reach here: {named or 'none'}."

    def starting_project(self, usual: str) -> str:
        """Which project is active at first: the usual one, else the only one there is, else none."""
        if self.projects is None or self.reaches(usual):
            return usual
        return self.projects[0] if len(self.projects) == 1 else ""


EVERYTHING = Grant()
