"""Invented memories, the same in every run: entities with short facts, and queries made of their words.

The most frequent words are English, the rest is made of syllables, and how often each is drawn falls
with its rank (Zipf). So posting lists, stop words and word pieces are about as long and as many as
those of real notes, and nobody's notes are needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import accumulate
from random import Random
from typing import Any

import click
import msgspec

from memlog.commands import CreateMemory, NewEntity, NewRelation

SEED = "memlog"
VOCABULARY_WORDS = 6_000
SHORT_WORDS = 800
FACT_WORDS_MIN, FACT_WORDS_MAX = 8, 12
FACTS_PER_ENTITY = 2
RECORDS_FROM = 10**9
"""Facts of records are those of entities with numbers that nothing else comes near."""

QUERY_WORDS = 3
QUERY_WORD_CHARACTERS_MIN = 4
DRAWS_A_QUERY = 100

_COMMON = """
the to a and of in for with on is her his at from that has after new by they it was as every works
about likes before an not she he who their team friend when project lives wants year also house more
family city time prefers week old plans first school music book small started bought moved weekend
office meeting garden coffee morning summer would brother sister uses often learning dog trip since
until together visited dinner loves job company market water never another called early evening
favorite group health paper still train travel winter study report server library window phone car
bridge letter river doctor street island design language market mountain history kitchen cooking
painting running reading building teaching writing swimming release deadline budget customer
"""
_ONSETS = (
    "b",
    "br",
    "c",
    "d",
    "f",
    "g",
    "gr",
    "h",
    "k",
    "l",
    "m",
    "n",
    "p",
    "r",
    "s",
    "st",
    "t",
    "v",
    "z",
)
_VOWELS = ("a", "e", "i", "o", "u", "ai", "ea", "io")
_CODAS = ("", "", "", "l", "n", "r", "s", "t")
_TYPES = ("person", "organization", "project", "place", "event", "tool", "concept", "document")
_RECORD_TYPES = ("decision", "note", "runbook", "todo")
_TAGS = tuple(f"topic:{number}" for number in range(20))
_RELATIONS = ("knows", "works_for", "depends_on", "located_in", "mentions")


class Entity(msgspec.Struct, frozen=True):
    """An entity as the corpus draws it."""

    name: str
    entity_type: str
    observations: tuple[str, ...]

    def as_command(self) -> NewEntity:
        return NewEntity(
            name=self.name, entity_type=self.entity_type, observations=self.observations
        )

    def as_json(self) -> dict[str, Any]:
        """As a client sends it."""
        told: dict[str, Any] = msgspec.to_builtins(self.as_command())
        return told


class Record(msgspec.Struct, frozen=True):
    """A record as the corpus draws it."""

    record_type: str
    tag: str
    summary: str

    def as_command(self) -> CreateMemory:
        return CreateMemory(
            memory_type=self.record_type,
            content={"summary": self.summary},
            source="bench",
            confidence=1.0,
            tags=[self.tag],
        )


@cache
def vocabulary() -> tuple[str, ...]:
    """Distinct words, the most frequent first."""
    draw = Random(SEED)
    words = dict.fromkeys(_COMMON.split())
    while len(words) < VOCABULARY_WORDS:
        count = 1 if len(words) < SHORT_WORDS else 2  # frequent words are short
        syllables = [draw.choice(_ONSETS) + draw.choice(_VOWELS) for _ in range(count)]
        words["".join(syllables) + draw.choice(_CODAS)] = None
    return tuple(words)


@cache
def _weights() -> tuple[float, ...]:
    """Cumulative, of `vocabulary()`: one over the rank, flattened at the top as in real text."""
    return tuple(accumulate(1 / (rank + 2.7) for rank in range(1, VOCABULARY_WORDS + 1)))


def entity(number: int) -> Entity:
    """The entity with this number, 0 and up; no two have the same name."""
    draw = Random(f"{SEED} {number}")
    facts = tuple(_fact(draw) for _ in range(FACTS_PER_ENTITY))
    return Entity(_name(number), draw.choice(_TYPES), facts)


def entities(start: int, count: int) -> list[Entity]:
    return [entity(number) for number in range(start, start + count)]


def records(count: int) -> list[Record]:
    draw = Random(f"{SEED} records")
    return [
        Record(draw.choice(_RECORD_TYPES), draw.choice(_TAGS), fact)
        for fact in (entity(RECORDS_FROM + number).observations[0] for number in range(count))
    ]


def relations(known: Sequence[Entity]) -> list[NewRelation]:
    """One from each entity, to one not far before it."""
    draw = Random(f"{SEED} relations")
    return [
        NewRelation(
            source=source.name,
            target=known[max(0, place - draw.randint(1, 100))].name,
            relation_type=draw.choice(_RELATIONS),
        )
        for place, source in enumerate(known)
    ]


def _name(number: int) -> str:
    """Two invented words; the second moves on by a step prime to their number with every lap."""
    words = vocabulary()[len(set(_COMMON.split())) :]
    lap, first = divmod(number, len(words))
    second = (31 * lap + 17 * first + 1) % len(words)
    return f"{words[first].title()} {words[second].title()}"


def _fact(draw: Random) -> str:
    count = draw.randint(FACT_WORDS_MIN, FACT_WORDS_MAX)
    words = draw.choices(vocabulary(), cum_weights=_weights(), k=count)
    return " ".join(words).capitalize()


def queries(known: Sequence[Entity], count: int) -> list[str]:
    """Distinct queries, each of words from one stored fact."""
    facts = [fact for each in known for fact in each.observations]
    return [query for query, _ in queries_of(facts, count)]


def queries_of(facts: Sequence[str], count: int) -> list[tuple[str, int]]:
    """Distinct queries, each with the number of the fact whose words it has. Raises UsageError where the facts
    have too few words for so many."""
    draw, found = Random(f"{SEED} queries"), dict[str, int]()
    for _ in range(DRAWS_A_QUERY * count):
        number = draw.randrange(len(facts))
        words = facts[number].lower().split()
        telling = list(dict.fromkeys(w for w in words if len(w) >= QUERY_WORD_CHARACTERS_MIN))
        if len(telling) >= QUERY_WORDS:
            found[" ".join(draw.sample(telling, QUERY_WORDS))] = number
        if len(found) == count:
            return list(found.items())
    raise click.UsageError(
        f"{len(facts)} facts have too few words for {count} queries that differ: choose a larger --size"
    )
