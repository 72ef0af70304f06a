"""`memlog show`: an entity as it is or was, and who brought each part of it."""

from __future__ import annotations

from typing import Any

import click

from memlog.decisions.graph import missing_entity
from memlog.errors import refusal
from memlog.settings import Settings
from server.answering.moments import position_of
from server.answering.portions import view_entity
from server.answering.views import EntityView, Provenance, RelationView, view_relation
from server.cli.common import (
    beneath,
    json_option,
    open_console,
    open_to_read,
    print_json,
    project_option,
    service_to_read,
    with_settings,
)


@click.command("show")
@click.argument("name")
@click.option("--as-of", metavar="WHEN", help="As of this position or ISO time.")
@project_option
@json_option
@with_settings
def show_command(
    settings: Settings, name: str, as_of: str | None, project: str | None, as_json: bool
) -> None:
    """Show an entity: its facts, relations and former names, and where each came from.

    \b
    Example: memlog show Jon
    Example: memlog show Jon --as-of 2026-11-20
    """
    with service_to_read(settings, project or settings.project) as service:
        _, opened = open_to_read(service, project)
        at = position_of(as_of, opened.project, "--as-of")
        with opened.project.read(at) as state:
            row = state.entity_named(name)
            if row is None:
                raise refusal([missing_entity(name, "name", state, at=at)])
            entity = view_entity(row, state, blamed=state)
            touching = state.relations_touching(row.name)
            relations = [view_relation(each, blamed=state) for each in touching]
    if as_json:
        print_json({"entity": entity, "relations": relations})
    else:
        _print(entity, relations)


def _print(entity: EntityView, relations: list[RelationView]) -> None:
    from rich.text import Text

    console = open_console()
    brought = list(entity.provenance or ())
    title = Text(entity.name, "bold").append(f" ({entity.entity_type})", "default")
    console.print(title.append(_from(brought[0]), "dim"))
    if entity.aliases:
        console.print(Text(f"  also {', '.join(entity.aliases)}", "dim"))
    for content, source in zip(entity.observations, brought[1:], strict=True):
        console.print(Text(f"  · {beneath(content)}").append(_from(source), "dim"))
    for each in relations:
        said = Text(f"  → {each.source} {each.relation_type} {each.target}")
        console.print(said.append(_from(each.provenance), "dim"))


def _from(source: Provenance | None) -> str:
    if source is None:
        return ""
    said: list[Any] = [f"position {source.position}", source.time]
    said += [f"thread {source.thread}"] if source.thread else []
    said += [source.command] if source.command else []
    return f"  ({', '.join(said)})"
