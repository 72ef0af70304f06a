"""What a running server takes in memory, and a project on the disk, in megabytes of a million bytes."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import NamedTuple

BYTES_PER_MEGABYTE = 1e6


class Resident(NamedTuple):
    """All that is resident of a process; and what of it is no file's page, which the system can drop and
    read again."""

    megabytes: float
    anonymous_megabytes: float

    @classmethod
    def of(cls, pid: int) -> Resident | None:
        """None where the system has no /proc."""
        try:
            lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        except OSError:
            return None
        fields = dict(line.split(":", 1) for line in lines)
        whole, anonymous = (
            int(fields[name].removesuffix("kB")) * 1024 / BYTES_PER_MEGABYTE
            for name in ("VmRSS", "RssAnon")
        )
        return cls(whole, anonymous)


def disk_megabytes(folder: Path) -> dict[str, float]:
    """By what lies in a project's folder, without versions: `log` of log.mdb, `text` of text-v3/…."""
    found: Counter[str] = Counter()
    for path in folder.rglob("*"):
        if path.is_file() and path.suffix != ".lock":
            name = path.relative_to(folder).parts[0].split(".")[0].split("-v")[0]
            found[name] += path.stat().st_size
    return {name: taken / BYTES_PER_MEGABYTE for name, taken in sorted(found.items())}
