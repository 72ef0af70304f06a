"""What a decision needs from outside: fresh ids, the settings of this server, and the log."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from memlog.codec import Entry
from memlog.commands import MEMORY_CONTENT_CHARACTERS_MAX, TAGS_MAX, IfExists
from memlog.ids import Prefix, new_id


class Context(msgspec.Struct, frozen=True):
    new_id: Callable[[Prefix], str] = new_id
    if_exists: IfExists = "replace"
    strict_relations: bool = False
    content_characters_max: int = MEMORY_CONTENT_CHARACTERS_MAX
    tags_max: int = TAGS_MAX
    entry_at: Callable[[int], Entry | None] = lambda position: None
    """The log, for decisions about it: the entry at a position."""
    head: Callable[[], int] = lambda: 0
