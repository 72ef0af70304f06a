"""Where a folder lies, as far as that decides whether memory is safe there."""

from __future__ import annotations

import re
from contextlib import closing, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from memlog.storage.disk import led_to
from memlog.storage.environment import Environment

MOUNTS = Path("/proc/self/mountinfo")
"""What is mounted where, on Linux; its form is told in proc(5)."""

# fmt: off
OF_OTHER_MACHINES = frozenset({
    "9p", "afs", "ceph", "cifs", "fakeowner", "gcsfuse", "gfs2", "glusterfs", "grpcfuse",
    "juicefs", "lustre", "nfs", "nfs4", "ocfs2", "prl_fs", "rclone", "s3fs", "smb3", "sshfs",
    "vboxsf", "virtiofs", "vmhgfs-fuse",
})
# fmt: on
"""Kinds of file systems whose files another machine, or the one that this one is a guest of, may write as well;
those of FUSE without their `fuse.`."""

_COPIED = re.compile(
    r"(Dropbox|OneDrive|Google ?Drive|iCloud ?Drive|Nextcloud|ownCloud|pCloud ?Drive|Proton ?Drive|SynologyDrive|"
    r"Seafile)( [(-].*)?"
    r"|Mobile Documents|CloudStorage",
    re.IGNORECASE,
)
"""Names of folders that a program copies to other machines; the last two are Apple's, for iCloud and for all others."""

_MARKS = {".stfolder": "Syncthing", ".sync_*.db": "Nextcloud", ".git/annex": "git-annex"}
"""What programs keep in a folder, whatever it is called, that they copy to other machines."""


def kind_of(folder: Path) -> str | None:
    """Of the file system that it lies on, or would, as Linux names it; None where the system does not tell."""
    try:
        mounted = MOUNTS.read_text(errors="surrogateescape").splitlines()
    except OSError:
        return None
    kinds: dict[str, str] = {}
    for line in mounted:
        place, _, source = line.partition(" - ")
        # A later one hides one before.
        kinds[_unescaped(place.split(" ")[4])] = source.split(" ")[0]
    real = led_to(folder)
    above = (str(each) for each in (real, *real.parents))
    return next((kinds[each] for each in above if each in kinds), None)


def _unescaped(place: str) -> str:
    """A space and the like stand there by their numbers."""
    return re.sub(r"\\([0-7]{3})", lambda number: chr(int(number[1], 8)), place)


def unsafe(folder: Path) -> str | None:
    """Why what is written there may be lost, and what to do instead; None where nothing is known against it."""
    kind = kind_of(folder) or ""
    if kind.removeprefix("fuse.") in OF_OTHER_MACHINES:
        return (
            f"It lies on a file system that other machines may write to as well ({kind}), and LMDB's locks hold on one "
            "machine only. Keep it on a disk of this machine, or see to it that no other machine uses it."
        )
    if (copied := _copied_by_name(folder) or _copied_by_mark(folder)) is not None:
        return (
            f"It lies in {copied}, which looks like a folder that is copied to other machines: a copy taken in the "
            "midst of a write is damaged, and machines overwrite each other's memory. Keep it elsewhere, and let "
            "`memlog backup` write into that folder."
        )
    return None


def _copied_by_name(folder: Path) -> str | None:
    return next((f"'{part}'" for part in led_to(folder).parts if _COPIED.fullmatch(part)), None)


def _copied_by_mark(folder: Path) -> str | None:
    """As far as the system tells."""
    real = led_to(folder)
    for each in (real, *real.parents):
        for mark, program in _MARKS.items():
            with suppress(OSError):
                if any(each.glob(mark)):
                    return f"'{each.name}', a folder of {program}"
    return None


def require_lmdb(folder: Path) -> None:
    """Raises StorageError where a file of LMDB cannot be made, read, and written to in turn, and OSError where none can
    be made."""
    with (
        TemporaryDirectory(dir=folder, prefix="doctor-") as there,
        closing(Environment(Path(there) / "any.mdb", ("any",), within=folder)) as tried,
    ):
        tried.write(lambda transaction: transaction.put(b"any", b"any", db=tried.databases["any"]))
