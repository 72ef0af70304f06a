"""Advice that can be followed: a sentence that names a tool or a resource which is not offered here is left out, of
what is advised in an error or a notice and of what describes the other tools."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache

from memlog.settings import TOOLSETS
from server.addresses import FORMS
from server.registry import Tool, tools
from server.rights.grants import Grant
from server.session import Session

_SENTENCES = re.compile(r"(?<=[.!?]) (?=[A-Z])")
_DESCRIBING = re.compile(r"(?<=[.!?]) (?=[A-Za-z])")
"""In a description a sentence may begin with the name of a tool."""

_NOT_TO_SWITCH = (
    ("or switch_project to another one.", 'or name another one in each call: {"project": "…"}.'),
    ("Call switch_project to use it, or", "Name it as `project` in each call to use it, or"),
)
"""What advises to switch to another project, and what to do instead where no session remembers one."""


def followable(session: Session, advice: str | None) -> str | None:
    """What is left of it for this client; None where nothing is."""
    if advice is None:
        return None
    if not session.lasting:
        for told, instead in _NOT_TO_SWITCH:
            advice = advice.replace(told, instead)
    settings = session.service.settings
    lacking = _lacking(settings.toolsets, settings.read_only, session.grant)
    if lacking is None:
        return advice
    left = [each for each in _SENTENCES.split(advice) if not lacking.search(each)]
    return " ".join(left) or None


def descriptions(offered: Mapping[str, Tool]) -> Iterator[str]:
    """Those of the tools, for who is offered these and no others; line by line as they were written."""
    lacking = _naming_others(offered)
    for tool in offered.values():
        if lacking is None:
            yield tool.description
            continue
        lines = (
            " ".join(each for each in _DESCRIBING.split(line) if not lacking.search(each))
            for line in tool.description.split("\n")
        )
        yield "\n".join(lines)


@lru_cache(64)
def _lacking(toolsets: tuple[str, ...], read_only: bool, grant: Grant) -> re.Pattern[str] | None:
    return _naming_others(tools(toolsets, read_only=read_only, grant=grant))


def _naming_others(offered: Mapping[str, Tool]) -> re.Pattern[str] | None:
    """Finds a tool that is not offered, by its name where that is no word, else by its name with arguments; and a
    resource that is not, by its place."""
    lacking = sorted(tools(TOOLSETS).keys() - offered.keys())
    names = [name if "_" in name else f"{name} {{" for name in lacking]
    toolsets = {tool.toolset for tool in offered.values()}
    names += [form.place for form in FORMS.values() if form.toolset not in toolsets]
    return re.compile("|".join(rf"\b{re.escape(name)}" for name in names)) if names else None
