"""The answers that opened conversations, kept from one start of the server to the next.

Promises that what is found was answered by this very server: its files, the libraries beside it and
its settings are part of the file's name, and a digest of the content stands before it. Whatever else
is in the folder counts as nothing; a folder that cannot be used is logged and costs only time. Several
processes may keep answers at once: files are replaced whole, and what one of them loses is noted
again at a later start. Kept are hashes of what clients said, results, and no data of the store.
Imports nothing slow.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path

import msgspec

from memlog.settings import SETTINGS, Settings

FOLDER = "startup"
ENTRIES_MAX = 32
BYTES_MAX = 1024 * 1024
FILES_MAX = 8
_PACKAGES = ("memlog", "projections", "server")
_DIGEST_BYTES = 32

logger = logging.getLogger(__name__)

_decode = msgspec.msgpack.Decoder(dict[bytes, bytes]).decode
_encode = msgspec.msgpack.Encoder().encode


class Answers:
    """Results as JSON, by the key of the question (see `Conversation`), in one file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._results = self._read()

    @classmethod
    def of(cls, settings: Settings) -> Answers:
        """Those that a server with these settings has given."""
        try:
            name = fingerprint(settings)
        except OSError as error:  # packages in an archive have no files to tell their version by
            logger.warning(
                "cannot tell this server from another, its answers are not kept: %s", error
            )
            return _Unkept()
        return cls(settings.data_dir / FOLDER / name)

    def get(self, key: bytes) -> bytes | None:
        return self._results.get(key)

    def keep(self, key: bytes, result: bytes) -> None:
        """Put an answer on disk, as the newest; the oldest make room. Logs what goes wrong."""
        results = self._read()
        results.pop(key, None)
        results[key] = result
        size_bytes = sum(map(len, results.values()))
        while len(results) > ENTRIES_MAX or size_bytes > BYTES_MAX:
            size_bytes -= len(results.pop(next(iter(results))))
        self._results = results
        try:
            self._write(_encode(results))
        except OSError as error:
            logger.warning("the answers for a quicker start were not kept: %s", error)

    def discard(self) -> None:
        """Forget them all, on disk too."""
        self._results = {}
        with suppress(OSError):
            self._path.unlink()

    def _read(self) -> dict[bytes, bytes]:
        try:
            data = self._path.read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return {}
        except OSError as error:
            logger.warning("the answers for a quicker start cannot be read: %s", error)
            return {}
        digest, content = data[:_DIGEST_BYTES], data[_DIGEST_BYTES:]
        if sha256(content).digest() != digest:
            logger.warning("%s is damaged and counts as empty", self._path)
            return {}
        try:
            return _decode(content)
        except msgspec.DecodeError as error:
            logger.warning("%s is not what it should be and counts as empty: %s", self._path, error)
            return {}

    def _write(self, content: bytes) -> None:
        """Without fsync: a file that a power failure cut short is one that its digest refuses."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        written = self._path.with_suffix(f".{os.getpid()}")
        written.write_bytes(sha256(content).digest() + content)
        written.replace(self._path)
        by_age = sorted(self._path.parent.iterdir(), key=lambda each: each.stat().st_mtime_ns)
        for old in by_age[:-FILES_MAX]:
            old.unlink(missing_ok=True)


class _Unkept(Answers):
    """None: what is noted is noted nowhere."""

    def __init__(self) -> None:
        self._results = {}

    def keep(self, key: bytes, result: bytes) -> None:
        pass

    def discard(self) -> None:
        pass


def fingerprint(settings: Settings) -> str:
    """What the answers of a server depend on, hashed: its source, its libraries, its settings.

    The libraries by the folders that installers leave beside `mcp`, named by version, which takes
    a hundredth of the time of asking `importlib.metadata`. Raises OSError where there are none, or no source.
    """
    root = Path(__file__).parents[2]
    sources = [each for package in _PACKAGES for each in _sources(root / package)]
    if not sources:  # within one program, beside which are only the files that memlog reads
        raise FileNotFoundError("the source is not there")
    secrets = {setting.field: "" for setting in SETTINGS if setting.secret}
    shaping = msgspec.structs.replace(settings, **secrets)
    parts = [sys.version, *sorted(sources), *sorted(_libraries()), repr(shaping)]
    return sha256("\n".join(parts).encode(errors="surrogateescape")).hexdigest()


def _sources(folder: str | Path) -> Iterator[str]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir():
                if entry.name != "__pycache__":
                    yield from _sources(entry.path)
            elif entry.name.endswith((".py", ".pyc")):
                status = entry.stat()
                yield f"{entry.path} {status.st_size} {status.st_mtime_ns}"


def _libraries() -> Iterator[str]:
    found = find_spec("mcp")
    if found is None or found.origin is None:
        raise FileNotFoundError("the package mcp is not there")
    with os.scandir(Path(found.origin).parents[1]) as entries:
        for entry in entries:
            if entry.name.endswith((".dist-info", ".egg-link")):
                yield f"{entry.path} {entry.stat().st_mtime_ns}"
