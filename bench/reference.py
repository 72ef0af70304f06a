"""The reference memory server, as its authors publish it on npm: installed once into the user's cache.

A pinned release; nothing of it is kept in the project. Where it cannot be had, that is said, with the reason.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from platformdirs import user_cache_path

NAME = "@modelcontextprotocol/server-memory"
VERSION = "2026.8.31"
INSTALL_SECONDS_MAX = 120


class Unavailable(Exception):
    """Why the reference server cannot be run here, in a sentence."""


def command() -> list[str]:
    """The program that starts the server; its file is named by `MEMORY_FILE_PATH`. Raises Unavailable."""
    node = shutil.which("node")
    if node is None:
        raise Unavailable(f"{NAME} needs node, which is not installed")
    return [node, str(_script())]


def _script() -> Path:
    home = user_cache_path("memlog-tests") / f"server-memory-{VERSION}"
    script = home / "node_modules" / NAME / "dist" / "index.js"
    if not script.exists():
        _install(home)
    return script


def _install(home: Path) -> None:
    """Beside its place first: whoever looks meanwhile finds all of it or nothing."""
    npm = shutil.which("npm")
    if npm is None:
        raise Unavailable(f"{NAME} is installed by npm, which is not there")
    home.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=home.parent) as folder:
        what = f"{NAME}@{VERSION}"
        install = [npm, "install", "--no-audit", "--no-fund", "--silent", "--prefix", folder, what]
        done = subprocess.run(
            install, capture_output=True, text=True, timeout=INSTALL_SECONDS_MAX, check=False
        )
        if done.returncode != 0:
            raise Unavailable(f"npm could not install {what}: {done.stderr.strip()[-300:]}")
        if not home.exists():
            os.rename(folder, home)
            os.mkdir(folder)  # for the context manager to remove
