"""all-MiniLM-L6-v2 on onnxruntime: 384 dimensions, mean pooling, unit length, in eight bits (`quantized`).

Promises: the vector of a text does not depend on what it is embedded with, beyond the last bits of
float32. The first 256 word pieces of a text count, as in the model's own configuration; what lies
beyond is not seen. Loading takes about 0.5 s, of which 70 ms verify the weights.

One run of the model has one thread: a second one hardly helps a single text, and where several are to be
embedded, several runs side by side use the processors better than one run in several threads.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from memlog.crew import Crew
from memlog.errors import EmbeddingError
from memlog.niceness import be_nice, is_nice
from memlog.storage.errors import for_shortage
from memlog.storage.resident import give_back_freed
from projections.embedding.computing import computes
from projections.embedding.graph import GRAPH_VERSION, Encoder, graph
from projections.embedding.pieces import Asked, directions, pack, unit
from projections.embedding.quantized import QuantizedEncoder, limits, quantized
from projections.embedding.weights import MODEL_SHA256, Weights, find_folder

if TYPE_CHECKING:
    from projections.embedding.embedder import EmbedderSpec, Vectors

MODEL_NAMES = (
    "all-MiniLM-L6-v2",
    "sentence-transformers/all-MiniLM-L6-v2",
    "Xenova/all-MiniLM-L6-v2",  # the same weights as transformers.js names them
)
DIMENSIONS = 384
HEADS = 12
PIECES_MAX = 256
"""Of one text, [CLS] and [SEP] included: max_seq_length in the model's configuration."""
CHARACTERS_MAX = 8192  # of one text: far more than 256 pieces of any script, far less than a book
BATCH_TEXTS_MAX = 16  # more are hardly quicker, a text
BATCH_PIECES_MAX = 1024  # of one batch, padding included: bounds what a run takes to 15 MB
PADDING_SMALL = 8  # pieces: less than this is cheaper to pad than to run the model once more
THREADS_MAX = 4

Item = TypeVar("Item")

Batch = tuple[list[int], list[list[int]]]
"""The numbers of its texts among all, and the pieces of each."""


def open_minilm(spec: EmbedderSpec) -> MiniLM:
    """Raises EmbeddingError where the weights cannot be had or are not the right ones."""
    if spec.model not in (None, *MODEL_NAMES):
        raise EmbeddingError(
            f"The built-in embedder has one model, {MODEL_NAMES[0]}, and not {spec.model!r}",
            suggestion="Set MEMLOG_EMBEDDER to fastembed or openai to use another model.",
        )
    weights = Weights(find_folder(spec.model_dir, spec.cache_dir))
    return MiniLM(weights, spec.cache_dir)


