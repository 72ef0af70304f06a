"""What a search by meaning goes by: the vector of what is asked for, and the vectors of texts to compare it with.

Both are of the present embedder, once it is loaded and has embedded as much as a search can wait for; or of the one
before, while that reaches further. Whatever is missing is said in words. What a question means is told by its rare
words more than by others (`weighing`).

Left to others: who waits for an answer, and how long (`asking`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from memlog.errors import EmbeddingError, StorageError
from memlog.patience import require_patience
from memlog.settings import Mode
from projections.embedding import CachedEmbedder
from projections.embedding.computing import nothing
from projections.embeddings import Embeddings
from projections.follow import Projections
from projections.passages import passages
from projections.search.asker import USER, of_the_user
from projections.search.asking import Meanwhile
from projections.text.projector import TextProjector
from projections.vectors.previous import Meaning
from projections.vectors.projector import VectorProjector

if TYPE_CHECKING:
    from projections.embedding.embedder import Vectors
    from projections.embedding.pieces import Asked

    Embedded = tuple[Vectors, Asked | None]
    """A vector, and the pieces of a question where the embedder has them."""

COSINE_MIN, POINTED_COSINE_MIN = 0.35, 0.31
"""Of the vector that the model gave the question, and of one that its rare words point, which lies further from all
texts."""

PATIENCE_SECONDS: dict[Mode, float] = {"hybrid": 2.0, "semantic": 20.0}
"""How long a search waits for texts to be embedded; the rest is searched by words, and it says so."""
WAITED_EVENTS_MAX = 500
BEHIND_SECONDS = 0.5
"""How long it waits where so many events are behind that most of their texts cannot be embedded in time: after
an import, or when the embedder was changed. What was embedded before comes out of the cache by then, so a
process that starts has all of it. Where those of the embedder before serve, only the first search waits."""
PREVIOUS_SECONDS = 0.1
"""How long it takes up stored vectors of the embedder before, which serve meanwhile."""
LOADING_SECONDS: dict[Mode, float] = {"hybrid": 8.0, "semantic": 45.0}
"""How long it waits for an embedder that is being loaded, from when that began: most take less than one."""


class Question(NamedTuple):
    """What is turned into a vector, and forgotten."""

    text: str

    def embedded(self, embedder: CachedEmbedder) -> Embedded:
        return embedder.query(self.text)

    @contextmanager
    def on_its_way(self, embedder: CachedEmbedder) -> Iterator[Callable[[], Embedded]]:
        """Around what embeds other texts, most likely: how to have the vector then."""
        if embedder.has_pieces:
            with embedder.taking_along(self.text):
                yield partial(self.embedded, embedder)
        else:  # an endpoint may take its time for the others
            yield Meanwhile(self.embedded, embedder).begin().result


class Text(NamedTuple):
    """What is about to be a document: the vectors of its passages, (passages, dimensions), which are kept."""

    text: str

    def embedded(self, embedder: CachedEmbedder) -> Embedded:
        return embedder.vectors(passages(self.text)), None

    @contextmanager
    def on_its_way(self, embedder: CachedEmbedder) -> Iterator[Callable[[], Embedded]]:
        yield Meanwhile(self.embedded, embedder).begin().result


class Posed(NamedTuple):
    """The question as a vector, or a text as those of its passages; what to search with it, in what respect that is not
    all there is, and the question's pieces where the embedder has them, with what each counts once that is known."""

    vector: Vectors
    meaning: Meaning
    notice: str | None
    pieces: Asked | None
    counted: Vectors | None = None
    cosine_min: float = COSINE_MIN


