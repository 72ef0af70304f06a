"""A file of the reference server imported into a fresh data directory, until it can be searched.

One file is generated; a real one is imported too where the run was given one. What is timed is what
`memlog import` does, without the start of a process and, where vectors are wanted, without loading the model.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import msgspec

from bench import corpus
from bench.floors import BareText
from bench.rows import Row, Section, Skipped, floor, row
from bench.timing import Step, beside
from bench.world import World, document_texts, settings_over
from memlog.copies import transfer
from server.service import Service

COPIED, INDEXED, MODEL = "decoded, written and synced", "tantivy alone", "the model alone"


def run(world: World) -> Iterator[Section]:
    count = world.scale.import_entities
    title = f"Import of a generated memory.json, {2 * count:,} lines"
    yield Section(title, _import(world, generated(world.draw(count)), model=False))
    if world.memory_file is None:
        reason = "no file was named; give one with --memory FILE"
        yield Section("Import of a real memory.json", [], [Skipped("import", reason)])
        return
    data = world.memory_file.read_bytes()
    title = f"Import of a real memory.json, {len(data.splitlines()):,} lines, {len(data):,} bytes"
    rows = _import(world, data, model=False)
    if world.has_model:
        rows += _import(world, data, model=True)
    yield Section(title, rows, world.skipped("vectors"))


def generated(entities: list[corpus.Entity]) -> bytes:
    """A memory.json of these entities and one relation from each."""
    lines: list[transfer.Line] = [
        transfer.EntityLine(e.name, e.entity_type, e.observations) for e in entities
    ]
    for edge in corpus.relations(entities):
        lines.append(transfer.RelationLine(edge.source, edge.target, edge.relation_type))
    return b"".join(msgspec.json.encode(line) + b"\n" for line in lines)


def _import(world: World, data: bytes, *, model: bool) -> list[Row]:
    """The row, then its floors."""
    suffix = ", and its meaning" if model else ""
    texts: list[str] = []

    def opened(number: int) -> Service:
        service = Service(settings_over(world.folder / f"import-{number}", model=model))
        service.store.create("imported")
        if model:
            service.embeddings.get()
        return service

    def closed(service: Service) -> None:
        texts[:] = document_texts(service.open("imported").project)
        service.close()
        shutil.rmtree(service.settings.data_dir)

    steps = {
        "import": Step(lambda service: _imported(service, data, model), closed, opened),
        COPIED: Step(lambda _: _copy(data, world.folder / "copy.json")),
        INDEXED: Step(lambda _: BareText.over(texts, world.folder / "tantivy-import")),
    }
    if model:
        steps[MODEL] = Step(lambda _: world.embedder.embed(texts))
    samples = world.scale.imports_embedded if model else world.scale.imports
    times = beside(samples, steps, block=1)
    floors = [floor(name + suffix, times[name]) for name in steps if name != "import"]
    return [row(f"text can be searched{suffix}", times["import"], floors), *floors]


def _imported(service: Service, data: bytes, model: bool) -> Service:
    opened = service.open("imported")
    for command, _ in transfer.commands([line for _, line in transfer.read(data)]):
        opened.project.execute(command, service.store.context, lambda _: None)
    opened.projections.caught_up("text")
    if model:
        opened.projections.caught_up("vectors")
    return service


def _copy(data: bytes, path: Path) -> None:
    for line in data.splitlines():
        msgspec.json.decode(line)
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
