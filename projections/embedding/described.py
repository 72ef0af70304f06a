"""What an embedder was opened with, kept beside its vectors: so it can be opened again by its key alone.

A file `embeddings/<key>.json` is written whole or not at all. It never holds a secret: no key of an
endpoint, and of its address neither query nor fragment, where some carry one.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import msgspec

from memlog.settings import Embedder as Backend
from memlog.storage.disk import write_whole

if TYPE_CHECKING:
    from projections.embedding.embedder import EmbedderSpec

log = logging.getLogger("memlog.embeddings")


class Description(msgspec.Struct, frozen=True):
    """Of an embedder, without anything secret."""

    backend: Backend
    model: str | None = None
    base_url: str | None = None


def description_of(spec: EmbedderSpec) -> Description:
    base_url = spec.base_url if spec.backend == "openai" else None
    return Description(spec.backend, spec.model, base_url and _without_secrets(base_url))


def describe(folder: Path, key: str, description: Description) -> None:
    """Writes down what `key` was opened with. Where that fails, it cannot be opened later, no more."""
    if described(folder, key) == description:
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(_file(folder, key), msgspec.json.encode(description))
    except OSError as error:
        log.warning("what the embedder %s is cannot be written down: %s", key, error)


def described(folder: Path, key: str) -> Description | None:
    """None where nothing, or nothing readable, was written down."""
    try:
        return msgspec.json.decode(_file(folder, key).read_bytes(), type=Description)
    except (OSError, ValueError):  # no JSON, or no text
        return None


def _file(folder: Path, key: str) -> Path:
    return folder / f"{key}.json"


def _without_secrets(base_url: str) -> str:
    """Without user and password too, which no endpoint's address is taken with."""
    url = urlsplit(base_url.strip())
    return url._replace(netloc=url.netloc.rpartition("@")[2], query="", fragment="").geturl()
