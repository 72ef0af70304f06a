"""The living facts of one entity, as a command names them: by id or by exact text.

Looked up one by one, so that an entity of thousands of facts costs a command no more than one of few.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from memlog.rows import Observation
from memlog.state import State

ID_MAX = 64
"""No id has more characters; and a key of LMDB no more than 511 bytes."""


class Facts(NamedTuple):
    state: State
    entity_id: str

    def contents(self) -> Iterator[str]:
        return (row.content for row in self.state.said(self.entity_id))

    def saying(self, text: str) -> list[Observation]:
        """Those that say exactly this: one, but for what old merges left."""
        return self.state.saying(self.entity_id, text)

    def meant_by(self, wanted: str) -> list[Observation]:
        """The one whose id is `wanted`, and those whose exact text it is."""
        said = self.saying(wanted)
        named = self.state.observation(wanted) if len(wanted) <= ID_MAX else None
        if named is None or not named.living or named.entity_id != self.entity_id:
            return said
        return said if named in said else [named, *said]

    def find(self, wanted: str) -> Observation | None:
        """The first of these."""
        return next(iter(self.meant_by(wanted)), None)