class MiniLM:
    """The local embedder. Texts of similar length go through the model together.

    For characters that it does not know, as many of Chinese and every emoji, and for words of more than a hundred, the
    model has one piece: any two of them would be the same word. So they are left out of the pieces of a text, and a
    text of nothing else has no meaning here: its vector is zero, which is near to nothing.
    """

    key = f"all-minilm-l6-v2-{MODEL_SHA256[:12]}-int8-known"
    dimensions = DIMENSIONS

    def __init__(self, weights: Weights, cache_dir: Path, *, float32: bool = False) -> None:
        """With `float32` it computes as its weights are written, which only measurements are to do."""
        from tokenizers import Tokenizer

        self._tokenizer = Tokenizer.from_str(weights.tokenizer_json)
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(PIECES_MAX)
        self._unknown = int(self._tokenizer.token_to_id("[UNK]") or 0)
        self._threads = min(THREADS_MAX, os.cpu_count() or 1)
        # Who helps has the priority of whom it helps: a search that waits for a few texts must not wait for a thread
        # that lets everybody go first, nor searches for those who help with an import.
        helpers = max(1, self._threads - 1)
        self._helpers = Crew(helpers, "embedding")
        self._nice_helpers = Crew(helpers, "nice-embedding", initializer=be_nice)
        tensors = weights.encoder
        shapes = {name: tensor.shape for name, tensor in tensors.items()}
        if float32:
            encoder, name = Encoder(shapes, HEADS, directions()), "float32"
            given: Mapping[str, Any] = tensors
        else:
            encoder, name = QuantizedEncoder(shapes, HEADS, directions()), "int8"
            given = quantized(tensors, limits(tensors))
        file = cache_dir / f"all-minilm-l6-v2-{MODEL_SHA256[:12]}-{name}-v{GRAPH_VERSION}.graph"
        self._given = given  # the session reads these where they are
        self._session = session(graph(file, encoder), given)
        weights.let_go()
        give_back_freed()

    def embed(self, texts: Sequence[str]) -> Vectors:
        import numpy as np

        vectors = np.empty((len(texts), DIMENSIONS), np.float32)

        def fill(batch: Batch) -> None:
            rows, pieces = batch
            vectors[rows] = self._meant(self._run(["pooled"], pieces)[0], pieces)

        self._each(fill, texts)
        return vectors

    def embed_with_pieces(
        self, texts: Sequence[str], questions: Sequence[str] = ()
    ) -> tuple[Vectors, list[bytes], list[tuple[Vectors, Asked]]]:
        import numpy as np

        every = [*texts, *questions]
        vectors = np.empty((len(every), DIMENSIONS), np.float32)
        packed = [b""] * len(texts)
        states_of: dict[int, Vectors] = {}

        def fill(batch: Batch) -> None:
            rows, pieces = batch
            asks = max(rows) >= len(texts)
            pooled, reduced, *states = self._run(["pooled", "reduced", *["tokens"] * asks], pieces)
            vectors[rows] = self._meant(pooled, pieces)
            own = self._of_characters(reduced, pieces)
            stored = [(row, each) for row, each in zip(rows, own, strict=True) if row < len(texts)]
            for (row, _), each in zip(stored, pack([each for _, each in stored]), strict=True):
                packed[row] = each
            for whole in states:
                states_of.update(zip(rows, self._of_characters(whole, pieces), strict=True))

        self._each(fill, every)
        asked = [
            (vectors[row], self._question(every[row], self._encoded(every[row]), states_of[row]))
            for row in range(len(texts), len(every))
        ]
        return vectors[: len(texts)], packed, asked

    def asked(self, text: str) -> tuple[Vectors, Asked]:
        encoded = self._encoded(text)
        ids = encoded.ids
        pooled, states = self._run(["pooled", "tokens"], [ids])
        (known,) = self._of_characters(states, [ids])
        return self._meant(pooled, [ids])[0], self._question(text, encoded, known)

    def _question(self, text: str, encoded: Any, states: Vectors) -> Asked:
        import numpy as np

        words = [
            word  # None of [CLS] and [SEP]
            for word, piece in zip(encoded.word_ids, encoded.ids, strict=True)
            if word is not None and piece != self._unknown
        ]
        spans = [encoded.word_to_chars(word) or (0, 0) for word in words]
        said = tuple(text[start:stop] for start, stop in spans)
        reduced = unit(states @ directions())
        return Asked(reduced, said, tuple(words), states.astype(np.float16))

    def _encoded(self, text: str) -> Any:
        return self._tokenizer.encode(text[:CHARACTERS_MAX])

    def states(self, texts: Sequence[str]) -> Iterator[Vectors]:
        """The last hidden states (pieces, width) of each text, in no order, [CLS] and [SEP] left out."""
        for _, pieces in self._batches(texts):
            yield from _own(self._run(["tokens"], pieces)[0], pieces)

    def _of_characters(self, states: Vectors, pieces: list[list[int]]) -> Iterator[Vectors]:
        """The states of each text's pieces, without those that stand for no character."""
        unknown = self._unknown
        for own, ids in zip(_own(states, pieces), pieces, strict=True):
            yield own[[each != unknown for each in ids[1:-1]]] if unknown in ids else own

    def _meant(self, vectors: Vectors, pieces: list[list[int]]) -> Vectors:
        """The vectors, zero for a text in which no piece stands for a character."""
        unknown = self._unknown
        nothing = [
            row
            for row, ids in enumerate(pieces)
            if unknown in ids and ids.count(unknown) == len(ids) - 2
        ]
        if nothing:
            vectors[nothing] = 0.0
        return vectors

    def pieces(self, text: str) -> list[int]:
        """The numbers of the word pieces of `text`, [CLS] and [SEP] included."""
        numbers: list[int] = self._encoded(text).ids
        return numbers

    def vocabulary(self) -> list[str]:
        """The word pieces that the model knows, as it numbers them: common ones come first."""
        numbers: dict[str, int] = self._tokenizer.get_vocab()
        return sorted(numbers, key=numbers.__getitem__)

    def _each(self, work: Callable[[Batch], None], texts: Sequence[str]) -> None:
        """Does `work` with each batch of `texts`."""

        def do(share: Sequence[Batch]) -> None:
            for batch in share:
                work(batch)

        self._together(do, self._batches(texts))

    def _together(self, do: Callable[[Sequence[Item]], None], items: Sequence[Item]) -> None:
        """Has this thread and those that help it `do` a share of the items each; this one all where none is to be
        had."""
        shares = [items[start :: self._threads] for start in range(min(self._threads, len(items)))]
        helpers = self._nice_helpers if is_nice() else self._helpers
        helping: list[Future[None]] = []
        try:
            with suppress(RuntimeError):
                for share in shares[1:]:
                    helping.append(helpers.submit(do, share))
            for share in [*shares[:1], *shares[1 + len(helping) :]]:
                do(share)
        finally:
            wait(helping)
        for each in helping:
            each.result()

    def _batches(self, texts: Sequence[str]) -> list[Batch]:
        pieces = self._pieces([text[:CHARACTERS_MAX] for text in texts])
        texts_max = max(1, min(BATCH_TEXTS_MAX, -(-len(texts) // self._threads)))
        return [
            (rows, [pieces[row] for row in rows])
            for rows in batches([len(ids) for ids in pieces], texts_max)
        ]

    def _pieces(self, texts: list[str]) -> list[list[int]]:
        """A few texts here: it takes longer to wake other threads, where the processors are busy."""
        if len(texts) <= BATCH_TEXTS_MAX:
            return [self._tokenizer.encode(text).ids for text in texts]
        pieces: list[list[int]] = [[] for _ in texts]

        def cut(rows: Sequence[int]) -> None:
            encoded = self._tokenizer.encode_batch_fast([texts[row] for row in rows])
            for row, each in zip(rows, encoded, strict=True):
                pieces[row] = each.ids

        self._together(cut, range(len(texts)))
        return pieces

    def _run(self, wanted: list[str], pieces: list[list[int]]) -> list[Vectors]:
        given = feeds(pieces)
        computes()
        try:
            found: list[Vectors] = self._session.run(wanted, given)
        except Exception as error:  # onnxruntime's own classes derive from nothing narrower
            raise EmbeddingError(
                f"The model failed on a batch of {len(pieces)} texts: {error}",
                suggestion="Most often memory ran out: close something and call again.",
            ) from error
        return found


def feeds(pieces: Sequence[Sequence[int]]) -> dict[str, Any]:
    """The inputs of the graph for texts of these pieces."""
    import numpy as np

    longest = max(map(len, pieces))
    ids = np.zeros((len(pieces), longest), np.int64)  # 0 is [PAD]
    mask = np.zeros((len(pieces), longest), np.float32)
    for row, own in enumerate(pieces):
        ids[row, : len(own)] = own
        mask[row, : len(own)] = 1
    return {"ids": ids, "mask": mask, "positions": np.arange(longest)}


def _own(states: Vectors, pieces: list[list[int]]) -> Iterator[Vectors]:
    """The states of each text's pieces, without [CLS], [SEP] and padding."""
    for row, own in zip(states, pieces, strict=True):
        yield row[1 : len(own) - 1]


def batches(lengths: Sequence[int], texts_max: int = BATCH_TEXTS_MAX) -> Iterator[list[int]]:
    """The indexes of `lengths` in groups of similar length, each within the limits of a batch."""
    batch: list[int] = []
    for index in sorted(range(len(lengths)), key=lengths.__getitem__):
        longest, texts = lengths[index], len(batch) + 1
        if batch and (
            texts > texts_max
            or texts * longest > BATCH_PIECES_MAX
            or longest > 1.5 * lengths[batch[0]] + PADDING_SMALL
        ):
            yield batch
            batch = []
        batch.append(index)
    if batch:
        yield batch


def session(serialized: bytes, given: Mapping[str, Any]) -> Any:
    """An onnxruntime session of a graph, with the arrays that the graph only names. Raises EmbeddingError."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    # Beyond this level a norm and the sum before it become one step, which takes three times as long as both.
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.enable_cpu_mem_arena = False  # it keeps what the largest run took, and saves no time
    arrays = {name: onnxruntime.OrtValue.ortvalue_from_numpy(each) for name, each in given.items()}
    options.add_external_initializers(list(arrays), list(arrays.values()))
    for name, array in arrays.items():  # said like this, too, they are read where they are
        options.add_initializer(name, array)
    try:
        return onnxruntime.InferenceSession(serialized, options, ["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime's own classes derive from nothing narrower
        raise EmbeddingError(
            f"onnxruntime {onnxruntime.__version__} cannot load the model: {error}",
            suggestion=for_shortage(error) or "Install onnxruntime 1.22 or newer.",
        ) from error
