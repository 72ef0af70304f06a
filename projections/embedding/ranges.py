"""`python -m projections.embedding.ranges`: finds between what limits the numbers lie that go into each layer.

They are those of the model in float32 on rows of words out of its own vocabulary, drawn at random: common
ones, then any at all in any script, alone too. So no text of anybody's is in them. What a stranger text
brings beyond them is cut off, in a few outlying dimensions.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from projections.embedding.basis import common_words, drawn
from projections.embedding.graph import FLOAT, Encoder, Shapes, build
from projections.embedding.minilm import HEADS, MiniLM, feeds, session
from projections.embedding.quantized import LIMITS, PARTS, matrices
from projections.embedding.weights import Weights, find_folder

if TYPE_CHECKING:
    from projections.embedding.embedder import Vectors

COMMON_TEXTS, COMMON_WORDS = 400, 12
ANY_TEXTS, ANY_WORDS = 200, 8
SINGLE_WORDS = 200
UNUSED = 999  # numbers in front of the first real piece


class Watched(Encoder):
    """The encoder in float32, which also gives what goes into each of its layers."""

    def __init__(self, shapes: Shapes) -> None:
        super().__init__(shapes, HEADS)
        self.entering: dict[str, str] = {}

    def dense(self, name: str, rows: str) -> str:
        from onnx import helper

        if rows not in self.entering.values():
            self.more_outputs.append(helper.make_tensor_value_info(rows, FLOAT, None))
        self.entering[name] = rows
        return super().dense(name, rows)


def found(weights: Weights, model: MiniLM, texts: list[str]) -> dict[str, Vectors]:
    """The least and the greatest number in each dimension, (2, in), by the name of what it goes into."""
    tensors = weights.encoder
    watched = Watched({name: tensor.shape for name, tensor in tensors.items()})
    running = session(build(watched), tensors)
    outputs = list(dict.fromkeys(watched.entering.values()))
    limits: dict[str, Vectors] = {}
    for text in texts:
        states = running.run(outputs, feeds([model.pieces(text)]))
        for output, entering in zip(outputs, states, strict=True):
            rows = entering.reshape(-1, entering.shape[-1])
            seen = np.concatenate([rows, limits.get(output, rows[:1])])
            limits[output] = np.array([seen.min(axis=0), seen.max(axis=0)])
    return {name: limits[output] for name, output in watched.entering.items()}


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        weights = Weights(find_folder(None, Path(folder)))
        model = MiniLM(weights, Path(folder), float32=True)
        words = [word for word in model.vocabulary()[UNUSED:] if not word.startswith("##")]
        texts = [
            *drawn(common_words(model), COMMON_TEXTS, COMMON_WORDS),
            *drawn(words, ANY_TEXTS, ANY_WORDS),
            *drawn(words, SINGLE_WORDS, 1),
        ]
        limits = found(weights, model, texts)
        names = [name for name, _ in matrices(weights.encoder)]
    stored = [limits[name if name in limits else f"{name}.{PARTS[0]}"] for name in names]
    LIMITS.write_bytes(b"".join(each.astype("<f2").tobytes() for each in stored))


if __name__ == "__main__":
    main()
