"""What there is to tell about a query: everything found and what belongs to it, as items that rank.

A hit of the search ranks by its score, and by those of its neighbours: what was written down right
before or after it in the same conversation, which often holds the answer where the hit holds the
question. So neighbours that were not hit come in as well.

A relation is hit by its type. Those of an entity that was found come in besides: each has a share of its
entity's best score, a large share where its words are among those of the query, and less with each relation of the
same entity that comes before it, so that a hub does not fill the answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from memlog import events
from memlog.canonical import canonical, text_of
from memlog.codec import Entry
from memlog.decisions.memories import FACT
from memlog.errors import DamagedLog
from memlog.rows import Entity, Memory, Observation, Relation
from memlog.state import State
from projections.search.searcher import Hit
from server.answering.packing import (
    BYTES_PER_TOKEN,
    HEADING_BYTES_MAX,
    Item,
    clipped,
    one_line,
    shortened,
    size,
)

MEMORIES = "Memories"
RELATIONS = "Relations"
RELATION_SHARE, NAMED_RELATION_SHARE = 0.6, 1.0
NEIGHBOUR_SHARES = {1: 0.15, 2: 0.06}
"""Of a hit's score, for what is so many positions away. Measured by `bench.recalling`."""
NEIGHBOURS_MAX = 10
"""How far from a hit what is left of the budget is filled from, in positions."""
APART_US_MAX = 3_600_000_000
READ_AHEAD = 2
"""How many budgets full of hits have their neighbours looked at."""


