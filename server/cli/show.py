"""`memlog show`: an entity as it is or was, and who brought each part of it."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence

import click

from memlog.decisions.names import required_entity
from memlog.rows import Entity, Observation, Relation
from memlog.settings import Settings
from server.answering.moments import position_of
from server.answering.portions import view_entity
from server.answering.views import EntityView, Provenance, RelationView, view_relation
from server.cli.looking import open_to_read, service_to_read
from server.cli.options import ENTITY, json_option, project_option
from server.cli.printing import beneath, one_line, open_console, print_json
from server.cli.running import with_settings


@click.command("show")
@click.argument("name", type=ENTITY)
@click.option("--as-of", metavar="WHEN", help="As of this position or ISO time.")
@project_option
@json_option
@with_settings
def show_command(
    settings: Settings, name: str, as_of: str | None, project: str | None, as_json: bool
) -> None:
    """Show an entity: its facts, relations and former names, and where each came from.

    A part whose entry in the log is damaged is shown all the same, and the command ends with 1.

    \b
    Example: memlog show Jon
    Example: memlog show Jon --as-of 2026-11-20
    """
    with service_to_read(settings, project) as service:
        _, opened = open_to_read(service, project)
        told = opened.project.damage
        at = position_of(as_of, opened.project, "--as-of")
        with opened.project.read(at) as state:
            row = required_entity(name, "name", state, at=at)
            entity = view_entity(row, state, blamed=state)
            facts, touching = state.observations(row.id), state.relations_touching(row.name)
            relations = [view_relation(each, blamed=state) for each in touching]
        brought = _brought(entity, relations)
        parts: list[Entity | Observation | Relation] = [row, *facts, *touching]
        damaged = [each for each in parts if each.id not in brought]
        found = opened.project.damage
    if as_json:
        lacking = [{"id": each.id, "position": each.born} for each in damaged]
        shown = {"entity": entity, "relations": relations}
        print_json({**shown, "damaged": lacking} if lacking else shown)
    else:
        sources = {each.id: f"position {each.born}, which is damaged" for each in damaged}
        _print(entity, facts, relations, sources | {each: _from(brought[each]) for each in brought})
    if damaged:
        if told is None and found is not None:  # nobody has said so yet
            raise found
        sys.exit(1)


def _brought(entity: EntityView, relations: Sequence[RelationView]) -> dict[str, Provenance]:
    """Who brought each part, by its id. Those are missing whose entry is damaged."""
    sources = [*(entity.provenance or ()), *(each.provenance for each in relations)]
    return {each.id: each for each in sources if each is not None}


def _print(
    entity: EntityView,
    facts: Sequence[Observation],
    relations: Sequence[RelationView],
    sources: Mapping[str, str],
) -> None:
    from rich.text import Text

    console = open_console()

    def line(said: Text, part: str) -> None:
        console.print(said.append(f"  ({sources[part]})", "dim"))

    kind = f" ({one_line(entity.entity_type)})"
    line(Text(one_line(entity.name), "bold").append(kind, "default"), entity.id)
    if entity.aliases:
        console.print(Text(f"  also {', '.join(map(one_line, entity.aliases))}", "dim"))
    for fact in facts:
        line(Text(f"  · {beneath(fact.content)}"), fact.id)
    for each in relations:
        said = f"{each.source} {each.relation_type} {each.target}"
        line(Text(f"  → {one_line(said)}"), each.id)


def _from(source: Provenance) -> str:
    said = [f"position {source.position}", source.time]
    said += [f"by {one_line(source.actor)}"] if source.actor else []
    said += [f"thread {one_line(source.thread)}"] if source.thread else []
    said += [source.command] if source.command else []
    return ", ".join(said)
