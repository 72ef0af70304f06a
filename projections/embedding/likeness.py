"""Whether an endpoint has the model that it had, which neither its address nor the name of the model tells: by the
vector of a text that is always the same, kept beside the vectors that the model made.

A file `embeddings/<key>.f16` is numpy's little-endian float16, as many as the vector has dimensions, without a head.
It is written once: a model that changes little by little is compared with what it was at first.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from memlog.storage.disk import write_whole

if TYPE_CHECKING:
    from projections.embedding.embedder import Vectors

COSINE_MIN = 0.95
"""One model in other precision, or on another machine, is above it; another model of the same width far below."""
FORM = "<f2"

log = logging.getLogger("memlog.embeddings")


def is_alike(vector: Vectors, known: Vectors) -> bool:
    """Of two unit vectors, (dimensions,), each of the same text."""
    return vector.shape == known.shape and float(vector @ known) >= COSINE_MIN


def key_of_like(folder: Path, key_of: Callable[[int], str], vector: Vectors) -> str:
    """The first of the keys whose model gave a vector like this, (dimensions,), of unit length; or none yet, of which
    this is kept. Where that fails, the model is not told apart from a later one, no more."""
    for number in count():
        path = folder / f"{(key := key_of(number))}.f16"
        known = _known(path)
        if known is None:
            _keep(path, vector)
            return key
        if is_alike(vector, known):
            return key
        log.info("%s was another model's", key)
    raise AssertionError("there is no last number")


def _known(path: Path) -> Vectors | None:
    """None where nothing, or nothing readable, is kept."""
    import numpy as np

    try:
        return np.frombuffer(path.read_bytes(), FORM).astype(np.float32)
    except (OSError, ValueError):
        return None


def _keep(path: Path, vector: Vectors) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, vector.astype(FORM).tobytes())
    except OSError as error:
        log.warning("by what to know the model of %s again cannot be kept: %s", path.stem, error)
