"""LoCoMo (github.com/snap-research/locomo, data/locomo10.json, or conversations out of it): read and stored.

Long conversations between two people in sessions on different days, and questions about them, each with
the turns that answer it as its evidence. Questions of category 5 have no answer and are left out, and so
is evidence that names no turn. The data is for measuring only (CC BY-NC 4.0) and no part of this project.

Its authors had the facts of each session noted down as well, each about one of the two and with the turns that
tell it: what an agent stores that keeps facts and no transcript. A conversation is given either way, or as one long
text for each session, as whoever keeps minutes has it.

`store` keeps a turn as an observation of the entity that spoke, in the thread of its session, each
conversation in a project of its own: what a memory server's nine tools offer, and so what other servers
can be measured with too. What was said belongs to someone, and several things said in one session belong
together; a memory without entity would lose the first. Behind the text stands the day on which it was said, as
whoever stores a transcript afterwards would have to write it down: commands take no time, and of "I lost my job
yesterday" nobody could tell when that was.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Literal

import click
import msgspec

from bench.world import settings_over
from memlog.commands import (
    CONTENT_CHARACTERS_MAX,
    AddObservations,
    CreateEntities,
    EntityObservations,
    NewEntity,
)
from memlog.projects.project import Origin, Outcome
from server.answering.packing import one_line
from server.service import Service

CATEGORIES = {1: "multi-hop", 2: "temporal", 3: "open-domain", 4: "single-hop"}
"""As the paper of the data names them (Maharana et al. 2024)."""

UNANSWERABLE = 5
_TURN = re.compile(r"D\d+:\d+")


class Turn(msgspec.Struct, frozen=True):
    """What one of them said in a session, and the day; or what was noted down about one; or all of a session."""

    session: str
    speaker: str
    text: str


class Question(msgspec.Struct, frozen=True):
    """`evidence` are ids of turns, or of what is stored in their place, at least one."""

    text: str
    evidence: tuple[str, ...]
    category: int


class Conversation(msgspec.Struct, frozen=True):
    """Turns by id, in the order in which they were said."""

    name: str
    turns: dict[str, Turn]
    questions: list[Question]


Told = Literal["turns", "facts", "sessions"]
"""In what a conversation is stored: the evidence of a question is what has the turns that are its evidence."""


def conversations(path: Path, told_in: Told = "turns") -> Iterator[Conversation]:
    """As they were said; or in the `facts` that were noted down, without the questions whose evidence nobody noted; or
    in one text for each of the `sessions`, as much of it as an observation holds. Raises UsageError."""
    try:
        yield from _read(path, told_in)
    except (ValueError, LookupError, TypeError, AttributeError) as problem:
        raise click.UsageError(f"{path} is no file of LoCoMo: {problem!r}") from problem


def _read(path: Path, told_in: Told) -> Iterator[Conversation]:
    samples = json.loads(path.read_text())
    if not samples:
        raise ValueError("it holds no conversation")
    for sample in samples:
        told = sample["conversation"]
        turns = {
            turn["dia_id"]: Turn(session, turn["speaker"], _dated(turn["text"], session, told))
            for session, said in told.items()
            if isinstance(said, list)
            for turn in said
            if turn["text"].strip()
        }
        questions = [
            Question(each["question"], tuple(evidence), each["category"])
            for each in sample["qa"]
            if each["category"] != UNANSWERABLE
            and (evidence := dict.fromkeys(turn for turn in each["evidence"] if turn in turns))
        ]
        said = Conversation(sample["sample_id"], turns, questions)
        match told_in:
            case "turns":
                yield said
            case "facts":
                yield _noted(said, sample["observation"], told)
            case "sessions":
                yield _in_sessions(said)


def _dated(text: str, session: str, told: dict[str, Any]) -> str:
    """The text, and behind it the day of the session where the data tells it (`1:56 pm on 8 May, 2023`)."""
    _, on, day = told.get(f"{session}_date_time", "").partition(" on ")
    return f"{one_line(text)} ({day})" if on else one_line(text)


def _noted(
    said: Conversation, sessions: dict[str, dict[str, list[Any]]], told: dict[str, Any]
) -> Conversation:
    """`sessions` are those of the data: `session_1_observation`, and in it for each speaker pairs of a fact and a turn,
    or several turns. `told` is its `conversation`."""
    facts: dict[str, Turn] = {}
    telling = defaultdict[str, list[str]](list)
    for name, speakers in sessions.items():
        session = name.removesuffix("_observation")
        for speaker, notes in speakers.items():
            for text, turns in notes:
                fact = f"{session}:{len(facts)}"
                facts[fact] = Turn(session, speaker, _dated(text, session, told))
                for turn in _TURN.findall(str(turns)):
                    telling[turn].append(fact)
    questions = [
        Question(each.text, tuple(evidence), each.category)
        for each in said.questions
        if (evidence := dict.fromkeys(fact for turn in each.evidence for fact in telling[turn]))
    ]
    return Conversation(said.name, facts, questions)


def _in_sessions(said: Conversation) -> Conversation:
    lines = defaultdict[str, list[str]](list)
    for turn in said.turns.values():
        lines[turn.session].append(f"{turn.speaker}: {turn.text}")
    whole = {
        session: Turn(session, "Minutes", "\n".join(each)[:CONTENT_CHARACTERS_MAX])
        for session, each in lines.items()
    }
    questions = [
        msgspec.structs.replace(
            each, evidence=tuple(dict.fromkeys(said.turns[turn].session for turn in each.evidence))
        )
        for each in said.questions
    ]
    return Conversation(said.name, whole, questions)


@contextmanager
def empty_service(*, model: bool) -> Iterator[Service]:
    """Over a temporary folder."""
    with (
        tempfile.TemporaryDirectory(prefix="memlog-locomo-") as folder,
        closing(Service(settings_over(Path(folder), model=model))) as service,
    ):
        yield service


def store(service: Service, conversation: Conversation) -> dict[str, str]:
    """Stores one conversation, indexed when this returns; the id of the observation of each turn.

    A turn that a speaker says word for word again is not stored twice: both turns are one observation.
    """
    service.store.create(conversation.name)
    opened = service.open(conversation.name)
    speakers = dict.fromkeys(turn.speaker for turn in conversation.turns.values())
    entities = [NewEntity(name=speaker, entity_type="person") for speaker in speakers]
    service.execute(opened, CreateEntities(entities=entities), _nothing)
    for session in dict.fromkeys(turn.session for turn in conversation.turns.values()):
        said = [
            EntityObservations(entity_name=turn.speaker, contents=(turn.text,))
            for turn in conversation.turns.values()
            if turn.session == session
        ]
        command = AddObservations(observations=said)
        service.execute(opened, command, _nothing, Origin(thread=session))
    opened.projections.caught_up("text")
    if not service.embeddings.switched_off:
        opened.projections.caught_up("vectors")
    with opened.project.read() as state:
        stored = {
            (entity.name, row.content): row.id
            for entity in state.entities()
            for row in state.observations(entity.id)
        }
    return {turn: stored[said.speaker, said.text] for turn, said in conversation.turns.items()}


def _nothing(outcome: Outcome) -> None:
    return None
