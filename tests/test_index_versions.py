"""What an index holds has a version, by which one that another memlog made is built anew. Nothing else would say that
it is an old one: `replay --check` compares texts, not their terms."""

from __future__ import annotations

import json
from collections.abc import Sequence
from hashlib import sha256
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

from memlog.commands import (
    AnyCommand,
    CreateEntities,
    CreateProject,
    CreateRelations,
    DeleteEntities,
    MergeEntities,
    NewEntity,
    NewRelation,
    StoreMemory,
    Undo,
    UpdateObservation,
)
from memlog.context import Context
from memlog.projects.project import Origin, Project
from projections.analytics.projector import ANALYTICS_VERSION, AnalyticsProjector
from projections.batches import advance
from projections.documents import Born, Died, Document
from projections.text import analysis
from projections.text.filling import Entering, Filling
from projections.text.projector import TEXT_VERSION
from projections.vectors.index import Vectors
from projections.vectors.projector import VECTORS_VERSION, VectorProjector
from tests.vectors_by_hash import DIMENSIONS, batch, document

TEXTS = (
    "Jon's dances were danced, again and again, at the 48,500th studio in Malmö",
    "applyDiscount() fails with HTTPServerError: see src/cart.py, 2026-11-20",
    "東京に住んでいます。 ภาษาไทย",
    "Собаки бежали домой, собака спит; γάτες τρέχουν; الكتب والكتاب",
    "Straße, STRASSE, ﬁne, naïve, İstanbul, I’m",
)


class _Recording:
    """Is told what tantivy's writer is told."""

    def __init__(self) -> None:
        self.documents: list[dict[str, Any]] = []

    def add_document(self, document: Any) -> None:
        self.documents.append(document.to_dict())


def test_a_text_index_with_other_terms_has_another_version() -> None:
    """Who changes what a text leaves in the index raises TEXT_VERSION, and writes both down here."""
    recording = _Recording()
    filling = Filling(Entering(recording), lambda ref: None)  # type: ignore[arg-type]
    for number, text in enumerate(TEXTS, 1):
        filling.born(Document("observation", f"obs_{number}", "ent_1", text, ("label",), number))
    filling.add_waiting()
    stemmed = [
        analysis.stems(text)
        for document in recording.documents
        for field in ("words", "repeated")
        for text in document.get(field, ())
    ]
    exact = [analysis.exact.analyze(*document["exact"]) for document in recording.documents]
    held = (recording.documents, stemmed, exact, sorted(analysis.STOP_WORDS))
    digest = sha256(json.dumps(held, default=list, sort_keys=True).encode()).hexdigest()
    assert (TEXT_VERSION, digest[:16]) == (12, "bd371f147592d9e1")


def test_analytics_with_other_rows_have_another_version(tmp_path: Path) -> None:
    """Who changes what analytics count raises ANALYTICS_VERSION, and writes both down here."""
    numbers = count(1)
    context = Context(new_id=lambda prefix: f"{prefix}_{next(numbers):026}")
    project = Project(tmp_path / "prj_1", clock=lambda: 1_750_000_000_000_000)
    names = ("Jon", "Gina", "jon", "Rex")
    entities = [NewEntity(name=name, entity_type="a", observations=["b", name]) for name in names]
    knows = [
        NewRelation(source=source, target=target, relation_type="knows", importance=0.9)
        for source, target in (("Jon", "Gina"), ("Gina", "Rex"), ("Jon", "nobody"))
    ]
    commands: list[AnyCommand] = [
        CreateProject(name="one"),
        CreateEntities(entities=entities),
        CreateRelations(relations=knows),
        StoreMemory(content="fact"),
        UpdateObservation(entity_name="Gina", observation="b", new_content="c"),
        MergeEntities(names=["jon"], into="Jon"),
        DeleteEntities(entity_names=["Rex"]),
        Undo(),
    ]
    for number, command in enumerate(commands):
        origin = Origin(f"cmd_{number}", "planning")
        project.execute(command, context, lambda outcome: None, origin)
    analytics = AnalyticsProjector(tmp_path / "analytics")
    advance(project, analytics, project.head())
    digest = analytics.digest()
    analytics.close()
    project.close()
    assert (ANALYTICS_VERSION, digest[:16]) == (3, "bd4d9f965f93bf21")


def _embed(texts: Sequence[str]) -> Vectors:
    """Along an axis each, as no machine rounds it in its own way."""
    rows = np.zeros((len(texts), DIMENSIONS), dtype=np.float32)
    rows[np.arange(len(texts)), [len(text) % DIMENSIONS for text in texts]] = 1
    return rows


def test_vectors_with_other_rows_have_another_version(tmp_path: Path) -> None:
    """Who changes what is embedded of a text, or what a row has, raises VECTORS_VERSION, and writes both down here."""
    vectors = VectorProjector(tmp_path / "vectors", _embed, DIMENSIONS)
    documents = [
        document(f"obs_{number}", text, number, labels=("thread:planning",))
        for number, text in enumerate((*TEXTS, " ".join(TEXTS * 5)), 1)
    ]
    named = document("ent_1", "Jon", 8, kind="entity")
    vectors.apply(batch(8, *map(Born, (*documents, named))))
    vectors.apply(batch(9, Died("obs_2", 9)))
    assert (VECTORS_VERSION, vectors.rows, vectors.digest()[:16]) == (12, 22, "d607cb2f9d45f8e3")
    vectors.close()
