"""all-MiniLM-L6-v2 on onnxruntime: 384 dimensions, mean pooling, unit length, fp32.

Promises: the vector of a text does not depend on what it is embedded with, beyond the last bits of
float32. The first 256 word pieces of a text count, as in the model's own configuration; what lies
beyond is not seen. Loading takes about 0.4 s, of which 70 ms verify the weights.

Not taken: int8. Dynamic quantisation halves the time of a single text, but turns its vector (cosine
to fp32 about 0.95) and costs half a point of recall; texts are embedded once and queries are cached.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memlog.errors import EmbeddingError
from projections.embedding.pieces import Asked, directions, pack, unit
from projections.embedding.weights import MODEL_SHA256, Weights, find_folder

if TYPE_CHECKING:
    from projections.embedding.embedder import EmbedderSpec, Vectors

MODEL_NAMES = ("all-MiniLM-L6-v2", "sentence-transformers/all-MiniLM-L6-v2")
DIMENSIONS = 384
HEADS = 12
PIECES_MAX = (
    256  # of one text, [CLS] and [SEP] included: max_seq_length in the model's configuration
)
CHARACTERS_MAX = 8192  # of one text: far more than 256 pieces of any script, far less than a book
BATCH_TEXTS_MAX = 32
BATCH_PIECES_MAX = 4096  # of one batch, padding included: bounds the attention scores to 50 MB
PADDING_SMALL = 8  # pieces: less than this is cheaper to pad than to run the model once more
THREADS_MAX = 4  # two halve the time of a batch, 4.2 to 2.3 ms a text of 15 pieces


def open_minilm(spec: EmbedderSpec) -> MiniLM:
    """Raises EmbeddingError where the weights cannot be had or are not the right ones."""
    if spec.model not in (None, *MODEL_NAMES):
        raise EmbeddingError(
            f"The built-in embedder has one model, {MODEL_NAMES[0]}, and not {spec.model!r}",
            suggestion="Set MEMLOG_EMBEDDER to fastembed or openai to use another model.",
        )
    weights = Weights(find_folder(spec.model_dir, spec.cache_dir))
    return MiniLM(weights, spec.cache_dir, threads=spec.threads)


class MiniLM:
    """The local embedder. Texts of similar length go through the model together."""

    key = f"all-minilm-l6-v2-{MODEL_SHA256[:12]}-fp32"
    dimensions = DIMENSIONS

    def __init__(self, weights: Weights, cache_dir: Path, *, threads: int | None = None) -> None:
        from tokenizers import Tokenizer

        self._weights = weights  # the session reads its tensors where they are mapped
        self._tokenizer = Tokenizer.from_str(weights.tokenizer_json)
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(PIECES_MAX)
        self._session = _session(weights, cache_dir, threads or _threads_by_default())

    def embed(self, texts: Sequence[str]) -> Vectors:
        import numpy as np

        vectors = np.empty((len(texts), DIMENSIONS), np.float32)
        for batch, pieces in self._batches(texts):
            vectors[batch] = self._run(["pooled"], pieces)[0]
        return vectors

    def embed_with_pieces(self, texts: Sequence[str]) -> tuple[Vectors, list[bytes]]:
        import numpy as np

        vectors = np.empty((len(texts), DIMENSIONS), np.float32)
        packed = [b""] * len(texts)
        for batch, pieces in self._batches(texts):
            vectors[batch], states = self._run(["pooled", "reduced"], pieces)
            for row, own in zip(batch, pack([*_own(states, pieces)]), strict=True):
                packed[row] = own
        return vectors, packed

    def asked(self, text: str) -> tuple[Vectors, Asked]:
        encoded = self._tokenizer.encode(text[:CHARACTERS_MAX])
        pooled, states = self._run(["pooled", "reduced"], [encoded.ids])
        words = [word for word in encoded.word_ids if word is not None]  # [CLS], [SEP]
        spans = [encoded.word_to_chars(word) or (0, 0) for word in words]
        said = tuple(text[start:stop] for start, stop in spans)
        return pooled[0], Asked(unit(states[0, 1:-1]), said, tuple(words))

    def states(self, texts: Sequence[str]) -> Iterator[Vectors]:
        """The last hidden states (pieces, width) of each text, in no order, [CLS] and [SEP] left out."""
        for _, pieces in self._batches(texts):
            yield from _own(self._run(["tokens"], pieces)[0], pieces)

    def vocabulary(self) -> list[str]:
        """The word pieces that the model knows, as it numbers them: common ones come first."""
        numbers: dict[str, int] = self._tokenizer.get_vocab()
        return sorted(numbers, key=numbers.__getitem__)

    def _batches(self, texts: Sequence[str]) -> Iterator[tuple[list[int], list[list[int]]]]:
        encoded = self._tokenizer.encode_batch_fast([text[:CHARACTERS_MAX] for text in texts])
        pieces = [each.ids for each in encoded]
        for batch in batches([len(ids) for ids in pieces]):
            yield batch, [pieces[row] for row in batch]

    def _run(self, wanted: list[str], pieces: list[list[int]]) -> list[Vectors]:
        import numpy as np

        longest = max(map(len, pieces))
        ids = np.zeros((len(pieces), longest), np.int64)  # 0 is [PAD]
        mask = np.zeros((len(pieces), longest), np.float32)
        for row, own in enumerate(pieces):
            ids[row, : len(own)] = own
            mask[row, : len(own)] = 1
        feeds = {"ids": ids, "mask": mask, "positions": np.arange(longest)}
        try:
            found: list[Vectors] = self._session.run(wanted, feeds)
        except Exception as error:  # onnxruntime's own classes derive from nothing narrower
            raise EmbeddingError(
                f"The model failed on a batch of {len(pieces)} texts: {error}",
                suggestion="Most often memory ran out: close something and call again.",
            ) from error
        return found


def _own(states: Vectors, pieces: list[list[int]]) -> Iterator[Vectors]:
    """The states of each text's pieces, without [CLS], [SEP] and padding."""
    for row, own in zip(states, pieces, strict=True):
        yield row[1 : len(own) - 1]


