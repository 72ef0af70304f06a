"""What the benchmarks of one run share: a folder, how much to measure, the model, prepared projects.

Everything stands in one data directory, one project for each size; what takes long to prepare is
prepared once, when the first benchmark asks for it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from functools import cached_property
from pathlib import Path
from random import Random
from time import perf_counter_ns
from typing import Any, Self, TypeVar

import msgspec
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from bench import corpus
from bench.rows import Skipped
from bench.wire import NO_OP, SERVE, Server, close_all
from memlog.commands import AnyCommand, CreateEntities
from memlog.errors import EmbeddingError
from memlog.projects.project import Project
from memlog.settings import Settings
from projections.documents import Born, changes
from projections.embedding import (
    CachedEmbedder,
    Embedder,
    EmbedderSpec,
    VectorCache,
    open_embedder,
)
from server.opened import Opened
from server.quiet import QUIET_SECONDS
from server.service import Service

Item = TypeVar("Item")

ITEMS_PER_COMMAND = 200
OBSERVATIONS_PER_RECORD = 10
"""A prepared project has records, too: one for so many observations."""

READ_BYTES = 1 << 20

FRESH_STARTS, FRESH_STEP = 20_000, 1_000
"""Where a run begins to draw what no other run has stored."""


class Scale(msgspec.Struct, frozen=True, kw_only=True):
    """How much is measured: `sizes` in observations, all else in samples of one row unless it says so.

    `scale_sizes` are those of the benchmark `scale`.
    """

    sizes: tuple[int, ...] = (1_000, 10_000)
    scale_sizes: tuple[int, ...] = (1_000, 10_000, 100_000)
    bulk_commands: int = 100
    appends: int = 2_000
    calls: int = 300
    embedding_batches: int = 30
    found: int = 60
    starts: int = 5
    replay_events: int = 100_000
    replays: int = 3
    import_entities: int = 1_000
    imports: int = 5
    imports_embedded: int = 2
    load_seconds: float = 30.0
    quiet_seconds: float = 2 * QUIET_SECONDS + 1.0
    """A server looks every `QUIET_SECONDS` whether somebody called since it looked last."""
    warm_up: int = 20


TINY = Scale(
    sizes=(12,),
    scale_sizes=(12, 24),
    appends=5,
    calls=5,
    embedding_batches=2,
    found=2,
    starts=1,
    replay_events=60,
    replays=2,
    import_entities=10,
    imports=2,
    imports_embedded=1,
    load_seconds=0.5,
    quiet_seconds=0.0,
    warm_up=0,
)


class Prepared(msgspec.Struct, frozen=True):
    """A project with `size` observations, indexed as far as it can be.

    `texts` are its documents, `middle` is the position in the log at which the first half of the entities
    was there. `storing_ns` holds nanoseconds an observation, for each command that stored entities.
    """

    project: str
    size: int
    entities: list[corpus.Entity]
    records: list[corpus.Record]
    texts: list[str]
    middle: int
    storing_ns: list[int]


class World:
    """One run, closed at its end. `memory_file` is a file of the reference server, if there is one to
    import; `peer` the command of a memory server to stand beside memlog, in place of the reference;
    `vectors` a folder in which vectors are kept from run to run."""

    def __init__(
        self,
        folder: Path,
        scale: Scale,
        console: Console,
        memory_file: Path | None = None,
        peer: str | None = None,
        vectors: Path | None = None,
    ) -> None:
        self.folder = folder
        self.scale = scale
        self.console = console
        self.memory_file = memory_file
        self.peer = peer
        self._servers: dict[tuple[str, bool], Server] = {}
        self._prepared: dict[str, Prepared] = {}
        self._drawn = max(scale.sizes + scale.scale_sizes)
        if vectors is not None:
            (folder / "data").mkdir()
            (folder / "data" / "embeddings").symlink_to(vectors.resolve())
            # What is written on the clock must not be known from the run before.
            self._drawn += Random().randrange(FRESH_STARTS) * FRESH_STEP

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        close_all()

    # -- children, and memlog in this process

    @cached_property
    def no_op(self) -> Server:
        """A server with one tool that does nothing, for floors."""
        return Server(NO_OP)

    def server(self, project: str, *, model: bool) -> Server:
        """`memlog serve` over the data directory, as a child that lives until the end of the run."""
        if (project, model) not in self._servers:
            self._servers[project, model] = self.started(project, model=model)
        return self._servers[project, model]

    def started(self, project: str, *, model: bool) -> Server:
        """Another one, which its caller ends."""
        self._read_files()
        embedder = "minilm" if model else "none"
        return Server(SERVE, MEMLOG_EMBEDDER=embedder, **self.variables(project))

    def _read_files(self) -> None:
        """Once, all of the data directory: what is measured is a memory in use, and some systems drop what was written
        a while ago although they have room."""
        for folder, _, names in os.walk(self.folder / "data", followlinks=True):
            for name in names:
                with suppress(OSError), Path(folder, name).open("rb") as file:
                    while file.read(READ_BYTES):
                        pass

    def service(self, *, model: bool) -> closing[Service]:
        return closing(Service(settings_over(self.folder / "data", model=model)))

    def variables(self, project: str) -> dict[str, str]:
        return {"MEMLOG_DATA_DIR": str(self.folder / "data"), "MEMLOG_PROJECT": project}

    # -- the model

    @property
    def has_model(self) -> bool:
        return self.without_model is None

    @cached_property
    def without_model(self) -> str | None:
        """Why texts cannot be embedded here; None where they can."""
        try:
            self.embedder.embed(["warm"])
        except EmbeddingError as error:
            return error.message
        return None

    def skipped(self, name: str) -> list[Skipped]:
        """That this was, where texts cannot be embedded."""
        return [] if self.without_model is None else [Skipped(name, self.without_model)]

    @cached_property
    def embedder(self) -> Embedder:
        """The bare model, without a cache in front."""
        folder = self.folder / "data" / "embeddings"
        spec = EmbedderSpec(backend="minilm", cache_dir=folder, model_dir=_model_dir())
        return open_embedder(spec)

    @property
    def vectors_file(self) -> Path:
        """The cache of the data directory: vectors by text, for all projects."""
        return self.folder / "data" / "embeddings" / f"{self.embedder.key}.mdb"

    def vectors(self, texts: Sequence[str]) -> Any:
        """Their vectors, from the cache of the data directory where they are in it."""
        with closing(VectorCache(self.vectors_file)) as cache:
            return CachedEmbedder(self.embedder, cache).vectors(texts)

    # -- projects

    def prepared(self, size: int, of: str = "size") -> Prepared:
        """The project of this size that belongs to `of`; all begin with the same entities."""
        name = f"{of}-{size}"
        if name not in self._prepared:
            with self.service(model=self.has_model) as service:
                self._prepared[name] = self._prepare(service, name, size)
        return self._prepared[name]

    def draw(self, count: int) -> list[corpus.Entity]:
        """Entities that this run has not had yet."""
        start, self._drawn = self._drawn, self._drawn + count
        return corpus.entities(start, count)

    def _prepare(self, service: Service, name: str, size: int) -> Prepared:
        service.store.create(name)
        opened = service.open(name)
        entities = corpus.entities(0, -(-size // corpus.FACTS_PER_ENTITY))
        records = corpus.records(-(-size // OBSERVATIONS_PER_RECORD))
        half = -(-len(entities) // 2)
        storing_ns = self._store(service, opened, entities[:half])
        middle = opened.project.head()
        storing_ns += self._store(service, opened, entities[half:])
        self.execute(f"{name}: records", service, opened, [each.as_command() for each in records])
        for projection in ("text", "analytics", *(["vectors"] if self.has_model else [])):
            with self.progress(f"{name}: {projection}", opened.project.head()) as show:
                opened.projections.caught_up(projection, lambda _, position, __: show(position))
        return Prepared(
            project=name,
            size=size,
            entities=entities,
            records=records,
            texts=document_texts(opened.project),
            middle=middle,
            storing_ns=storing_ns,
        )

    def _store(self, service: Service, opened: Opened, entities: list[corpus.Entity]) -> list[int]:
        commands = creations(entities)
        taken = self.execute(f"{len(entities):,} entities: log", service, opened, commands)
        return per_observation(taken, commands)

    def execute(
        self, what: str, service: Service, opened: Opened, commands: Sequence[AnyCommand]
    ) -> list[int]:
        """The commands one after the other, durable, without a follower behind them; nanoseconds of each."""
        taken = []
        with self.progress(what, len(commands)) as show:
            for number, command in enumerate(commands, 1):
                begun = perf_counter_ns()
                opened.project.execute(command, service.store.context, lambda _: None)
                taken.append(perf_counter_ns() - begun)
                show(number)
        return taken

    @contextmanager
    def progress(self, what: str, total: int) -> Iterator[Callable[[int], None]]:
        """A bar on stderr while something is prepared; nothing where there is no terminal."""
        with Progress(
            TextColumn("{task.description:<24}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=self.console,
            transient=True,
            disable=not self.console.is_terminal,
        ) as bar:
            task = bar.add_task(what, total=total)
            yield lambda done: bar.update(task, completed=done)


def settings_over(folder: Path, *, model: bool) -> Settings:
    return Settings(data_dir=folder, embedder="minilm" if model else "none", model_dir=_model_dir())


def document_texts(project: Project) -> list[str]:
    """What the projections index of this project, in the order of the log."""
    with project.snapshot() as (log, state_at):
        return [c.document.text for c in changes(log.read(), state_at) if isinstance(c, Born)]


def creations(entities: Sequence[corpus.Entity]) -> list[CreateEntities]:
    """Commands that store these entities, `ITEMS_PER_COMMAND` in each."""
    return [
        CreateEntities(entities=[each.as_command() for each in batch])
        for batch in batches(entities)
    ]


def per_observation(taken_ns: Sequence[int], commands: Sequence[CreateEntities]) -> list[int]:
    """Nanoseconds an observation, of the nanoseconds that each command took."""
    return [
        ns // (len(command.entities) * corpus.FACTS_PER_ENTITY)
        for ns, command in zip(taken_ns, commands, strict=True)
    ]


def batches(items: Sequence[Item], most: int = ITEMS_PER_COMMAND) -> Iterator[Sequence[Item]]:
    """All of them, so many at a time."""
    for start in range(0, len(items), most):
        yield items[start : start + most]


def _model_dir() -> Path | None:
    given = os.environ.get("MEMLOG_MODEL_DIR")
    return Path(given) if given else None
