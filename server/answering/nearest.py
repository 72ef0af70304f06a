"""What is nearest to what was not found, where that is no error: a name, a fact, a relation or a thread that can be
passed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter

from memlog.closest import Names, did_you_mean
from memlog.commands import Edge
from memlog.decisions.facts import Facts
from memlog.decisions.names import named_by_id
from memlog.decisions.superseding import Superseded
from memlog.errors import StorageError, invalid_at, shorten
from memlog.rows import Relation
from memlog.state import State
from projections.analytics.tables import scope_of
from server.answering.cutting import together, within_budget
from server.opened import Opened

SUGGESTED_FOR_MAX = 10
SUGGESTIONS_CHARACTERS = 4_000
FACT_CHARACTERS_MAX = 300


def deletion(things: str, deleted: int, missing: int) -> str:
    """What a deletion did, in the words of the reference server, which says them also where nothing was found."""
    if deleted or not missing:
        return f"{things.capitalize()} deleted successfully"
    return f"No {things} deleted: none was found"


def closest_names(missing: Sequence[str], state: State) -> dict[str, list[str]]:
    """For names that no entity has, those of the entities nearest to each."""
    if not missing:
        return {}
    names = Names(state.names())
    meant = ((name, named_by_id(name, state)) for name in missing[:SUGGESTED_FOR_MAX])
    return _told((name, names.closest(name) if by_id is None else [by_id]) for name, by_id in meant)


def closest_facts(
    missing: Iterable[tuple[str, Sequence[str]]], state: State
) -> dict[str, list[str]]:
    """For texts, by the name of the entity of which they are no facts, what they were superseded by, else the nearest
    that are facts, long ones by id; for the name of an entity that is not there, the nearest names."""
    nobodies: list[str] = []
    near: list[tuple[str, list[str]]] = []
    superseded = Superseded(state)
    for name, texts in missing:
        entity_id = state.entity_id_of(name)
        if entity_id is None:
            nobodies.append(name)
            continue
        wanted = texts[: SUGGESTED_FOR_MAX - len(near)]
        if wanted:
            said = {row.content: row.id for row in state.observations(entity_id)}
            names, facts = Names(said), Facts(state, entity_id)
            for text in wanted:
                newest = [row.content for row in superseded.newest(text, facts)]
                near.append((shorten(text), _by_id(newest or names.closest(text), said)))
    return {**closest_names(nobodies, state), **_told(near)}


def _by_id(texts: Iterable[str], ids: Mapping[str, str]) -> list[str]:
    return [text if len(text) <= FACT_CHARACTERS_MAX else ids[text] for text in texts]


def closest_relations(missing: Sequence[Edge], state: State) -> list[Relation]:
    """The relations nearest to some that are not there, of those that have an end with one of them in common."""
    found: dict[str, Relation] = {}
    touching: dict[str, tuple[dict[str, Relation], Names]] = {}
    for item in missing[:SUGGESTED_FOR_MAX]:
        wanted = f"{item.source} {item.relation_type} {item.target}"
        near: dict[str, Relation] = {}
        for name in (item.source, item.target):
            if name not in touching:
                rows = state.relations_touching(state.current_name(name))
                said = {row.text: row for row in rows}
                touching[name] = said, Names(said)
            said, names = touching[name]
            near.update((text, said[text]) for text in names.closest(wanted))
        best = [near[text] for text in Names(near).closest(wanted)]
        found.update((row.id, row) for row in best)
    return list(within_budget(found.values(), most=SUGGESTIONS_CHARACTERS, told=attrgetter("text")))


def silent_thread(thread: str | None, opened: Opened) -> str | None:
    """That nothing was ever written under this threadId, and which was perhaps meant; None where something was, or
    where that cannot be counted now: the answer is right without it."""
    if thread is None:
        return None
    try:
        with opened.projections.analytics().read() as counted:
            if counted.thread(scope_of(thread)) is not None:
                return None
            near = did_you_mean(thread, (row.thread for row in counted.threads()))
    except StorageError:
        return None
    return together(f"Nothing was written under the threadId '{shorten(thread)}'.", near)


def require_thread(thread: str | None, opened: Opened) -> None:
    """Before an undo: it would look through all of the log for one that never wrote, and nobody could write
    meanwhile. Raises InvalidParameter."""
    silent = silent_thread(thread, opened)
    if silent is not None:
        raise invalid_at("threadId", silent, "Call list_threads to see all there are.", thread)


def _told(near: Iterable[tuple[str, list[str]]]) -> dict[str, list[str]]:
    return dict(within_budget((each for each in near if each[1]), most=SUGGESTIONS_CHARACTERS))
