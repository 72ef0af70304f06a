"""What stands in the way of taking back a stretch of the log: the later entries that depend on it.

Rows tell most of it: one that was changed again, in a way that cannot be kept, blocks. What rows refer to
tells the rest. An entity is not taken from under its facts and relations, a relation does not come back to
a name that its entity no longer has, and a memory is not listed by what it was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from memlog.canonical import canonical
from memlog.decisions.memories import FACT
from memlog.decisions.restoring import changed_at, restore
from memlog.decisions.touching import row_positions
from memlog.rows import (
    Entity,
    Memory,
    Relation,
    decode_entity,
    decode_memory,
    decode_observation,
    decode_relation,
    entity_key,
    facts_key,
    memory_key,
    name_key,
    observation_key,
    relation_key,
    touching_key,
)
from memlog.state import State

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
        """Positions of later entries that leave no place for what would stand again: they said the same fact or
        saved the same record since, or related a name to something that was to be a former name again; and of those
        that brought a fact back to an entity that is to go.

        Apart from `blockers`: an undo that went ahead before such were refused stays as it is when a purge
        walks through the log.
        """
        found: set[int] = set()
        for key, value in self.rows.items():
            if key[:1] == b"O" and value is not None and self._now.row(key) is None:
                fact = decode_observation(value)
                said = self._now.saying(fact.entity_id, fact.content)
                found |= self._beside(observation_key(fact.entity_id, each.born) for each in said)
            elif key[:1] == b"E" and value is None:
                found |= self._beside(self._later.facts_come(key[1:].decode(), self._last))
            elif key[:1] == b"E" and value is not None:
                for name in self._named_again(decode_entity(value)):
                    related = self._now.relations_touching(name)
                    found |= self._beside(relation_key(row.id) for row in related)
            elif key[:1] == b"M" and value is not None:
                found |= self._saved_since(decode_memory(value))
        return found

    def loose_ends(self) -> set[int]:
        """Positions at which an end went away that a relation had which is to stand again, or at which one came back to
        an entity that is to go. Only a server on which every relation leads to entities asks for them; on others it
        waits for its end.
        """
        found: set[int] = set()
        for key, value in self.rows.items():
            if key[:1] == b"E" and value is None:
                entity = self._now.entity(key[1:].decode())
                assert entity is not None, "what is to go is there"
                found |= self._beside(self._later.relations_come(entity.name, self._last))
            if key[:1] == b"R" and value is not None and self._now.row(key) is None:
                relation = decode_relation(value)
                ends = map(name_key, (relation.source, relation.target))
                gone = [end for end in ends if self._to_be(end) is None and self._before.row(end)]
                found = found.union(*map(self._changes, gone))
        return found

    def relied_on(self) -> set[int]:
        """Positions of later entries that touched a memory that is to go. One may have left it as it was: the same
        record was saved again. Such counts only as long as it is not undone itself, which rows do not tell.
        """
        gone = [key for key, value in self.rows.items() if key[:1] == b"M" and value is None]
        return set().union(*(self._later.touches.beyond(key, self._last) for key in gone))

    def _to_be(self, key: bytes) -> bytes | None:
        return self.rows[key] if key in self.rows else self._now.row(key)

    def _changes(self, key: bytes) -> set[int]:
        return self._later.changes.beyond(key, self._last)

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

    def _saved_since(self, memory: Memory) -> set[int]:
        """Positions at which the same record as one that is to be listed again was saved or changed. Not of facts: each
        that is stored is a memory of its own."""
        now = self._now.memory(memory.id)
        listed_again = memory.active and not (now is not None and now.active)
        if not listed_again or memory.memory_type == FACT:
            return set()
        like = self._now.memory_like(memory.memory_type, memory.source, memory.content)
        return set() if like is None else self._beside([memory_key(like.id)])

    def _moved(self, key: bytes) -> set[int]:
        """Positions at which an end of a relation changed: what refers to both of its ends cannot be merged."""
        same = self._after.row(key) == self._now.row(key)
        return set() if same else self._changes(key)

    def _renamed(self, relation: Relation) -> set[int]:
        """Positions at which an end of a relation that is to stand again got another name; where nothing tells which
        did, all at which that name or the one that has it changed."""
        found: set[int] = set()
        for end in (relation.source, relation.target):
            now, before = self._to_be(name_key(end)), self._before.row(name_key(end))
            for entity_id in {each for each in (now, before) if each is not None}:
                key = entity_key(entity_id.decode())
                row = self._to_be(key)
                if row is None or canonical(decode_entity(row).name) == canonical(end):
                    continue
                named = self._changes(name_key(end)) | self._later.renames.beyond(key, self._last)
                found |= {each for each in named if self._is_former(end, each)} or named
        return found

    def _is_former(self, name: str, position: int) -> bool:
        """Whether the name was then a former one of an entity that had another."""
        return canonical(self._now.at(position).current_name(name)) != canonical(name)

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
        self.changes = _Where(changed_at, state)
        self.touches = _Where(lambda key, position, state: True, state)
        self.renames = _Where(_renamed_at, state)
        """Where an entity got another name, by the key of its row."""
        self._births: dict[bytes, dict[bytes, int]] = {}
        """Where what stands under a prefix of table O or T was added, by key."""
        self._past: dict[tuple[bytes, int], set[bytes]] = {}

    def facts_born(self, entity_id: str, last: int) -> set[int]:
        """Where the living facts of an entity were added."""
        living = self._living(facts_key(entity_id))
        return {born for born in living.values() if born > last}

    def relations_born(self, name: str, last: int) -> set[int]:
        """Where the living relations that touch a name were added."""
        return {born for born in self._living(touching_key(name)).values() if born > last}

    def facts_come(self, entity_id: str, last: int) -> list[bytes]:
        """The keys of the older living facts of an entity that it did not have at `last`."""
        come = self._come(facts_key(entity_id), last)
        return [key for key in come if int.from_bytes(key[-8:]) <= last]

    def relations_come(self, name: str, last: int) -> list[bytes]:
        """The keys of those that touch a name now and did not at `last`."""
        return [b"R" + key[TOUCHING_BYTES:] for key in self._come(touching_key(name), last)]

    def _come(self, prefix: bytes, last: int) -> list[bytes]:
        if (prefix, last) not in self._past:
            self._past[prefix, last] = set(self.state.at(last).keys(prefix))
        past = self._past[prefix, last]
        return [key for key in self._living(prefix) if key not in past]

    def note(self, position: int) -> None:
        """An entry was added at `position`, beyond all others."""
        for key in self.state.touched(position):
            self.changes.note(key, position)
            self.touches.note(key, position)
            self.renames.note(key, position)
            living = self._births.get(key[:-8] if key[:1] == b"O" else key[:TOUCHING_BYTES])
            if living is None:
                continue
            if self.state.row(key) is None:
                living.pop(key, None)
            else:
                living[key] = self._born(key)

    def _living(self, prefix: bytes) -> dict[bytes, int]:
        if prefix not in self._births:
            self._births[prefix] = {key: self._born(key) for key in self.state.keys(prefix)}
        return self._births[prefix]

    def _born(self, key: bytes) -> int:
        if key[:1] == b"O":
            return int.from_bytes(key[-8:])
        relation = self.state.relation(key[TOUCHING_BYTES:].decode())
        assert relation is not None, "what touches a name is a living relation"
        return relation.born


class _Where:
    """Where in the log something is so of a row; each position is judged once, and only when it is asked for."""

    def __init__(self, judge: Callable[[bytes, int, State], bool], state: State) -> None:
        self._judge, self._state = judge, state
        self._open: dict[bytes, list[int]] = {}
        self._found: dict[bytes, set[int]] = {}

    def beyond(self, key: bytes, last: int) -> set[int]:
        if key not in self._found:
            self._open[key], self._found[key] = sorted(row_positions(key, self._state)), set()
        unseen = self._open[key]
        while unseen and unseen[-1] > last:
            self.note(key, unseen.pop())
        return {each for each in self._found[key] if each > last}

    def note(self, key: bytes, position: int) -> None:
        """The row was touched there, beyond where it was before; of no concern where nobody asked for it."""
        if key in self._found and self._judge(key, position, self._state):
            self._found[key].add(position)


def _renamed_at(key: bytes, position: int, state: State) -> bool:
    rows = (state.at(each).row(key) for each in (position - 1, position))
    before, after = (None if row is None else decode_entity(row).name for row in rows)
    return before != after
