"""Advice that can be followed: a sentence that names a tool which is not offered here is left out."""

from __future__ import annotations

import re
from functools import lru_cache

from memlog.settings import TOOLSETS
from server.grants import Grant
from server.registry import tools
from server.session import Session

_SENTENCES = re.compile(r"(?<=[.!?]) (?=[A-Z])")


def followable(session: Session, advice: str | None) -> str | None:
    """What is left of it for this client; None where nothing is."""
    settings = session.service.settings
    lacking = _lacking(settings.toolsets, settings.read_only, session.grant)
    if advice is None or lacking is None:
        return advice
    told = [each for each in _SENTENCES.split(advice) if not lacking.search(each)]
    return " ".join(told) or None


@lru_cache(64)
def _lacking(toolsets: tuple[str, ...], read_only: bool, grant: Grant) -> re.Pattern[str] | None:
    """Finds a tool that is not offered: by its name where that is no word, else by its name with arguments."""
    offered = tools(toolsets, read_only=read_only, grant=grant)
    names = [
        name if "_" in name else f"{name} {{" for name in tools(TOOLSETS) if name not in offered
    ]
    return re.compile("|".join(rf"\b{re.escape(name)}" for name in names)) if names else None
