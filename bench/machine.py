"""On what was measured: processor, disk, versions, and how busy the machine was with other things."""

from __future__ import annotations

import os
import platform
import time
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import msgspec

PARTS = (
    "lmdb", "msgspec", "tantivy", "faiss-cpu", "onnxruntime", "tokenizers", "numpy", "mcp", "anyio"
)  # fmt: skip


class Machine(msgspec.Struct, frozen=True):
    """`load` is the average number of running processes in the last minute, before anything was measured.

    `million_ms` is how many milliseconds Python took for a million additions in a loop, the best of five: machines
    that call their processor the same differ by three times, and so does everything that is Python's.
    """

    measured: str
    processor: str
    cores: int
    system: str
    python: str
    filesystem: str
    load: float
    million_ms: float
    versions: dict[str, str]


def describe(folder: Path) -> Machine:
    """This machine, with the file system on which `folder` lies."""
    return Machine(
        measured=datetime.now(UTC).strftime("%Y-%m-%d"),
        processor=_processor(),
        cores=os.cpu_count() or 1,
        system=f"{platform.system()} {platform.release()}",
        python=platform.python_version(),
        filesystem=_filesystem(folder),
        load=round(os.getloadavg()[0], 2),
        million_ms=round(min(_million_ms() for _ in range(5)), 1),
        versions={name: version(name) for name in PARTS},
    )


def _million_ms() -> float:
    begun, total = time.perf_counter_ns(), 0
    for number in range(1_000_000):
        total += number
    return (time.perf_counter_ns() - begun) / 1e6


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    named = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return named[0] if named else platform.machine()


def _filesystem(folder: Path) -> str:
    """Its type; a tmpfs syncs nothing, and every durable figure is then worthless."""
    try:
        mounts = Path("/proc/mounts").read_text().splitlines()
    except OSError:
        return "unknown"
    found = {fields[1]: fields[2] for fields in (line.split() for line in mounts)}
    places = [folder.resolve(), *folder.resolve().parents]
    return next((found[str(place)] for place in places if str(place) in found), "unknown")
