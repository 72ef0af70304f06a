"""The encoder with its dense layers in eight bits, which halves the time of a text.

Promises: the vector of a text still does not depend on what it is embedded with, for the scale of what goes
into a layer is a constant, found beforehand by `ranges`; what lies outside is cut off. And processors agree
to the last bit on a layer: weights keep to 7 of their 8 bits, because where a processor multiplies bytes
without VNNI it adds two products in 16 bits, and 2 * 255 * 64 fits there where 2 * 255 * 127 does not.

A weight matrix is quantised by its rows, one for each output, symmetrically around zero: a weight is its
int8 number times the scale of its row. What goes into a layer is uint8 around a zero of its own. A few of
its dimensions reach ten times as far as the others and would leave these hardly a level; so each dimension
is divided by a factor first, and the weights that meet it are multiplied by it (SmoothQuant: Xiao et al.,
2022). On LoCoMo all this costs nothing that can be measured (docs/search.md).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from projections.embedding.graph import CONTRIBUTED, FLOAT, INT8, INT32, UINT8, Encoder, layers_of
from projections.embedding.shipped import shipped

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from projections.embedding.embedder import Vectors

    Limits = Mapping[str, Vectors]
    """Of each layer, by its name, float32 (2, in): the least and the greatest number in each dimension."""

LIMITS = Path(__file__).with_name("limits.float16")
"""The limits of all layers after one another, in the order of `inputs`, little-endian."""

WEIGHT_MAX = 63
LEVEL_MAX = 255
SMOOTHING = 0.8
"""How much of what a dimension reaches further is moved into the weights; less and more turn vectors further."""

SMALLEST = 1e-5
PARTS = ("query", "key", "value")
DENSE = ("attention.output.dense", "intermediate.dense", "output.dense")


def attention(layer: int) -> str:
    return f"encoder.layer.{layer}.attention.self"


def matrices(tensors: Mapping[str, Vectors]) -> Iterator[tuple[str, Vectors]]:
    """The weights (out, in) of each layer and its name; what reads the same numbers is one layer."""
    import numpy as np

    for layer in range(layers_of(tensors)):
        name = attention(layer)
        yield name, np.concatenate([tensors[f"{name}.{part}.weight"] for part in PARTS])
        for dense in DENSE:
            name = f"encoder.layer.{layer}.{dense}"
            yield name, tensors[f"{name}.weight"]


def limits(tensors: Mapping[str, Vectors]) -> Limits:
    """Those of the model with these tensors, as `ranges` found them."""
    stored = shipped(LIMITS)
    found, start = {}, 0
    for name, matrix in matrices(tensors):
        width = matrix.shape[1]
        found[name] = stored[start : start + 2 * width].reshape(2, width)
        start += 2 * width
    return found


def quantized(tensors: Mapping[str, Vectors], limits: Limits) -> dict[str, NDArray[Any]]:
    """What a session of `QuantizedEncoder` is to be given, by name. Of each layer

        <name>.factors  float32 (in,)      by which to multiply what goes in
        <name>.step     float32 ()         what one level of it is worth then
        <name>.zero     uint8 ()           the level of 0
        <name>.int8     int8 (in, out)     the weights
        <name>.scales   float32 (out,)     what one level of them is worth

    and the tensors that stay as they are.
    """
    import numpy as np

    given: dict[str, NDArray[Any]] = {
        name: tensor
        for name, tensor in tensors.items()
        if "LayerNorm" in name or name.startswith("embeddings.") or name.endswith("dense.bias")
    }
    for layer in range(layers_of(tensors)):
        name = attention(layer)
        given[f"{name}.bias"] = np.concatenate([tensors[f"{name}.{part}.bias"] for part in PARTS])
    for name, matrix in matrices(tensors):
        factors = _factors(matrix, limits[name])
        low, high = limits[name] * factors
        low, high = min(low.min(), 0.0), max(high.max(), 0.0)
        step = max((high - low) / LEVEL_MAX, SMALLEST)
        given[f"{name}.factors"] = factors
        given[f"{name}.step"] = np.array(step, np.float32)
        given[f"{name}.zero"] = np.array(round(-low / step), np.uint8)
        given[f"{name}.int8"], given[f"{name}.scales"] = _by_rows(matrix / factors)
    return given


def _factors(matrix: Vectors, limits: Vectors) -> Vectors:
    import numpy as np

    reach = np.maximum(np.abs(limits).max(axis=0), SMALLEST)
    weight = np.maximum(np.abs(matrix).max(axis=0), SMALLEST)
    factors = weight ** (1 - SMOOTHING) / reach**SMOOTHING
    even: Vectors = (factors / np.exp(np.log(factors).mean())).astype(np.float32)
    return even


def _by_rows(matrix: Vectors) -> tuple[NDArray[Any], Vectors]:
    """(out, in) as int8 (in, out), and the scale of each output."""
    import numpy as np

    largest = np.abs(matrix).max(axis=1)
    scales = np.maximum(largest / WEIGHT_MAX, SMALLEST).astype(np.float32)
    numbers = np.rint(matrix / scales[:, np.newaxis]).astype(np.int8)
    return np.ascontiguousarray(numbers.T), scales


class QuantizedEncoder(Encoder):
    """`Encoder` in eight bits. Texts keep their shape (texts, pieces, width) from end to end."""

    def as_rows(self, values: str) -> str:
        return values

    def by_text(self, rows: str, output: str) -> str:
        return self.node("Identity", rows, output=output)

    def attention(self, name: str, rows: str) -> str:
        outputs = 3 * self.width
        entered, weight, step, scales, zero = self._eight_bits(name, rows, self.width, outputs)
        bias, mask = self._floats(f"{name}.bias", outputs), self.node("Cast", "mask", to=INT32)
        inputs = (entered, weight, bias, step, scales, mask, zero)
        return self.node("QAttention", *inputs, domain=CONTRIBUTED, num_heads=self.heads)

    def dense(self, name: str, rows: str) -> str:
        outputs, width = self.shapes[f"{name}.weight"]
        entered, weight, step, scales, zero = self._eight_bits(name, rows, width, outputs)
        inputs = (entered, weight, step, scales, zero, "", self.weight(f"{name}.bias"))
        return self.node("MatMulIntegerToFloat", *inputs, domain=CONTRIBUTED)

    def _eight_bits(
        self, name: str, rows: str, width: int, outputs: int
    ) -> tuple[str, str, str, str, str]:
        """What goes in, and the weights; the scales of both, and the zero of the first."""
        step, zero = self._floats(f"{name}.step"), self.given(f"{name}.zero", UINT8, ())
        even = self.node("Mul", rows, self._floats(f"{name}.factors", width))
        entered = self.node("QuantizeLinear", even, step, zero)
        weight = self.given(f"{name}.int8", INT8, (width, outputs))
        return entered, weight, step, self._floats(f"{name}.scales", outputs), zero

    def _floats(self, name: str, *shape: int) -> str:
        return self.given(name, FLOAT, shape)