class Questions:
    """Those about one project. `lagging` is called where texts wait to be embedded."""

    def __init__(
        self, projections: Projections, embeddings: Embeddings, lagging: Callable[[], None]
    ) -> None:
        self._projections = projections
        self._embeddings = embeddings
        self._lagging = lagging
        self._has_waited = False
        # Not a method of this, whose frame an exception would keep, the frame the future, that the exception.
        self.answer = embeddings.asking.answer

    def begin(
        self,
        wanted: Question | Text,
        mode: Mode,
        at: int | None = None,
        meanwhile: Callable[[], object] = nothing,
    ) -> Future[Posed]:
        """As `Asking.begin`, for what was there `at` a position; `answer` is what `Asking.answer` is."""
        ask = partial(self._asked, wanted, mode, at)
        return self._embeddings.asking.begin(ask, mode, meanwhile)

    def understood(self, query: str, at: int | None) -> str:
        """`query` as it is compared in meaning: its `I` is the user where the texts there were `at` a position speak of
        one. As it is where they are not at hand, as in `pointed`."""
        told = of_the_user(query)
        if told != query and (text := self._projections.text_at_hand()) is not None:
            with suppress(StorageError), text.asked() as texts:
                return told if texts.says(USER, at) else query
        return query

    def pointed(self, asked: Posed, text: TextProjector | None, at: int | None) -> Posed:
        """With the vector that the question's rare words give it, of what was there `at` a position. As it is where
        `text`, which knows what is rare, is damaged or has to catch up: somebody else sees to that, and this is a
        refinement."""
        from projections.search.weighing import pointed, weights

        pieces = asked.pieces
        if pieces is None:
            return asked
        text = text or self._projections.text_at_hand()
        if text is None:
            self._lagging()
            return asked
        with suppress(StorageError):
            with text.asked() as texts:
                counted = weights(pieces, partial(texts.rarity, at=at))
            asked, vector = asked._replace(counted=counted), pointed(asked.vector, pieces, counted)
            if vector is not None:
                return asked._replace(vector=vector, cosine_min=POINTED_COSINE_MIN)
        return asked

    def _asked(self, wanted: Question | Text, mode: Mode, at: int | None) -> Posed:
        """What to search with: the present embedder, or the one before while that reaches further."""
        try:
            present, needed = self._asked_present(wanted, mode, at)
        except EmbeddingError as error:
            if self._embeddings.switched_off:
                raise
            before = self._asked_before(wanted)
            if before is None:
                raise
            return before._replace(notice=f"{before.notice}: {error.message}")
        position = present.meaning.vectors.position
        if position >= needed:
            return present
        before = self._asked_before(wanted)
        if before is not None and before.meaning.vectors.position > position:
            return before._replace(
                notice=f"{before.notice}, while the present one, {present.meaning.embedder.key}, is "
                f"embedding: its vectors are there for {position} of {needed} events."
            )
        return present._replace(notice=_words_only(needed - position))

    def _asked_present(
        self, wanted: Question | Text, mode: Mode, at: int | None
    ) -> tuple[Posed, int]:
        """With the present embedder; and the position that its vectors should have seen, and have if there was time."""
        embedder = self._embeddings.soon(LOADING_SECONDS[mode])
        vectors, head = self._projections.vectors_so_far()
        needed = head if at is None else min(at, head)
        if needed <= vectors.position <= head:  # those beyond it are of another log, and made anew
            vector, pieces = wanted.embedded(embedder)
            return Posed(vector, Meaning(embedder, vectors), None, pieces), needed
        require_patience()
        self._lagging()
        with wanted.on_its_way(embedder) as embedded:
            vectors = self._caught_up(head - vectors.position, mode)
        vector, pieces = embedded()
        return Posed(vector, Meaning(embedder, vectors), None, pieces), needed

    def _caught_up(self, behind: int, mode: Mode) -> VectorProjector:
        """The vectors, as far as a search waits for so many events."""
        patience_seconds = PATIENCE_SECONDS[mode]
        if behind > WAITED_EVENTS_MAX:
            others_serve = self._projections.previous(PREVIOUS_SECONDS) is not None
            if mode == "hybrid" or others_serve:
                patience_seconds = 0.0 if others_serve and self._has_waited else BEHIND_SECONDS
            self._has_waited = True
        return self._projections.vectors(patience_seconds)

    def _asked_before(self, wanted: Question | Text) -> Posed | None:
        meaning = self._projections.previous(PREVIOUS_SECONDS)
        if meaning is None:
            return None
        try:
            vector, pieces = wanted.embedded(meaning.embedder)
        except EmbeddingError:
            return None
        return Posed(
            vector,
            meaning,
            f"Searched by meaning with the embedder before, {meaning.embedder.key}, up to event "
            f"{meaning.vectors.position}",
            pieces,
        )


def _words_only(events: int) -> str:
    """That so many of the newest events are not found by meaning yet."""
    if events == 1:
        newest, texts, them = "The newest event is", "its text is", "it"
    else:
        newest, texts, them = f"The newest {events} events are", "their texts are", "them"
    return (
        f"{newest} searched by words only: {texts} still being turned into vectors. "
        f"Ask again in a while to search {them} by meaning too."
    )