def batches(lengths: Sequence[int]) -> Iterator[list[int]]:
    """The indexes of `lengths` in groups of similar length, each within the limits of a batch."""
    batch: list[int] = []
    for index in sorted(range(len(lengths)), key=lengths.__getitem__):
        longest, texts = lengths[index], len(batch) + 1
        if batch and (
            texts > BATCH_TEXTS_MAX
            or texts * longest > BATCH_PIECES_MAX
            or longest > 1.5 * lengths[batch[0]] + PADDING_SMALL
        ):
            yield batch
            batch = []
        batch.append(index)
    if batch:
        yield batch


def _threads_by_default() -> int:
    return min(THREADS_MAX, os.cpu_count() or 1)


def _session(weights: Weights, cache_dir: Path, threads: int) -> Any:
    import onnxruntime

    from projections.embedding.graph import GRAPH_VERSION, graph

    tensors = weights.tensors
    path = cache_dir / f"all-minilm-l6-v2-{MODEL_SHA256[:12]}-v{GRAPH_VERSION}.graph"
    shapes = {name: tensor.shape for name, tensor in tensors.items()}
    used = [name for name in tensors if not name.startswith("pooler.")]
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = threads
    # Threads that spin while they wait for the next operation bring one query from 4.5 to 3.5 ms and
    # batches nothing, but burn a third more CPU, on the cores of whoever else runs here: with these
    # busy, a query takes twice as long as without spinning. (2 cores, 15 pieces; one thread: 5.7 ms.)
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.add_external_initializers(
        used, [onnxruntime.OrtValue.ortvalue_from_numpy(tensors[name]) for name in used]
    )
    serialized = graph(path, shapes, heads=HEADS, directions=directions())
    try:
        return onnxruntime.InferenceSession(serialized, options, ["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime's own classes derive from nothing narrower
        raise EmbeddingError(
            f"onnxruntime {onnxruntime.__version__} cannot load the model: {error}",
            suggestion="Install onnxruntime 1.22 or newer.",
        ) from error
