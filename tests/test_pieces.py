"""The vectors of word pieces: stored small, found again, and what a question makes of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from memlog.errors import EmbeddingError
from projections.embedding import CachedEmbedder, EmbedderSpec, VectorCache, open_embedder
from projections.embedding import cached as cached_module
from projections.embedding.embedder import PieceEmbedder
from projections.embedding.pieces import (
    DIMENSIONS,
    PIECE_BYTES,
    Asked,
    directions,
    pack,
    unit,
    unpack,
)
from projections.embedding.store import key_of
from projections.search.late import interaction, words_in_pieces
from projections.search.weighing import pointed, weights
from projections.vectors.index import Vectors

DRAW = np.random.default_rng(7)


def drawn(count: int) -> Vectors:
    return DRAW.normal(size=(count, DIMENSIONS)).astype(np.float32)


@pytest.fixture(scope="module")
def minilm(tmp_path_factory: pytest.TempPathFactory) -> PieceEmbedder:
    opened = open_embedder(EmbedderSpec(backend="minilm", cache_dir=tmp_path_factory.mktemp("m")))
    assert isinstance(opened, PieceEmbedder)
    return opened


# -- as they are stored


def test_pieces_come_back_as_vectors_of_length_one_that_point_where_they_did() -> None:
    texts = [drawn(3), drawn(0), drawn(5)]
    stored = pack(texts)
    assert [len(each) for each in stored] == [3 * PIECE_BYTES, 0, 5 * PIECE_BYTES]
    found = unpack([stored[0], stored[2]])
    assert found.starts.tolist() == [0, 3]
    vectors = found.cosines(np.eye(DIMENSIONS, dtype=np.float32))
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=2e-3)
    cosines = (vectors * unit(np.concatenate(texts))).sum(axis=1)
    assert cosines.min() > 0.98


def test_a_piece_that_is_nothing_is_stored_as_nothing() -> None:
    (stored,) = pack([np.zeros((1, DIMENSIONS), np.float32)])
    np.testing.assert_allclose(unpack([stored]).cosines(drawn(1)), 0, atol=1e-4)


def test_the_directions_are_orthonormal() -> None:
    found = directions()
    np.testing.assert_allclose(found.T @ found, np.eye(DIMENSIONS), atol=2e-3)


# -- out of the model


def test_the_pieces_come_with_the_very_vector_of_the_text(minilm: PieceEmbedder) -> None:
    texts = ["likes dark mode", "", "a much longer text about something else"]
    vectors, pieces, _ = minilm.embed_with_pieces(texts)
    np.testing.assert_allclose(vectors, minilm.embed(texts), atol=1e-6)
    assert [len(each) // PIECE_BYTES for each in pieces] == [3, 0, 7]


def test_a_question_knows_the_word_of_each_piece(minilm: PieceEmbedder) -> None:
    _, asked = minilm.asked("Who unbelievably likes Zyx?")
    words = dict.fromkeys(zip(asked.numbers, asked.words, strict=True))
    assert [word for _, word in words] == ["Who", "unbelievably", "likes", "Zyx", "?"]
    assert len(asked.words) == len(asked.vectors) > 5


def test_a_question_that_is_taken_along_is_what_it_is_alone_and_changes_nothing_else(
    minilm: PieceEmbedder,
) -> None:
    texts = ["likes dark mode", "", "a much longer text about something else"]
    questions = ["Who unbelievably likes Zyx?", "🍕", "likes dark mode"]
    vectors, pieces, asked = minilm.embed_with_pieces(texts, questions)
    alone, pieces_alone, nothing = minilm.embed_with_pieces(texts)
    np.testing.assert_allclose(vectors, alone, atol=1e-3)
    assert [len(each) for each in pieces] == [len(each) for each in pieces_alone]
    assert nothing == []
    for question, (vector, told) in zip(questions, asked, strict=True):
        vector_alone, told_alone = minilm.asked(question)
        np.testing.assert_allclose(vector, vector_alone, atol=1e-3)
        np.testing.assert_allclose(told.vectors, told_alone.vectors, atol=5e-3)
        np.testing.assert_allclose(told.states, told_alone.states, atol=5e-3)
        assert told.states.shape == (len(told.words), 384)
        assert (told.words, told.numbers) == (told_alone.words, told_alone.numbers)


def test_a_piece_answers_itself_best(minilm: PieceEmbedder) -> None:
    texts = ["the dog sleeps", "the rocket starts", "it rains"]
    _, stored, _ = minilm.embed_with_pieces(texts)
    _, asked = minilm.asked("where is the rocket?")
    weight = weights(asked, lambda word: float(word == "rocket"))
    scores = interaction(asked, weight, stored, ())
    assert scores.argmax() == 1


# -- in the cache


class Counted:
    """Notes what is embedded together."""

    def __init__(self, embedder: PieceEmbedder) -> None:
        self._embedder = embedder
        self.key, self.dimensions = embedder.key, embedder.dimensions
        self.together: list[tuple[list[str], list[str]]] = []
        self.fails = False

    def embed(self, texts: Sequence[str]) -> Vectors:
        return self._embedder.embed(texts)

    def embed_with_pieces(
        self, texts: Sequence[str], questions: Sequence[str] = ()
    ) -> tuple[Vectors, list[bytes], list[tuple[Vectors, Asked]]]:
        self.together.append((list(texts), list(questions)))
        if self.fails:
            raise EmbeddingError("out of order")
        return self._embedder.embed_with_pieces(texts, questions)

    def asked(self, text: str) -> tuple[Vectors, Asked]:
        self.together.append(([], [text]))
        return self._embedder.asked(text)


def test_a_question_is_embedded_with_the_texts_that_are_embedded_meanwhile(
    tmp_path: Path, minilm: PieceEmbedder
) -> None:
    counted = Counted(minilm)
    cached = CachedEmbedder(counted, VectorCache(tmp_path / "cache.mdb"))
    with cached.taking_along("who sings?"):
        cached.vectors(["Ada sings"])
    vector, asked = cached.query("who sings?")
    assert counted.together == [(["Ada sings"], ["who sings?"])]
    assert asked is not None
    assert asked.words[:2] == ("who", "sings")
    np.testing.assert_allclose(vector, minilm.embed(["who sings?"])[0], atol=1e-3)
    assert cached.cache.get_many(["who sings?"]) == [None]
    with cached.taking_along("who sings?"):
        cached.vectors(["Bob sings"])
    assert counted.together[1:] == [(["Bob sings"], [])]
    cached.cache.close()


def test_questions_are_forgotten_before_their_pieces_take_much_room(
    tmp_path: Path, minilm: PieceEmbedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cached_module, "QUERY_PIECES_MAX", 12)
    counted = Counted(minilm)
    cached = CachedEmbedder(counted, VectorCache(tmp_path / "cache.mdb"))
    first, second, third = (
        "who sings in the old choir",
        "where",
        "what does the baker of the town sell",
    )
    for question in (first, second, second, third, second, first):
        cached.query(question)
    assert [questions for _, questions in counted.together] == [[first], [second], [third], [first]]
    cached.cache.close()


def test_a_question_that_nobody_took_along_is_embedded_alone_and_not_again(
    tmp_path: Path, minilm: PieceEmbedder
) -> None:
    counted = Counted(minilm)
    cached = CachedEmbedder(counted, VectorCache(tmp_path / "cache.mdb"))
    with cached.taking_along("who sings?"):
        pass
    cached.query("who sings?")
    cached.vectors(["Ada sings"])
    with cached.taking_along("who dances?"):
        cached.vectors(["Ada sings"])  # which is known
        counted.fails = True
        with pytest.raises(EmbeddingError):
            cached.vectors(["Bob dances"])
        counted.fails = False
    cached.query("who dances?")
    cached.vectors(["Bob dances"])
    assert counted.together == [
        ([], ["who sings?"]),
        (["Ada sings"], []),
        (["Bob dances"], ["who dances?"]),
        ([], ["who dances?"]),
        (["Bob dances"], []),
    ]
    cached.cache.close()


def test_pieces_are_kept_and_forgotten_with_their_vector(
    tmp_path: Path, minilm: PieceEmbedder
) -> None:
    cache = VectorCache(tmp_path / "some.mdb")
    cached = CachedEmbedder(minilm, cache)
    cached.vectors(["one text", "another"])
    keys = [key_of("one text"), key_of("another")]
    assert [len(pieces or b"") // PIECE_BYTES for pieces in cached.pieces(keys)] == [2, 1]
    cache.discard(["another"])
    assert cached.pieces(keys)[1] is None
    cache.compact()
    assert cached.pieces(keys)[0]
    cache.close()


def test_a_text_that_was_embedded_without_its_pieces_is_embedded_again_for_them(
    tmp_path: Path, minilm: PieceEmbedder
) -> None:
    cache = VectorCache(tmp_path / "some.mdb")
    without = CachedEmbedder(minilm, cache, pieces=False)
    vectors = without.vectors(["one text"])
    assert without.query("one text")[1] is not None
    assert without.pieces([key_of("one text")]) == [None]
    cached = CachedEmbedder(minilm, cache)
    assert (cached.vectors(["one text"]) == vectors).all()
    assert cached.pieces([key_of("one text")]) != [None]
    cache.close()


# -- late interaction


def asked_for(vectors: Vectors, *words: str) -> Asked:
    return Asked(unit(vectors), words, tuple(range(len(words))), vectors.astype(np.float16))


def test_what_one_text_has_not_its_neighbour_may_have_a_little_less() -> None:
    first, second = drawn(1), drawn(1)
    stored = pack([first, second, np.concatenate([first, second])])
    asked = asked_for(np.concatenate([first, second]), "first", "second")
    alone = interaction(asked, np.ones(2, np.float32), stored, ())
    nobody = np.array([-1, -1, -1])
    beside = interaction(asked, np.ones(2, np.float32), stored, (nobody, np.array([1, -1, -1])))
    assert alone[2] > 0.95
    assert alone[0] == pytest.approx(alone[1], abs=0.05)
    assert beside[1] == alone[1] and beside[2] == alone[2]
    assert alone[0] < beside[0] < alone[2]


def test_a_text_without_pieces_has_no_score_and_lends_none() -> None:
    vector = drawn(1)
    (stored,) = pack([vector])
    asked = asked_for(vector, "word")
    scores = interaction(asked, np.ones(1, np.float32), [None, stored, b""], (np.array([1, 0, 1]),))
    assert np.isnan(scores).tolist() == [True, False, True]
    assert scores[1] == pytest.approx(1, abs=0.05)


def test_a_word_shares_its_rarity_among_its_pieces_and_stop_words_count_nothing() -> None:
    drawn_at_random = drawn(4)
    states = drawn_at_random.astype(np.float16)
    asked = Asked(drawn_at_random, ("the", "zebra", "zebra", "?"), (0, 1, 1, 2), states)
    assert weights(asked, lambda word: 3.0 * (word == "zebra")).tolist() == [0, 1.5, 1.5, 0]
    assert weights(asked, lambda word: 0.0).tolist() == [1, 1, 1, 1]


def test_words_that_the_model_reads_in_pieces_are_told_with_where_they_stand() -> None:
    drawn_at_random = drawn(7)
    words = ("the", "zeb", "zeb", "tige", "tige", "tige", "sings")
    states = drawn_at_random.astype(np.float16)
    asked = Asked(drawn_at_random, words, (0, 1, 1, 2, 2, 2, 3), states)
    found = {
        word: np.flatnonzero(pieces).tolist() for word, pieces in words_in_pieces(asked).items()
    }
    assert found == {"zeb": [1, 2], "tige": [3, 4, 5]}


def test_the_vector_of_a_question_is_most_of_all_that_of_the_pieces_that_count() -> None:
    states = np.array([[1, 0, 0], [0, 2, 0], [0, 0, 4]], np.float32)
    asked = Asked(unit(states), ("the", "zebra", "sings"), (0, 1, 2), states.astype(np.float16))
    found = pointed(states[0], asked, np.array([0, 3, 2], np.float32))
    assert found is not None
    assert np.linalg.norm(found) == pytest.approx(1)
    assert found.tolist() == pytest.approx([x / np.hypot(0.3, 0.7) for x in (0.3, 0.42, 0.56)])


def test_a_question_whose_words_count_alike_is_pointed_to_what_they_mean() -> None:
    own, states = drawn(1)[0], drawn(3)
    asked = asked_for(states, "who", "are", "they")
    found = pointed(own, asked, weights(asked, lambda word: 0.0))
    assert found is not None
    mean = asked.states.astype(np.float32).sum(axis=0)
    expected = 0.3 * own + 0.7 * mean / np.linalg.norm(mean)
    assert found == pytest.approx(expected / np.linalg.norm(expected), abs=1e-6)


def test_a_question_without_pieces_keeps_the_vector_that_the_model_gave_it() -> None:
    assert pointed(drawn(1)[0], asked_for(drawn(0)), np.ones(0, np.float32)) is None


def test_a_question_is_pointed_to_what_its_rare_words_mean(minilm: PieceEmbedder) -> None:
    own, asked = minilm.asked("What did Melanie tell Caroline about her telescope?")
    counted = weights(asked, lambda word: {"telescope": 3.0, "tell": 1.0}.get(word, 0.0))
    found = pointed(own, asked, counted)
    assert found is not None
    wanted, talk = minilm.embed(["a spyglass to look at the stars", "Melanie told Caroline"])
    assert found @ wanted > own @ wanted
    assert found @ talk < own @ talk - 0.2
