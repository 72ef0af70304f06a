"""Vectors on disk and in memory: each text embedded once, whoever asks."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from filelock import FileLock, Timeout

from memlog.errors import EmbeddingError
from memlog.storage import filling
from projections import embeddings
from projections.embedding import CachedEmbedder, VectorCache
from projections.embedding.cached import QUERIES_MAX
from projections.embedding.embedder import unit_rows
from projections.embedding.fair import FairLock
from server import service
from tests.embedder_by_hash import opened_by_hash
from tests.idle_follower import Idle
from tests.service import Client, Refused, client_on

if TYPE_CHECKING:
    from projections.embedding.embedder import Vectors

ROOT = Path(__file__).parent.parent
DEADLINE_SECONDS = 60


class Hashing:
    """An embedder whose vectors are drawn from the text's hash; it lists what it was asked for."""

    key = "hashing"

    def __init__(self, dimensions: int = 8, fails_on: str | None = None) -> None:
        self.dimensions = dimensions
        self.asked: list[list[str]] = []
        self.fails_on = fails_on

    def embed(self, texts: Sequence[str]) -> Vectors:
        if self.fails_on in texts:
            raise EmbeddingError("the endpoint is down")
        self.asked.append(list(texts))
        seeds = [int.from_bytes(hashlib.sha256(text.encode()).digest()[:8]) for text in texts]
        rows = [np.random.default_rng(seed).normal(size=self.dimensions) for seed in seeds]
        return unit_rows(np.array(rows).reshape(len(texts), self.dimensions), "the test")


@pytest.fixture
def cache(tmp_path: Path) -> Iterator[VectorCache]:
    opened = VectorCache(tmp_path / "embeddings" / "hashing.mdb")
    yield opened
    opened.close()


# --- on disk


