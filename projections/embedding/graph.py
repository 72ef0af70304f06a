"""The forward pass of a BERT encoder as an ONNX graph, without its weights.

Promises: `graph` returns a graph of some 200 KB that names every weight and holds none; the session gets
the weights from the verified file itself (`SessionOptions.add_initializer`). So nothing
of 90 MB is built, written, verified or kept a second time. The built graph is cached on disk only
because importing `onnx` to build it takes longer than everything else about it (0.1 s).

Inputs:  ids (texts, pieces) int64; mask (texts, pieces) float32, 1 for a piece, 0 for padding;
         positions (pieces,) int64. Positions are an input because the chain Shape, Range, Gather
         trips a fusion in onnxruntime 1.31.
Outputs: pooled (texts, width): unit vectors of the mean over the pieces of a text;
         tokens (texts, pieces, width): the last hidden states, one for each piece;
         reduced (texts, pieces, fewer): the same along the `directions`, if any were given.

Source of the architecture: Devlin et al., BERT (2019), post-norm, with the exact (erf) Gelu.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memlog.errors import EmbeddingError
from memlog.storage.disk import write_whole
from projections.embedding.embedder import installing

if TYPE_CHECKING:
    from onnx import NodeProto, TensorProto, ValueInfoProto

    from projections.embedding.embedder import Vectors

GRAPH_VERSION = 3  # part of the cached file's name: raise it with every change of the graph
OPSET = 20
CONTRIBUTED = "com.microsoft"  # onnxruntime's own operators
IR_VERSION = 10
EPSILON = 1e-12  # all-MiniLM-L6-v2, config.json, layer_norm_eps
MASKED = -1e9  # added to the score of padding: exp() of it is exactly zero
DIGEST_BYTES = 32

FLOAT, UINT8, INT8, INT32, INT64 = 1, 2, 3, 6, 7
"""Of onnx.TensorProto.DataType, whose import is left to those who build a graph."""

Shapes = Mapping[str, tuple[int, ...]]


def graph(path: Path, encoder: Encoder) -> bytes:
    """The graph of `encoder`: read from `path` if it is whole there, else built.

    The file begins with the SHA-256 of the rest, so a truncated or flipped one is built anew.
    """
    with suppress(OSError):
        content = path.read_bytes()
        if content[:DIGEST_BYTES] == hashlib.sha256(content[DIGEST_BYTES:]).digest():
            return content[DIGEST_BYTES:]
    built = build(encoder)
    with suppress(OSError):  # a cache that cannot be written costs a moment at the next start
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, hashlib.sha256(built).digest() + built)
    return built


def build(encoder: Encoder) -> bytes:
    """The serialized graph. Raises EmbeddingError where the package `onnx` is missing."""
    try:
        import onnx  # noqa: F401
    except ImportError as error:
        raise EmbeddingError(
            "Preparing the model for its first use needs the package onnx",
            suggestion=f"{installing('onnx')}, or set MEMLOG_EMBEDDER=none.",
        ) from error
    return encoder.serialized()


def layers_of(names: Iterable[str]) -> int:
    """How many layers an encoder has whose tensors are called so."""
    return sum(name.endswith("attention.self.query.weight") for name in names)


class Encoder:
    """Collects nodes, constants and the names of weights while the graph is written down.

    This one computes in float32. The pieces of all texts go through the dense layers as rows of one
    matrix: a Gemm takes the weights as they lie in the file, (out, in), where a MatMul would want 40 MB
    of them transposed. It is what `quantized` is measured by, and what `ranges` watches.
    """

    def __init__(self, shapes: Shapes, heads: int, directions: Vectors | None = None) -> None:
        self.directions = directions
        self.shapes = shapes
        self.heads = heads
        self.width = shapes["embeddings.word_embeddings.weight"][1]
        self.layers = layers_of(shapes)
        self.nodes: list[NodeProto] = []
        self.more_outputs: list[ValueInfoProto] = []
        self.initializers: dict[str, TensorProto] = {}

    def serialized(self) -> bytes:
        from onnx import helper

        rows = self.embedded()
        for layer in range(self.layers):
            rows = self.layer(f"encoder.layer.{layer}.", rows)
        self.pool(rows)
        declare = helper.make_tensor_value_info
        model = helper.make_model(
            helper.make_graph(
                self.nodes,
                "encoder",
                [
                    declare("ids", INT64, ["texts", "pieces"]),
                    declare("mask", FLOAT, ["texts", "pieces"]),
                    declare("positions", INT64, ["pieces"]),
                ],
                [
                    declare("pooled", FLOAT, ["texts", self.width]),
                    declare("tokens", FLOAT, ["texts", "pieces", self.width]),
                    *self.more_outputs,
                ],
                list(self.initializers.values()),
            ),
            opset_imports=[helper.make_opsetid("", OPSET), helper.make_opsetid(CONTRIBUTED, 1)],
            ir_version=IR_VERSION,
        )
        serialized: bytes = model.SerializeToString()
        return serialized

    def embedded(self) -> str:
        """Word + position + the type of a first sentence, normalised, as (rows, width)."""
        word, position, kind = (
            self.weight(f"embeddings.{name}_embeddings.weight")
            for name in ("word", "position", "token_type")
        )
        places = self.node("Gather", position, "positions")
        first_type = self.node("Gather", kind, self.integers("first", 0))
        where = self.node("Add", places, first_type)
        added = self.node("Add", self.node("Gather", word, "ids"), where)
        normal = self.norm("embeddings.LayerNorm", added)
        self.shape = self.node("Shape", "ids")
        absent = self.node("Unsqueeze", "mask", self.integers("heads and queries", [1, 2]))
        absent = self.node("Sub", self.floats("one", 1.0), absent)
        self.bias = self.node("Mul", absent, self.floats("masked", MASKED))
        return self.as_rows(normal)

    def layer(self, name: str, rows: str) -> str:
        mixed = self.attention(f"{name}attention.self", rows)
        mixed = self.dense(f"{name}attention.output.dense", mixed)
        rows = self.norm(f"{name}attention.output.LayerNorm", self.node("Add", mixed, rows))
        inner = self.node("Gelu", self.dense(f"{name}intermediate.dense", rows))
        inner = self.dense(f"{name}output.dense", inner)
        return self.norm(f"{name}output.LayerNorm", self.node("Add", inner, rows))

    def attention(self, name: str, rows: str) -> str:
        """What each piece takes from all pieces of its text."""
        width_per_head = self.width // self.heads
        query, key, value = (
            self.split(self.dense(f"{name}.{part}", rows), permutation)
            for part, permutation in (
                ("query", [0, 2, 1, 3]),
                ("key", [0, 2, 3, 1]),
                ("value", [0, 2, 1, 3]),
            )
        )
        query = self.node("Mul", query, self.floats("scale", width_per_head**-0.5))
        scores = self.node("Add", self.node("MatMul", query, key), self.bias)
        mixed = self.node("MatMul", self.node("Softmax", scores, axis=-1), value)
        return self.as_rows(self.node("Transpose", mixed, perm=[0, 2, 1, 3]))

    def pool(self, rows: str) -> None:
        """The sum over a text's pieces points where their mean does, and its length is divided away."""
        tokens = self.by_text(rows, output="tokens")
        mask = self.node("Unsqueeze", "mask", self.integers("last", [2]))
        kept = self.node("Mul", tokens, mask)
        if self.directions is not None:
            self.reduce(tokens, self.directions)
        total = self.node("ReduceSum", kept, self.integers("pieces", [1]), keepdims=0)
        self.node("LpNormalization", total, output="pooled", axis=1, p=2)

    def reduce(self, tokens: str, directions: Vectors) -> None:
        """The directions are small enough (150 KB) to be in the graph itself."""
        from onnx import helper, numpy_helper

        self.initializers["directions"] = numpy_helper.from_array(directions, "directions")
        self.node("MatMul", tokens, "directions", output="reduced")
        shape = ["texts", "pieces", directions.shape[1]]
        self.more_outputs.append(helper.make_tensor_value_info("reduced", FLOAT, shape))

    def split(self, rows: str, permutation: list[int]) -> str:
        """(rows, width) to (texts, pieces, heads, width of a head), transposed."""
        sizes = self.integers("a head", [self.heads, self.width // self.heads])
        shape = self.node("Concat", self.shape, sizes, axis=0)
        return self.node("Transpose", self.node("Reshape", rows, shape), perm=permutation)

    def by_text(self, rows: str, output: str) -> str:
        """(rows, width) to (texts, pieces, width)."""
        shape = self.node("Concat", self.shape, self.integers("width", [self.width]), axis=0)
        return self.node("Reshape", rows, shape, output=output)

    def as_rows(self, values: str) -> str:
        return self.node("Reshape", values, self.integers("rows", [-1, self.width]))

    def dense(self, name: str, rows: str) -> str:
        weight, bias = self.weight(f"{name}.weight"), self.weight(f"{name}.bias")
        return self.node("Gemm", rows, weight, bias, transB=1)

    def norm(self, name: str, rows: str) -> str:
        weight, bias = self.weight(f"{name}.weight"), self.weight(f"{name}.bias")
        return self.node("LayerNormalization", rows, weight, bias, axis=-1, epsilon=EPSILON)

    def node(self, operator: str, *inputs: str, output: str | None = None, **options: Any) -> str:
        from onnx import helper

        output = output or f"{operator} {len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, inputs, [output], **options))
        return output

    def weight(self, name: str) -> str:
        """Declared as lying elsewhere; the session is given it by name before it looks there."""
        return self.given(name, FLOAT, self.shapes[name])

    def given(self, name: str, kind: int, shape: Sequence[int]) -> str:
        from onnx import TensorProto

        tensor = TensorProto(
            name=name, data_type=kind, dims=shape, data_location=TensorProto.EXTERNAL
        )
        tensor.external_data.add(key="location", value="given-to-the-session")
        self.initializers[name] = tensor
        return name

    def integers(self, name: str, values: int | list[int]) -> str:
        dims, flat = ([len(values)], values) if isinstance(values, list) else ([], [values])
        return self._constant(name, INT64, dims, flat)

    def floats(self, name: str, value: float) -> str:
        return self._constant(name, FLOAT, [], [value])

    def _constant(self, name: str, kind: int, dims: list[int], flat: Sequence[float]) -> str:
        from onnx import helper

        self.initializers[name] = helper.make_tensor(name, kind, dims, flat)
        return name
