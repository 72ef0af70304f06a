"""Texts embedded in bulk, as an import brings them: into an empty cache, beside the model alone.

Time is that of one text, in batches as large as memlog's own. A batch pads its texts to the longest.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator

from bench.rows import Section, at_most_ms, floor, row
from bench.timing import Step, beside
from bench.world import World, batches
from projections.embedding import CachedEmbedder, VectorCache
from projections.embedding.cached import BATCH_TEXTS_MAX

TEXT_MS_MAX = 3.0
"""A hundred thousand in five minutes."""

CACHED, BARE = "into an empty cache", f"the model alone, in batches of {BATCH_TEXTS_MAX}"


def run(world: World) -> Iterator[Section]:
    count = BATCH_TEXTS_MAX * world.scale.embedding_batches
    title = f"Embedding {count:,} facts, time a text"
    if not world.has_model:
        yield Section(title, [], world.skipped(CACHED))
        return
    texts = sorted((entity.observations[0] for entity in world.draw(count)), key=len)
    lots = list(batches(texts, BATCH_TEXTS_MAX))
    folder = world.folder / "embedding"
    cache = VectorCache(folder / "vectors.mdb")
    cached = CachedEmbedder(world.embedder, cache)
    steps = {
        CACHED: Step(lambda number: cached.vectors(lots[number])),
        BARE: Step(lambda number: world.embedder.embed(lots[number])),
    }
    times = beside(len(lots), steps, block=1)
    cache.close()
    shutil.rmtree(folder)
    each = {name: [ns // BATCH_TEXTS_MAX for ns in taken] for name, taken in times.items()}
    rate = f"{count / sum(times[CACHED]) * 1e9:,.0f} texts/s"
    bare = floor(BARE, each[BARE])
    measured = row(CACHED, each[CACHED], [bare], goals=[at_most_ms(TEXT_MS_MAX)], note=rate)
    yield Section(title, [measured, bare])
