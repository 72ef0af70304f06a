"""What stands in the way of taking back a stretch of the log: the later entries that depend on it.

Rows tell most of it: one that was changed again, in a way that cannot be kept, blocks. What rows refer to
tells the rest. An entity is not taken from under its facts and relations, a relation does not come back to
a name that its entity no longer has, and a memory is not listed by what it was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

from memlog.canonical import canonical
from memlog.restoring import changed_at, restore
from memlog.state import (
    Entity,
    Memory,
    Relation,
    State,
    decode_entity,
    decode_memory,
    decode_observation,
    decode_relation,
    entity_key,
    name_key,
    observation_key,
    relation_key,
    touching_key,
)

TOUCHING_BYTES = len(touching_key(""))


class Stretch:
    """A stretch of the log that is to be taken back: the `rows` as they are to be, and what depends on it."""

    def __init__(self, first: int, last: int, later: Later) -> None:
        self._later, self._last = later, last
        self._now = now = later.state
        self._before, self._after = now.at(first - 1), now.at(last)
        self.rows, self._blocked = restore(first, last, now)

    def blockers(self) -> set[int]:
        """Positions of later entries that depend on what is to be undone."""
        found: set[int] = set()
        for key in self._blocked:
            found |= self._changes(key)
        for key, value in self.rows.items():
            table = key[:1]
            if value is None:
                if table == b"E":
                    found |= self._left_behind(key[1:].decode())
            elif table == b"E":
                found |= self._left_at_name(decode_entity(value))
            elif table == b"O":
                owner = b"E" + key[1:-8]
                if self._to_be(owner) is None:
                    found |= self._changes(owner)
            elif table == b"R":
                found |= self._moved(key)
                found |= self._renamed(decode_relation(value))
            elif table == b"M":
                found |= self._listed_otherwise(key)
        return found

    def at_odds(self) -> set[int]:
        """Positions of later entries that leave no place for what would stand again: they said the same fact
        since, or related a name to something that was to be a former name again.

        Apart from `blockers`: an undo that went ahead before such were refused stays as it is when a purge
        walks through the log.
        """
        found: set[int] = set()
        for key, value in self.rows.items():
            if key[:1] == b"O" and value is not None and self._now.row(key) is None:
                fact = decode_observation(value)
                said = self._now.saying(fact.entity_id, fact.content)
                found |= self._beside(observation_key(fact.entity_id, each.born) for each in said)
            elif key[:1] == b"E" and value is not None:
                for name in self._named_again(decode_entity(value)):
                    related = self._now.relations_touching(name)
                    found |= self._beside(relation_key(row.id) for row in related)
        return found

    def _to_be(self, key: bytes) -> bytes | None:
        return self.rows[key] if key in self.rows else self._now.row(key)

    def _changes(self, key: bytes) -> set[int]:
        return self._later.changes(key, self._last)

    def _beside(self, keys: Iterable[bytes]) -> set[int]:
        """Where other rows than those that are to be restored were changed later."""
        return {each for key in keys if key not in self.rows for each in self._changes(key)}

    def _left_behind(self, entity_id: str) -> set[int]:
        """Positions at which what belongs to an entity that is to go was added later."""
        entity = self._now.entity(entity_id)
        if entity is None:
            return set()
        facts = self._later.facts_born(entity_id, self._last)
        return facts | self._later.relations_born(entity.name, self._last)

    def _left_at_name(self, entity: Entity) -> set[int]:
        """Positions at which relations came to the name that an entity is to give up."""
        now = self._now.entity(entity.id)
        if now is None or canonical(now.name) == canonical(entity.name):
            return set()
        return self._beside(self._later.relations_come(now.name, self._last))

    def _named_again(self, entity: Entity) -> set[str]:
        """The former names of an entity, as it is to be, that it does not have now."""
        now = self._now.entity(entity.id)
        known = () if now is None else (now.name, *now.aliases)
        return set(map(canonical, entity.aliases)) - set(map(canonical, known))

    def _moved(self, key: bytes) -> set[int]:
        """Positions at which an end of a relation changed: what refers to both of its ends cannot be merged."""
        same = self._after.row(key) == self._now.row(key)
        return set() if same else self._changes(key)

    def _renamed(self, relation: Relation) -> set[int]:
        """Positions at which an end of a relation that is to stand again got another name."""
        found: set[int] = set()
        for end in (relation.source, relation.target):
            now, before = self._to_be(name_key(end)), self._before.row(name_key(end))
            for entity_id in {each for each in (now, before) if each is not None}:
                key = entity_key(entity_id.decode())
                row = self._to_be(key)
                if row is None or canonical(decode_entity(row).name) == canonical(end):
                    continue
                found |= self._changes(name_key(end)) | self._later.renames(key, self._last)
        return found

    def _listed_otherwise(self, key: bytes) -> set[int]:
        """Positions at which it changed again where a memory is listed: by which labels, and whether at all."""
        was, became, now = (
            None if row is None else _listing(decode_memory(row))
            for row in (each.row(key) for each in (self._before, self._after, self._now))
        )
        return self._changes(key) if became not in (was, now) else set()


def _listing(memory: Memory) -> tuple[str | None, int | None, tuple[str, ...]]:
    return memory.superseded_by, memory.deleted_us, memory.tags


class Later:
    """Where rows were changed, and what was born, beyond a position. One undo may go over many commands, and asks
    about the same rows for each: they are read once, and then followed through what the undo itself changes."""

    def __init__(self, state: State) -> None:
        self.state = state
        self._changes: dict[bytes, _Judged] = {}
        self._renames: dict[bytes, _Judged] = {}
        self._births: dict[bytes, dict[bytes, int]] = {}
        self._waited: dict[tuple[bytes, int], set[bytes]] = {}

    def changes(self, key: bytes, last: int) -> set[int]:
        if key not in self._changes:
            self._changes[key] = _Judged(self.made(key), partial(changed_at, key, state=self.state))
        return self._changes[key].beyond(last)

    def renames(self, key: bytes, last: int) -> set[int]:
        """Those at which the entity got another name."""
        if key not in self._renames:
            self._renames[key] = _Judged(self.made(key), partial(self._renamed_at, key))
        return self._renames[key].beyond(last)

    def facts_born(self, entity_id: str, last: int) -> set[int]:
        """Where the living facts of an entity were added."""
        prefix = observation_key(entity_id, 0)[:-8]
        if prefix not in self._births:
            rows = self.state.observations(entity_id)
            self._births[prefix] = {observation_key(entity_id, row.born): row.born for row in rows}
        return {born for born in self._births[prefix].values() if born > last}

    def relations_born(self, name: str, last: int) -> set[int]:
        """Where the living relations that touch a name were added."""
        return {born for born in self._touching(name).values() if born > last}

    def relations_come(self, name: str, last: int) -> list[bytes]:
        """The keys of those that touch a name now and did not at `last`."""
        known = touching_key(name), last
        if known not in self._waited:
            rows = self.state.at(last).relations_touching(name)
            self._waited[known] = {touching_key(name, row.id) for row in rows}
        waited = self._waited[known]
        return [
            relation_key(key[TOUCHING_BYTES:].decode())
            for key in self._touching(name)
            if key not in waited
        ]

    def _touching(self, name: str) -> dict[bytes, int]:
        prefix = touching_key(name)
        if prefix not in self._births:
            rows = self.state.relations_touching(name)
            self._births[prefix] = {touching_key(name, row.id): row.born for row in rows}
        return self._births[prefix]

    def note(self, position: int) -> None:
        """An entry was added at `position`, beyond all others."""
        for key in self.state.touched(position):
            for judged in (self._changes.get(key), self._renames.get(key)):
                if judged is not None:
                    judged.note(position)
            living = self._births.get(key[:-8] if key[:1] == b"O" else key[:TOUCHING_BYTES])
            if living is None:
                continue
            born = self._born(key)
            if born is None:
                living.pop(key, None)
            else:
                living[key] = born

    def _born(self, key: bytes) -> int | None:
        if self.state.row(key) is None:
            return None
        if key[:1] == b"O":
            return int.from_bytes(key[-8:], "big")
        row = self.state.relation(key[TOUCHING_BYTES:].decode())
        return None if row is None else row.born

    def made(self, key: bytes) -> set[int]:
        """The positions at which the row was made, changed or taken away."""
        kept = (each for each in self.state.versions(key) if each.key == key)
        return {position for each in kept for position in (each.since, each.until) if position}

    def _renamed_at(self, key: bytes, position: int) -> bool:
        return self._name_at(key, position - 1) != self._name_at(key, position)

    def _name_at(self, key: bytes, position: int) -> str | None:
        row = self.state.at(position).row(key)
        return None if row is None else decode_entity(row).name


class _Judged:
    """Those of some positions at which something is so; each is judged once, and only when it is asked for."""

    def __init__(self, positions: set[int], judge: Callable[[int], bool]) -> None:
        self._open = sorted(positions)
        self._judge = judge
        self._found: set[int] = set()

    def note(self, position: int) -> None:
        if self._judge(position):
            self._found.add(position)

    def beyond(self, last: int) -> set[int]:
        while self._open and self._open[-1] > last:
            self.note(self._open.pop())
        return {each for each in self._found if each > last}