def test_two_caches_may_be_written_anew_at_once(
    cache: VectorCache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two embedders: one process takes out what was purged, another what a deleted project had."""
    cache.put_many(["a"], np.ones((1, 8), np.float32))
    make = filling.fill

    def while_another_is_written(*arguments: Any, **options: Any) -> None:
        make(*arguments, **options)
        monkeypatch.setattr(filling, "fill", make)
        with closing(VectorCache(tmp_path / "embeddings" / "another.mdb")) as another:
            another.compact()

    monkeypatch.setattr(filling, "fill", while_another_is_written)
    cache.compact()
    (kept,) = cache.get_many(["a"])
    assert kept is not None


def test_a_vector_comes_back_rounded_to_half_precision_and_others_are_absent(
    cache: VectorCache,
) -> None:
    vectors = Hashing().embed(["a", "b"])
    cache.put_many(["a", "b"], vectors)
    b, absent, a = cache.get_many(["b", "c", "a"])
    assert absent is None
    assert a is not None
    assert b is not None
    assert a.dtype == np.float32
    np.testing.assert_array_equal([a, b], vectors.astype(np.float16).astype(np.float32))


def test_a_text_is_the_same_in_either_unicode_form(cache: VectorCache) -> None:
    cache.put_many(["caf\u00e9"], Hashing().embed(["x"]))
    assert cache.get_many(["cafe\u0301"])[0] is not None
    assert cache.get_many(["cafe"]) == [None]


def test_a_discarded_text_is_absent_and_the_others_stay(cache: VectorCache) -> None:
    cache.put_many(["a", "b"], Hashing().embed(["a", "b"]))
    cache.discard(["a", "never stored"])
    a, b = cache.get_many(["a", "b"])
    assert a is None
    assert b is not None


STORE_MANY = """
import sys
from pathlib import Path
import numpy as np
from projections.embedding import VectorCache
cache = VectorCache(Path(sys.argv[1]))
texts = [f"theirs {number}" for number in range(40_000)]
cache.put_many(texts, np.ones((len(texts), 384), np.float32))
cache.close()
"""


def test_the_map_grows_with_what_is_stored_here_and_elsewhere(tmp_path: Path) -> None:
    path = tmp_path / "small.mdb"
    cache = VectorCache(path, map_bytes=64 * 1024)
    texts = [f"ours {number}" for number in range(2_000)]
    cache.put_many(texts, np.ones((len(texts), 384), np.float32))
    subprocess.run([sys.executable, "-c", STORE_MANY, str(path)], cwd=ROOT, check=True)
    found = cache.get_many([*texts, "theirs 0", "theirs 39999"])
    assert all(vector is not None and len(vector) == 384 for vector in found)
    cache.put_many(["after"], np.ones((1, 384), np.float32))
    assert cache.get_many(["after"])[0] is not None
    cache.close()


def open_files() -> Iterator[os.stat_result]:
    """Those of this process."""
    for handle in os.listdir("/dev/fd"):
        with suppress(OSError):  # that of the listing
            yield os.fstat(int(handle))


FORGET = """
import sys
from pathlib import Path
from projections.embedding import VectorCache
cache = VectorCache(Path(sys.argv[1]))
cache.discard(["forgotten"])
cache.compact()
cache.close()
"""


def test_a_cache_that_another_process_writes_anew_is_followed(cache: VectorCache) -> None:
    """As a purge does beside a running server: what that embeds is kept, and what was erased is let go."""
    hashing = Hashing()
    cache.put_many(["kept", "forgotten"], hashing.embed(["kept", "forgotten"]))
    before = os.stat(cache.path).st_ino
    subprocess.run([sys.executable, "-c", FORGET, str(cache.path)], cwd=ROOT, check=True)
    with ThreadPoolExecutor(4) as threads:
        for found in threads.map(cache.get_many, [["kept", "forgotten"]] * 8):
            assert [each is None for each in found] == [False, True]
    cache.put_many(["came later"], hashing.embed(["came later"]))
    assert before not in {status.st_ino for status in open_files()}
    cache.close()
    kept = VectorCache(cache.path)
    assert [each is None for each in kept.get_many(["kept", "forgotten", "came later"])] == [
        False,
        True,
        False,
    ]
    kept.close()


REWRITE_BESIDE_WRITERS = """
import subprocess, sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
import numpy as np
from projections.embedding import VectorCache
path, forget = Path(sys.argv[1]), sys.argv[2]
cache = VectorCache(path)
elsewhere = [sys.executable, "-c", forget, str(path)]

def store(thread):
    for number in range(300):
        cache.put_many([f"{thread} {number}"], np.ones((1, 8), np.float32))

def rewrite():
    for _ in range(15):
        cache.compact()

with ThreadPoolExecutor() as threads:
    work = [*(threads.submit(store, thread) for thread in range(3)), threads.submit(rewrite)]
    for _ in range(4):
        subprocess.run(elsewhere, check=True)
    for each in work:
        each.result()
kept = cache.get_many([f"{thread} {number}" for thread in range(3) for number in range(300)])
assert all(each is not None for each in kept)
"""


def test_two_processes_and_several_threads_write_a_cache_anew_and_lose_nothing(
    tmp_path: Path,
) -> None:
    command = [sys.executable, "-c", REWRITE_BESIDE_WRITERS, str(tmp_path / "shared.mdb"), FORGET]
    slow_disk_seconds = 5 * DEADLINE_SECONDS  # a thousand writes, each of which waits for it twice
    subprocess.run(command, cwd=ROOT, check=True, timeout=slow_disk_seconds)


def test_a_cache_that_was_damaged_is_followed_once_another_process_began_it_anew(
    cache: VectorCache,
) -> None:
    cache.put_many(["a"], Hashing().embed(["a"]))
    cache.path.write_bytes(b"not LMDB")
    subprocess.run([sys.executable, "-c", FORGET, str(cache.path)], cwd=ROOT, check=True)
    assert cache.get_many(["a"]) == [None]
    cache.put_many(["a"], Hashing().embed(["a"]))
    assert cache.get_many(["a"])[0] is not None


FOLLOW_WITHOUT_FILES = """
import os, resource, subprocess, sys
from contextlib import closing, suppress
from pathlib import Path
import numpy as np
from memlog.errors import StorageError
from projections.embedding import VectorCache
cache = VectorCache(Path(sys.argv[1]))
cache.put_many(["kept"], np.ones((1, 8), np.float32))
subprocess.run([sys.executable, "-c", sys.argv[2], sys.argv[1]], check=True)
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
held = []
with suppress(OSError):
    while True:
        held.append(os.open("/dev/null", os.O_RDONLY))
for _ in range(5):
    try:
        assert cache.get_many(["kept"])[0] is not None
        break
    except StorageError as error:
        print(error.message, error.suggestion)
        os.close(held.pop())
"""


def test_where_no_file_can_be_opened_a_cache_that_was_written_anew_says_so_and_is_followed_later(
    tmp_path: Path,
) -> None:
    command = [sys.executable, "-c", FOLLOW_WITHOUT_FILES, str(tmp_path / "shared.mdb"), FORGET]
    told = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout
    assert "Too many open files" in told
    assert "ulimit -n" in told


@pytest.mark.parametrize("content", [b"not LMDB" * 2000, b"short", b"\x00" * 8192])
def test_a_damaged_file_is_begun_anew(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "damaged.mdb"
    path.write_bytes(content)
    cache = VectorCache(path)
    cache.put_many(["a"], Hashing().embed(["a"]))
    assert cache.get_many(["a"])[0] is not None
    cache.close()


# --- each text once


def test_a_text_is_embedded_once_however_often_it_is_asked_for(cache: VectorCache) -> None:
    hashing = Hashing()
    cached = CachedEmbedder(hashing, cache)
    first = cached.vectors(["a", "b", "a", "caf\u00e9", "cafe\u0301"])
    again = CachedEmbedder(hashing, cache).vectors(["caf\u00e9", "c", "b"])
    assert hashing.asked == [["a", "b", "caf\u00e9"], ["c"]]
    np.testing.assert_array_equal(first[[0, 1, 3]], first[[2, 1, 4]])
    np.testing.assert_array_equal(again[[0, 2]], first[[3, 1]])
    assert first.shape == (5, 8)
    assert first.dtype == np.float32
    assert cached.vectors([]).shape == (0, 8)


def test_fresh_stored_and_query_vectors_are_equal_bit_for_bit(cache: VectorCache) -> None:
    cached = CachedEmbedder(Hashing(), cache)
    fresh = cached.vectors(["a"])[0]
    stored = cached.vectors(["a"])[0]
    assert fresh.tobytes() == stored.tobytes() == cached.query_vector("a").tobytes()


def test_batches_are_of_32_texts_of_like_length_each_text_once(cache: VectorCache) -> None:
    hashing = Hashing()
    cached = CachedEmbedder(hashing, cache)
    cached.vectors(["known"])
    texts = ["known"] + ["x" * (number % 75 + 1) for number in range(150)]
    cached.vectors(texts)
    assert list(map(len, hashing.asked)) == [1, 32, 32, 11]
    lengths = [len(text) for batch in hashing.asked[1:] for text in batch]
    assert lengths == sorted(lengths)


def test_what_was_embedded_before_a_failure_stays_stored(cache: VectorCache) -> None:
    texts = [f"{number:03}" for number in range(100)]
    with pytest.raises(EmbeddingError, match="down"):
        CachedEmbedder(Hashing(fails_on="080"), cache).vectors(texts)
    hashing = Hashing()
    CachedEmbedder(hashing, cache).vectors(texts)
    assert [text for batch in hashing.asked for text in batch] == texts[64:]


def test_a_stored_vector_of_another_width_is_embedded_anew(cache: VectorCache) -> None:
    CachedEmbedder(Hashing(dimensions=4), cache).vectors(["a"])
    cached = CachedEmbedder(Hashing(dimensions=8), cache)
    assert cached.vectors(["a"]).shape == (1, 8)
    assert cached.vectors(["a"]).shape == (1, 8)


EMBED_ALL = """
import sys
from pathlib import Path
from projections import embeddings
from projections.embedding import CachedEmbedder, VectorCache, store
from tests.test_embedding_cache import Hashing
hashing = Hashing()
cached = CachedEmbedder(hashing, VectorCache(Path(sys.argv[1])))
sys.stdin.readline()
vectors = cached.vectors([f"text {number}" for number in range(600)])
print(*(text for batch in hashing.asked for text in batch), sep="\\n")
"""


def test_two_processes_with_the_same_texts_embed_each_text_once(tmp_path: Path) -> None:
    command = [sys.executable, "-c", EMBED_ALL, str(tmp_path / "shared.mdb")]
    pipe = subprocess.PIPE
    both = [subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe) for _ in range(2)]
    for process in both:
        assert process.stdin is not None
        process.stdin.write(b"go\n")
        process.stdin.flush()
    outputs = [process.communicate(timeout=DEADLINE_SECONDS)[0].decode() for process in both]
    assert [process.returncode for process in both] == [0, 0]
    embedded = [line for output in outputs for line in output.splitlines() if line]
    assert sorted(embedded) == sorted(f"text {number}" for number in range(600))


# --- queries


def test_a_query_is_embedded_once_and_never_stored(cache: VectorCache) -> None:
    hashing = Hashing()
    cached = CachedEmbedder(hashing, cache)
    vector = cached.query_vector("where does Ada live?")
    assert cached.query_vector("where does Ada live?") is vector
    assert hashing.asked == [["where does Ada live?"]]
    assert cache.get_many(["where does Ada live?"]) == [None]
    assert vector.shape == (8,)
    with pytest.raises(ValueError, match="read-only"):
        vector[0] = 0


def test_the_query_that_was_not_asked_for_longest_is_forgotten_first(cache: VectorCache) -> None:
    hashing = Hashing()
    cached = CachedEmbedder(hashing, cache)
    for number in range(QUERIES_MAX):
        cached.query_vector(str(number))
    cached.query_vector("0")
    cached.query_vector("one more")
    asked_count = len(hashing.asked)
    cached.query_vector("0")
    assert len(hashing.asked) == asked_count == QUERIES_MAX + 1
    cached.query_vector("1")
    assert hashing.asked[-1] == ["1"]


def test_a_query_waits_for_no_other_process(cache: VectorCache) -> None:
    cached = CachedEmbedder(Hashing(), cache)
    with FileLock(f"{cache.path}.embedding"), FileLock(f"{cache.path}.embedding.queue"):
        assert cached.query_vector("a").shape == (8,)


# --- turns


def taken(path: Path) -> bool:
    try:
        with FileLock(path, timeout=0):
            return False
    except Timeout:
        return True


def test_whoever_waits_gets_the_next_turn(tmp_path: Path) -> None:
    lock = FairLock(tmp_path / "work")
    order: list[str] = []

    def wait_and_work() -> None:
        with lock.held():
            order.append("the waiting")

    waiting = threading.Thread(target=wait_and_work)
    deadline = time.monotonic() + DEADLINE_SECONDS
    with lock.held():
        waiting.start()
        while not taken(tmp_path / "work.queue"):
            assert time.monotonic() < deadline
    with lock.held():
        order.append("the one who comes back")
    waiting.join()
    assert order == ["the waiting", "the one who comes back"]


def test_a_process_stopped_in_its_turn_does_not_stop_the_others_for_good(tmp_path: Path) -> None:
    lock = FairLock(tmp_path / "work", wait_seconds=0.05)
    with FileLock(tmp_path / "work"):
        for _ in range(3):
            with lock.held():
                assert not taken(tmp_path / "work.queue")
    with lock.held():
        assert taken(tmp_path / "work")


def test_words_answer_where_vectors_cannot_be_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embeddings, "open_embedder", opened_by_hash)
    (tmp_path / "embeddings").write_text("in the way, as a full disk is")
    ada = {"name": "Ada", "entityType": "person", "observations": ["sings in a choir"]}
    with client_on(tmp_path, embedder="local") as client:
        client("create_entities", entities=[ada])
        told = client("search_nodes", query="sings in a choir")
        assert [each["name"] for each in told["entities"]] == ["Ada"]
        assert "Vectors cannot be stored" in told["notice"]
        with pytest.raises(Refused) as refused:
            client("search_nodes", query="sings in a choir", mode="semantic")
    assert refused.value.error["code"] == "EMBEDDING_ERROR"


def told_of(client: Client, name: str) -> str | None:
    """Tells something new and looks for it by words and by meaning; what the search has to say."""
    new = {"name": name, "entityType": "person", "observations": [f"{name} sings in a choir"]}
    client("create_entities", entities=[new])
    told = client("search_nodes", query=f"{name} sings in a choir")
    assert told["entities"][0]["name"] == name
    notice: str | None = told.get("notice")
    return notice


def test_words_answer_where_the_vectors_in_use_are_damaged_and_they_are_begun_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embeddings, "open_embedder", opened_by_hash)
    monkeypatch.setattr(service, "Follower", Idle)
    with client_on(tmp_path, embedder="local") as client:
        assert told_of(client, "Ada") is None
        file = tmp_path / "embeddings" / "by-hash.mdb"
        os.truncate(file, 4096)
        assert told_of(client, "Bob") is None
        os.truncate(file, 0)
        assert client("store_memory", content="Ada sings no more")["notice"] is None
        file.write_bytes(os.urandom(1_000_000))
        assert told_of(client, "Cleo") is None
        shutil.rmtree(file.parent)
        assert told_of(client, "Dora") is None
        with file.open("r+b") as opened:
            opened.seek(8192)  # behind the two pages that say which are current
            opened.write(os.urandom(os.fstat(opened.fileno()).st_size - 8192))
        assert "Vectors can be neither read nor stored" in (told_of(client, "Eve") or "")
        assert told_of(client, "Fay") is None