class Recollection:
    """The items for one query, over one state of the project that comes with its log; of hits of one `thread`, if there
    is one, with nothing beside them that another wrote, nor what was there by the position `since`."""

    def __init__(
        self,
        state: State,
        query: str,
        budget_tokens: int,
        thread: str | None,
        since: int,
    ) -> None:
        self._state = state
        self._words = _terms(query)
        self._budget_tokens = budget_tokens
        self._thread = thread
        self._since = since
        self._room = budget_tokens * BYTES_PER_TOKEN
        self._entities: dict[str, Entity | None] = {}
        self._entries: dict[int, Entry | None] = {}

    def items(self, hits: Sequence[Hit]) -> list[Item]:
        """Best first. The state has the last word on what is there still."""
        found: list[tuple[float, int, Item]] = []
        best: dict[str, float] = {}
        for hit in hits:
            if thing := self._thing(hit.ref, hit.kind):
                item, born = thing
                found.append((hit.score, born, item))
                if hit.kind != "relation" and item.of_entity:
                    best.setdefault(item.group, hit.score)
        births = {born for _, born, _ in found}
        sources = dict(self._sources(found))
        near = self._near(sources)
        ranked = [(score + near.get(born, 0.0), item) for score, born, item in found]
        for entity_id, score in best.items():
            ranked += self._relations(self._entity(entity_id), score)
        for born, share in near.items():
            extra = None if born in births else self._extra(born)
            if extra is not None:
                ranked.append((share, extra))
        ranked.sort(key=lambda each: (-each[0], each[1].ref))
        items = [item for _, item in ranked]
        return [*items, *self._far(sources, self._room - sum(size(item.line) for item in items))]

    def _sources(self, found: Sequence[tuple[float, int, Item]]) -> Iterator[tuple[int, float]]:
        """When the hits that may be told came into being, and their scores; not those far behind."""
        spent = 0
        for score, born, item in found:
            if spent > READ_AHEAD * self._room:
                return
            spent += size(item.line)
            yield born, score

    def _thing(self, ref: str, kind: str) -> tuple[Item, int] | None:
        """What is there under an id, and the position at which it came into being."""
        if kind == "memory":
            memory = self._state.memory(ref)
            return (self._memory(memory), memory.born) if memory and memory.active else None
        if kind == "observation":
            row = self._state.observation(ref)
            if row is None or not row.living:
                return None
            entity = self._entity(row.entity_id)
            return (self._fact(row, entity), row.born) if entity else None
        if kind == "relation":
            relation = self._state.relation(ref)
            return (self._found(relation), relation.born) if relation else None
        entity = self._entity(ref)
        return (Item("entity", ref, ref, _heading(entity)), entity.born) if entity else None

    def _entity(self, entity_id: str) -> Entity | None:
        if entity_id not in self._entities:
            self._entities[entity_id] = self._state.entity(entity_id)
        return self._entities[entity_id]

    def _fact(self, row: Observation, entity: Entity) -> Item:
        whole = one_line(row.content)
        line = clipped(whole, self._budget_tokens)
        heading, time_us = _heading(entity), row.created_us
        return Item("observation", row.id, entity.id, heading, line, whole=whole, time_us=time_us)

    def _memory(self, row: Memory) -> Item:
        kind = "" if row.memory_type == FACT else f"{row.memory_type}: "
        whole = one_line(kind + text_of(row.content))
        line = clipped(whole, self._budget_tokens)
        return Item("memory", row.id, MEMORIES, MEMORIES, line, whole=whole, time_us=row.created_us)

    # -- neighbours

    def _near(self, sources: Mapping[int, float]) -> dict[int, float]:
        """What each position gets of the scores of hits right beside it."""
        shares: dict[int, float] = {}
        for distance, share in NEIGHBOUR_SHARES.items():
            for born, score in sources.items():
                for position in self._beside(born, distance):
                    shares[position] = shares.get(position, 0.0) + share * score
        return shares

    def _far(self, sources: Iterable[int], room: int) -> Iterator[Item]:
        """What came into being farther from the hits, the nearest first, while there may be room."""
        births = list(sources)
        for distance in range(max(NEIGHBOUR_SHARES) + 1, NEIGHBOURS_MAX + 1):
            for born in births:
                for position in self._beside(born, distance):
                    if room < 0:
                        return
                    item = self._extra(position)
                    if item is not None:
                        room -= size(item.line)
                        yield item

    def _beside(self, born: int, distance: int) -> Iterator[int]:
        """The positions so far before and after, where they are of the same conversation."""
        for position in (born - distance, born + distance):
            if _together(self._entry(born), self._entry(position)):
                yield position

    def _entry(self, position: int) -> Entry | None:
        if not self._since < position <= self._state.position:
            return None
        if position not in self._entries:
            try:
                self._entries[position] = self._state.entry_at(position)
            except DamagedLog:  # it lends nothing then; the damage is told beside the answer
                self._entries[position] = None
        return self._entries[position]

    def _extra(self, position: int) -> Item | None:
        """The fact or memory that came into being at a position, if it is there still."""
        entry = self._entry(position)
        match entry.event if entry else None:
            case events.ObservationAdded() | events.ObservationSuperseded() as event:
                thing = self._thing(event.observation_id, "observation")
            case events.MemoryStored() as event:
                thing = self._thing(event.memory_id, "memory")
            case _:
                return None
        return msgspec.structs.replace(thing[0], extra=True) if thing else None

    # -- relations

    def _relations(self, entity: Entity | None, best: float) -> list[tuple[float, Item]]:
        if entity is None:
            return []
        rows = self._state.relations_touching(entity.name)
        rows = [
            row for row in rows if self._thread in (None, row.thread) and row.born > self._since
        ]
        named = self._named(rows, entity)
        name = canonical(entity.name)
        ranked = sorted(rows, key=lambda row: (row.id not in named, -row.born))
        found = []
        for place, row in enumerate(ranked):
            share = NAMED_RELATION_SHARE if row.id in named else RELATION_SHARE
            item = self._relation(row, entity, leaves=canonical(row.source) == name)
            found.append((best * share / (1 + place) ** 0.5, item))
        return found

    def _found(self, row: Relation) -> Item:
        """A relation that was hit, at one of its ends that lives, or beneath its own words."""
        for name in (row.source, row.target):
            if (entity := self._state.entity_named(name)) is not None:
                leaves = self._state.entity_id_of(row.source) == entity.id
                return self._relation(row, entity, leaves=leaves)
        said = clipped(row.text, self._budget_tokens)
        return Item("relation", row.id, RELATIONS, RELATIONS, said, time_us=row.created_us)

    def _named(self, rows: Iterable[Relation], entity: Entity) -> set[str]:
        """The ids of those of which the query has a word, the name of `entity` aside."""
        asked = self._words - _terms(entity.name)
        if not asked:
            return set()
        said = ((row.id, f"{row.relation_type} {row.source} {row.target}") for row in rows)
        return {relation_id for relation_id, text in said if asked & _terms(text)}

    def _relation(self, row: Relation, entity: Entity, *, leaves: bool) -> Item:
        # Read without its arrow, each still says who does what to whom.
        said = (
            f"→ {row.relation_type} {row.target}"
            if leaves
            else f"← {row.source} {row.relation_type}"
        )
        line = clipped(said, self._budget_tokens)
        heading = _heading(entity)
        return Item("relation", row.id, entity.id, heading, line, time_us=row.created_us)


def _heading(entity: Entity) -> str:
    return shortened(f"{entity.name} ({entity.entity_type})", HEADING_BYTES_MAX)


def _together(one: Entry | None, other: Entry | None) -> bool:
    """Whether two entries are of one conversation."""
    if one is None or other is None or one.thread != other.thread:
        return False
    return abs(one.time_us - other.time_us) <= APART_US_MAX


def _terms(text: str) -> frozenset[str]:
    """The words that say something, stemmed as the text index does."""
    from projections.text.analysis import STOP_WORDS, normalise, spaced, stems, words

    telling = (word for word in words(spaced(normalise(text))) if word not in STOP_WORDS)
    return frozenset(stems(" ".join(telling)))
