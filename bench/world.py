"""What the benchmarks of one run share: a folder, how much to measure, the model, prepared projects.

Everything stands in one data directory, one project for each size; what takes long to prepare is
prepared once, when the first benchmark asks for it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from time import perf_counter_ns
from typing import Any, Self

import msgspec
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from bench import corpus
from bench.wire import NO_OP, SERVE, Server, close_all
from memlog.commands import AnyCommand, CreateEntities
from memlog.errors import EmbeddingError
from memlog.project import Project
from memlog.settings import Settings
from projections.documents import Born, changes
from projections.embedding import (
    CachedEmbedder,
    Embedder,
    EmbedderSpec,
    VectorCache,
    open_embedder,
)
from server.service import Opened, Service

ITEMS_PER_COMMAND = 200


class Scale(msgspec.Struct, frozen=True, kw_only=True):
    """How much is measured: `sizes` in entities, all else in samples of one row unless it says so."""

    sizes: tuple[int, ...] = (1_000, 10_000)
    appends: int = 2_000
    calls: int = 500
    batches: int = 30
    found: int = 100
    starts: int = 10
    replay_events: int = 100_000
    replays: int = 3
    import_entities: int = 1_000
    imports: int = 5
    imports_embedded: int = 2
    load_seconds: float = 30.0
    warm_up: int = 20


TINY = Scale(
    sizes=(12,),
    appends=5,
    calls=5,
    batches=2,
    found=2,
    starts=1,
    replay_events=60,
    replays=2,
    import_entities=10,
    imports=2,
    imports_embedded=1,
    load_seconds=0.5,
    warm_up=0,
)


class Prepared(msgspec.Struct, frozen=True):
    """A project with `size` entities, indexed as far as it can be.

    `texts` are its documents. `embedding` holds nanoseconds a text for each batch in which the vector
    projection embedded them, and `embedded_texts_per_s` says how fast it went as a whole.
    """

    project: str
    entities: list[corpus.Entity]
    texts: list[str]
    embedding: list[int]
    embedded_texts_per_s: float


class World:
    """One run, closed at its end. `memory_file` is a file of the reference server, if there is one to
    import; `peer` the command of a memory server to stand beside memlog, in place of the reference."""

    def __init__(
        self,
        folder: Path,
        scale: Scale,
        console: Console,
        memory_file: Path | None = None,
        peer: str | None = None,
    ) -> None:
        self.folder = folder
        self.scale = scale
        self.console = console
        self.memory_file = memory_file
        self.peer = peer
        self._servers: dict[tuple[str, bool], Server] = {}
        self._prepared: dict[int, Prepared] = {}
        self._drawn = 0

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
            variables = self.variables(project)
            self._servers[project, model] = Server(
                SERVE, MEMLOG_EMBEDDER="minilm" if model else "none", **variables
            )
        return self._servers[project, model]

    def settings(self, *, model: bool, folder: Path | None = None) -> Settings:
        return Settings(
            data_dir=folder or self.folder / "data",
            embedder="minilm" if model else "none",
            model_dir=_model_dir(),
        )

    @contextmanager
    def service(self, *, model: bool, folder: Path | None = None) -> Iterator[Service]:
        service = Service(self.settings(model=model, folder=folder))
        try:
            yield service
        finally:
            service.close()

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

    @cached_property
    def embedder(self) -> Embedder:
        """The bare model, without a cache in front."""
        folder = self.folder / "data" / "embeddings"
        spec = EmbedderSpec(backend="minilm", cache_dir=folder, model_dir=_model_dir())
        embedder = open_embedder(spec)
        assert embedder is not None
        return embedder

    def vectors(self, texts: Sequence[str]) -> Any:
        """Their vectors, from the cache of the data directory where they are in it."""
        folder = self.settings(model=True).data_dir / "embeddings"
        cache = VectorCache(folder / f"{self.embedder.key}.mdb")
        try:
            return CachedEmbedder(self.embedder, cache).vectors(texts)
        finally:
            cache.close()

    # -- projects

    def prepared(self, size: int) -> Prepared:
        if size not in self._prepared:
            entities = self.draw(size)
            with self.service(model=self.has_model) as service:
                self._prepared[size] = self._prepare(service, f"size-{size}", entities)
        return self._prepared[size]

    def draw(self, count: int) -> list[corpus.Entity]:
        """Entities that this run has not had yet."""
        start, self._drawn = self._drawn, self._drawn + count
        return corpus.entities(start, count)

    def _prepare(self, service: Service, name: str, entities: list[corpus.Entity]) -> Prepared:
        service.store.create(name)
        opened = service.open(name)
        commands = creations(entities)
        self.execute(f"{name}: log", service, opened, commands)
        with self.progress(f"{name}: text", opened.project.head()) as show:
            opened.projections.caught_up("text", lambda _, position, __: show(position))
        embedding: list[int] = []
        seconds = self._embed(name, opened, embedding) if self.has_model else 0.0
        texts = document_texts(opened.project)
        return Prepared(name, entities, texts, embedding, len(texts) / seconds if seconds else 0.0)

    def _embed(self, name: str, opened: Opened, batches_ns: list[int]) -> float:
        """Brings the vectors up to date, noting each batch; the seconds it took."""
        with self.progress(f"{name}: vectors", opened.project.head()) as show:
            reached, begun = 0, perf_counter_ns()
            since = begun

            def batch(_: str, position: int, __: int) -> None:
                nonlocal reached, since
                now = perf_counter_ns()
                batches_ns.append((now - since) // (position - reached))
                reached, since = position, now
                show(position)

            opened.projections.caught_up("vectors", batch)
        return (since - begun) / 1e9

    def execute(
        self, what: str, service: Service, opened: Opened, commands: Sequence[AnyCommand]
    ) -> None:
        """The commands one after the other, durable, without a follower behind them."""
        with self.progress(what, len(commands)) as show:
            for number, command in enumerate(commands, 1):
                opened.project.execute(command, service.store.context, lambda _: None)
                show(number)

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


def document_texts(project: Project) -> list[str]:
    """What the projections index of this project, in the order of the log."""
    with project.snapshot() as (log, state_at):
        return [c.document.text for c in changes(log.read(), state_at) if isinstance(c, Born)]


def creations(entities: Sequence[corpus.Entity]) -> list[CreateEntities]:
    """Commands that store these entities, `ITEMS_PER_COMMAND` in each."""
    starts = range(0, len(entities), ITEMS_PER_COMMAND)
    return [
        CreateEntities(entities=[e.as_command() for e in entities[at : at + ITEMS_PER_COMMAND]])
        for at in starts
    ]


def _model_dir() -> Path | None:
    given = os.environ.get("MEMLOG_MODEL_DIR")
    return Path(given) if given else None
