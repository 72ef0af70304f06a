"""What becomes of every kind of call as a memory grows: search, writing, start, replay, memory and disk.

A memory of a hundred thousand observations is fifty thousand entities with two facts each, and a record for
every ten observations. Embedding that much takes many minutes, once: `--vectors` keeps what was embedded.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from bench import calls, corpus, reads
from bench.floors import SyncedWrite
from bench.footprint import BYTES_PER_MEGABYTE, Resident, disk_megabytes
from bench.found import BY_WORDS, HYBRID, written_then_found
from bench.replay import replayed
from bench.rows import Row, Section, Skipped, at_most_megabytes, floor, row, size
from bench.startup import started
from bench.timing import Step, beside
from bench.world import ITEMS_PER_COMMAND, Prepared, World, creations, per_observation
from server.service import Service

RESIDENT_MEGABYTES_MAX = 500.0
REPLAYS_FEW_FROM = 100_000
"""From this size on everything is rebuilt once, which takes long enough."""

BARE_BULK = "the same as JSON, written and synced"
HEADLINES = (
    "search_nodes, hybrid",
    "search_nodes, hybrid, in process, repeated query",
    HYBRID,
)
BULK = "stored in bulk, time an observation"
PLOTTED = (
    "search_nodes, text",
    "search_nodes, semantic",
    "search_nodes, hybrid",
    "search_nodes, hybrid, repeated query",
    "search_nodes, hybrid, in process, repeated query",
    "memory_search, by type and tag",
    "create_entities, with the model",
    BY_WORDS,
    HYBRID,
)
"""The rows that the plot shows."""


def run(world: World) -> Iterator[Section]:
    smallest: dict[str, Row] = {}
    for observations in sorted(world.scale.scale_sizes):
        prepared = world.prepared(observations, "scale")
        found: dict[str, Row] = {}
        for section in _sections(world, prepared, smallest):
            found |= {each.name: each for each in section.rows if not each.is_floor}
            yield msgspec.structs.replace(section, observations=observations)
        smallest = smallest or found


def _sections(world: World, prepared: Prepared, smallest: Mapping[str, Row]) -> Iterator[Section]:
    """Reading first, then what begins anew, then what makes the memory larger than it says."""
    of = f"{prepared.size:,} observations"
    with world.service(model=world.has_model) as service:
        with world.started(prepared.project, model=world.has_model) as server:
            yield from reads.sections(world, prepared, server, service, smallest)
            busy = Resident.of(server.pid)
            time.sleep(world.scale.quiet_seconds)
            resident, bare = Resident.of(server.pid), Resident.of(world.no_op.pid)
        folder = service.open(prepared.project).project.folder
        yield _footprint(world, prepared, folder, busy, resident, bare)
        yield _replay(world, prepared, service)
    query = corpus.queries(prepared.entities, 1)[0]
    searches = {"first search by words answered": {"query": query, "mode": "text"}}
    if world.has_model:
        searches["first hybrid search answered"] = {"query": query}
    rows = started(world, prepared.project, searches)
    yield Section(f"Start of the server, {of}", rows)
    yield _bulk(world, prepared)
    with world.started(prepared.project, model=world.has_model) as server:
        suffix = ", with the model" if world.has_model else ""
        rows = list(calls.created(world, server, suffix, smallest))
        yield Section(f"Creating over stdio, {of}", rows)
        rows = written_then_found(world, prepared, server)
        yield Section(f"Written, then found, {of}", rows, world.skipped(HYBRID))


def _footprint(
    world: World,
    prepared: Prepared,
    folder: Path,
    busy: Resident | None,
    resident: Resident | None,
    bare: Resident | None,
) -> Section:
    """The server's right after the searches and when nobody has called for a while; a project's before anything is
    rebuilt."""
    sizes, skipped = [], []
    if busy is None or resident is None or bare is None:
        skipped.append(Skipped("resident memory", "this system has no /proc"))
    else:
        within = prepared.size <= reads.SIZE_LARGE
        whole = at_most_megabytes(RESIDENT_MEGABYTES_MAX, resident.megabytes)
        sizes = [
            size(
                "resident memory of the server",
                resident.megabytes,
                ("server of the bare SDK", bare.megabytes),
                goals=[whole] if within else [],
            ),
            size(
                "right after the searches",
                busy.megabytes,
                ("server of the bare SDK", bare.megabytes),
            ),
            size(
                "pages of no file",
                resident.anonymous_megabytes,
                ("server of the bare SDK", bare.anonymous_megabytes),
            ),
        ]
    bytes_of_texts = sum(len(text.encode()) for text in prepared.texts)
    texts = ("the texts themselves", bytes_of_texts / BYTES_PER_MEGABYTE)
    on_disk = disk_megabytes(folder)
    sizes += [size(f"on disk: {name}", taken, texts) for name, taken in on_disk.items()]
    if world.has_model:
        halves = 2 * world.embedder.dimensions * len(prepared.texts)
        sizes.append(
            size(
                "on disk: vectors by text, of all projects",
                world.vectors_file.stat().st_size / BYTES_PER_MEGABYTE,
                ("this project's vectors as float16", halves / BYTES_PER_MEGABYTE),
            )
        )
    return Section(f"Memory and disk, {prepared.size:,} observations", [], skipped, sizes)


def _replay(world: World, prepared: Prepared, service: Service) -> Section:
    opened = service.open(prepared.project)
    names = ["state", "text", "analytics", *(["vectors"] if world.has_model else [])]
    samples = world.scale.replays if prepared.size < REPLAYS_FEW_FROM else 1
    rows = replayed(world, service, opened, names, samples)
    events = opened.project.head()
    return Section(f"Replay of {prepared.size:,} observations, {events:,} events", rows)


def _bulk(world: World, prepared: Prepared) -> Section:
    """How the entities were stored while the project was prepared, beside their JSON written and synced."""
    commands = creations(prepared.entities)[: world.scale.bulk_commands]
    file = SyncedWrite(world.folder / "synced")
    step = Step(lambda number: file.write_all(msgspec.json.encode(commands[number])))
    taken = beside(len(commands), {BARE_BULK: step})[BARE_BULK]
    file.close()
    bare = floor(BARE_BULK, per_observation(taken, commands))
    stored = prepared.storing_ns
    rate = f"{1e9 * len(stored) / sum(stored):,.0f}/s"
    title = f"Storing {ITEMS_PER_COMMAND} entities in a command, {prepared.size:,} observations"
    return Section(title, [row(BULK, stored, [bare], note=rate), bare])
