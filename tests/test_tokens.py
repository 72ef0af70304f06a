"""Tokens: made once, kept as hashes, narrowed, revoked; and the command line for them."""

from __future__ import annotations

import errno
import json
import os
import stat
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from memlog.errors import InvalidParameter, StorageError
from memlog.settings import Settings
from memlog.storage import disk
from server.http.access import Access
from server.rights.grants import EVERYTHING, Grant
from server.rights.tokens import Tokens, digest, tokens_path
from tests.command_line import CommandLine
from tests.served import run_memlog


def test_only_hashes_are_kept_and_only_the_owner_reads_them(tmp_path: Path) -> None:
    tokens = Tokens(tmp_path / "tokens.json")
    token = tokens.new(Grant("laptop"))
    assert token not in tokens.path.read_text()
    assert stat.S_IMODE(tokens.path.stat().st_mode) == 0o600


@pytest.mark.parametrize(
    ("mode", "may"), [(0o640, "read"), (0o602, "write"), (0o620, "write"), (0o600, None)]
)
def test_a_file_that_others_may_read_or_write_is_told_of_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, mode: int, may: str | None
) -> None:
    path = tmp_path / "tokens.json"
    Tokens(path).new(Grant("laptop"))
    path.chmod(mode)
    caplog.clear()
    tokens = Tokens(path)
    assert len(tokens.all()) == len(tokens.all()) == 1
    doctor = run_memlog("doctor", data_dir=tmp_path).stdout.replace("\n", " ")
    told = f"may {may} {path} (mode {mode:04o})"
    assert [told in record.message for record in caplog.records] == ([True] if may else [])
    assert (told in doctor) == ("chmod 600" in doctor) == bool(may)


def test_a_token_is_found_whole_and_by_nothing_less(tmp_path: Path) -> None:
    tokens = Tokens(tmp_path / "tokens.json")
    token = tokens.new(Grant("laptop", "read", ("a",), ("graph",)))
    found = tokens.find(token)
    assert found is not None
    assert found.grant == Grant("laptop", "read", ("a",), ("graph",), digest(token))
    for wrong in ("", token[:-1], token + "x", token.upper(), found.sha256, "\ud800"):
        assert tokens.find(wrong) is None


def test_a_token_is_good_until_it_expires(tmp_path: Path) -> None:
    tokens = Tokens(tmp_path / "tokens.json")
    now_us = time.time_ns() // 1_000
    assert tokens.find(tokens.new(Grant("over"), expires_us=now_us)) is None
    assert tokens.find(tokens.new(Grant("good"), expires_us=now_us + 3_600_000_000)) is not None


def test_a_name_is_taken_until_it_is_revoked(tmp_path: Path) -> None:
    tokens = Tokens(tmp_path / "tokens.json")
    first = tokens.new(Grant("laptop"))
    with pytest.raises(InvalidParameter, match="already"):
        tokens.new(Grant("laptop"))
    tokens.revoke("laptop")
    assert tokens.find(first) is None
    assert tokens.find(tokens.new(Grant("laptop"))) is not None
    with pytest.raises(InvalidParameter, match="no token named 'labtop'") as refused:
        tokens.revoke("labtop")
    assert "laptop" in (refused.value.suggestion or "")


def test_of_tokens_that_are_made_and_revoked_at_once_none_is_lost_or_comes_back(
    tmp_path: Path,
) -> None:
    path = tmp_path / "tokens.json"
    phones, laptops = ([f"{kind} {number}" for number in range(4)] for kind in ("phone", "laptop"))
    for name in phones:
        Tokens(path).new(Grant(name))
    ready = threading.Barrier(8)

    def make(name: str) -> None:
        ready.wait()
        Tokens(path).new(Grant(name))

    def revoke(name: str) -> None:
        ready.wait()
        Tokens(path).revoke(name)

    with ThreadPoolExecutor(8) as pool:
        changes = [*(pool.submit(revoke, each) for each in phones)]
        changes += [pool.submit(make, each) for each in laptops]
        for change in changes:
            change.result()
    assert sorted(each.name for each in Tokens(path).all()) == sorted(laptops)


@pytest.mark.parametrize("name", ["environment", "oauth:ann"])
def test_nobody_can_be_named_as_who_comes_without_a_token_of_the_file(
    tmp_path: Path, name: str
) -> None:
    tokens = Tokens(tmp_path / "tokens.json")
    with pytest.raises(InvalidParameter, match=f"{name!r} is the name"):
        tokens.new(Grant(name))
    assert tokens.all() == ()


def test_where_the_file_is_a_link_what_it_leads_to_is_changed(tmp_path: Path) -> None:
    """A server may know that file by its own name: it would go on letting in whoever was revoked."""
    served, link = Tokens(tmp_path / "kept" / "tokens.json"), tmp_path / "link.json"
    link.symlink_to(served.path)
    token = Tokens(link).new(Grant("laptop"))
    assert served.find(token) is not None
    Tokens(link).revoke("laptop")
    assert served.find(token) is None
    assert link.is_symlink()


def test_a_change_by_another_process_is_seen_at_once(tmp_path: Path) -> None:
    one, other = Tokens(tmp_path / "tokens.json"), Tokens(tmp_path / "tokens.json")
    token = one.new(Grant("laptop"))
    assert other.find(token) is not None
    one.revoke("laptop")
    assert other.find(token) is None


def test_a_change_that_keeps_the_size_and_the_time_of_the_file_is_seen_at_once(
    tmp_path: Path,
) -> None:
    """As copying with times over a file does."""
    tokens = Tokens(tmp_path / "tokens.json")
    token = tokens.new(Grant("laptop", "admin"))
    assert tokens.find(token) is not None
    before = tokens.path.stat()
    text = tokens.path.read_text()
    tokens.path.write_text(text.replace('"admin"', '"read" '))
    os.utime(tokens.path, ns=(before.st_atime_ns, before.st_mtime_ns))
    found = tokens.find(token)
    assert found is not None and found.right == "read"


@pytest.mark.parametrize(
    "content",
    [
        b"{",
        b"[]",
        b'{"tokens": [{"name": "x"}]}',
        b'{"tokns": []}',
        b'{"tokens": [{"name": "\xff"}]}',
        b'{"tokens": [{"more": ' + b"[" * 100_000,
    ],
)
def test_a_damaged_file_is_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "tokens.json"
    path.write_bytes(content)
    with pytest.raises(StorageError, match=r"tokens\.json cannot be read"):
        Tokens(path).find("x")


@pytest.mark.parametrize("cause", [errno.EMFILE, errno.EIO, errno.EROFS, errno.ESTALE])
def test_nobody_is_advised_to_remove_the_tokens_over_what_the_system_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cause: int
) -> None:
    tokens = Tokens(tmp_path / "tokens.json")
    tokens.new(Grant(name="phone", right="read"))

    def failing(_: Path) -> bytes:
        raise OSError(cause, os.strerror(cause))

    monkeypatch.setattr(Path, "read_bytes", failing)
    with pytest.raises(StorageError, match=os.strerror(cause)) as caught:
        Tokens(tokens.path).all()
    assert caught.value.suggestion
    assert "remove" not in caught.value.suggestion


def test_a_file_where_their_folder_should_be_is_named(tmp_path: Path) -> None:
    (tmp_path / "data").touch()
    told = CommandLine(tmp_path / "data")("token", "list")
    assert told.code == 1
    assert "hint: 'data' is no folder, or a link that leads nowhere: move it away" in told.stderr


@pytest.mark.parametrize(
    ("key", "misspelt"),
    [("projects", "project"), ("toolsets", "toolset"), ("expires_us", "expires")],
)
def test_a_misspelt_key_that_was_meant_to_narrow_lets_nobody_in_and_is_named(
    tmp_path: Path, key: str, misspelt: str
) -> None:
    tokens = Tokens(tmp_path / "tokens.json")
    token = tokens.new(Grant("laptop", "read", ("a",), ("graph",)), expires_us=2**52)
    text = tokens.path.read_text()
    assert f'"{key}"' in text
    tokens.path.write_text(text.replace(f'"{key}"', f'"{misspelt}"'))
    with pytest.raises(StorageError, match=f"unknown field `{misspelt}`"):
        tokens.find(token)


def test_what_was_read_before_lets_nobody_in_once_the_file_is_damaged_or_gone(
    tmp_path: Path,
) -> None:
    tokens = Tokens(tmp_path / "tokens.json")
    token = tokens.new(Grant("laptop"))
    assert tokens.find(token) is not None
    tokens.path.write_bytes(b"{")
    for _ in range(2):
        with pytest.raises(StorageError):
            tokens.find(token)
    tokens.path.unlink()
    assert tokens.find(token) is None


# -- grants


def test_a_grant_holds_no_longer_than_its_token(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path)
    tokens = Tokens(tokens_path(settings))
    tokens.new(Grant("laptop"))
    tokens.new(Grant("phone"), expires_us=1)
    access = Access(settings)
    held = {each.name: access.still_holds(each.grant) for each in tokens.all()}
    assert held == {"laptop": True, "phone": False}


def test_a_grant_reaches_a_project_however_its_name_is_spelt() -> None:
    grant = Grant("x", projects=("Caf\u00e9",))
    assert grant.reaches("Cafe\u0301")
    assert not grant.reaches("Cafe") and not grant.reaches("")


def test_a_grant_is_only_ever_narrowed() -> None:
    assert Grant("x", projects=("a", "b")).within("a").projects == ("a",)
    assert Grant("x", projects=("a", "b")).within("c").projects == ()
    assert EVERYTHING.within("c").projects == ("c",)


@pytest.mark.parametrize(
    ("projects", "starts"),
    [(None, "default"), (("default", "a"), "default"), (("a",), "a"), (("a", "b"), ""), ((), "")],
)
def test_a_grant_starts_in_a_project_it_reaches(
    projects: tuple[str, ...] | None, starts: str
) -> None:
    assert Grant("x", projects=projects).starting_project("default") == starts


# -- the command line


def test_tokens_are_made_listed_and_revoked(tmp_path: Path) -> None:
    flags = ("--right", "read", "--project", "a", "--toolset", "graph", "--days", "1")
    made = run_memlog("token", "new", "phone", *flags, data_dir=tmp_path)
    assert made.stdout.startswith("memlog_") and "only time" in made.stderr
    listed = run_memlog("token", "list", "--json", data_dir=tmp_path)
    (row,) = json.loads(listed.stdout)
    assert (row["name"], row["right"], row["projects"], row["toolsets"], row["expired"]) == (
        "phone",
        "read",
        ["a"],
        ["graph"],
        False,
    )
    assert made.stdout.strip() not in listed.stdout
    assert "phone" in run_memlog("token", "list", data_dir=tmp_path).stdout
    assert run_memlog("token", "revoke", "phone", data_dir=tmp_path).stdout == "revoked phone\n"


def test_a_token_whose_folder_cannot_be_synced_is_shown_with_what_may_become_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def failing(_: Path) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(disk, "sync_folder", failing)
    memlog = CommandLine(tmp_path)
    made = memlog("token", "new", "phone")
    assert made.code == 0
    tokens = Tokens(tmp_path / "tokens.json")
    assert tokens.find(made.stdout.strip()) is not None
    assert "a loss of power may bring back what it was before: Input/output error" in caplog.text
    caplog.clear()
    revoked = memlog("token", "revoke", "phone")
    assert (revoked.code, revoked.stdout) == (0, "revoked phone\n")
    assert "a loss of power may bring back" in caplog.text
    assert not tokens.all()


def test_that_no_token_is_left_is_told_apart_from_that_there_never_was_one(tmp_path: Path) -> None:
    memlog = CommandLine(tmp_path)
    assert memlog("token", "list").stdout == "There are no tokens yet.\n"
    assert memlog("token", "new", "laptop").code == memlog("token", "new", "phone").code == 0
    assert memlog("token", "revoke", "phone").stderr == ""
    revoked = memlog("token", "revoke", "laptop")
    assert (revoked.code, revoked.stdout) == (0, "revoked laptop\n")
    left = (
        f"No token is left in {tmp_path / 'tokens.json'}, and while the file is there a server asks for one. "
        "`memlog token new NAME` makes one.\n"
    )
    assert revoked.stderr == left
    assert memlog("token", "list").stdout == left
    assert memlog("token", "list", "--json").json == []


def test_where_the_tokens_are_may_be_said_before_the_command_or_behind_it(tmp_path: Path) -> None:
    memlog, other = CommandLine(tmp_path / "usual"), str(tmp_path / "other")
    file = str(tmp_path / "kept.json")
    for place, name in ((["--data-dir", other], "tokens.json"), (["--tokens-file", file], "")):
        assert memlog("token", "new", "behind", *place).code == 0
        assert memlog("token", *place, "new", "before").code == 0
        for words in (["list", "--json", *place], [*place, "list", "--json"]):
            assert [row["name"] for row in memlog("token", *words).json] == ["behind", "before"]
        assert memlog("token", "revoke", "before", *place).code == 0
        assert (Path(other) / name if name else Path(file)).exists()
    assert memlog("token", "list", "--json").json == []


@pytest.mark.parametrize("place", ["--data-dir", "--tokens-file"])
def test_what_is_advised_about_tokens_is_about_those_that_were_named(
    tmp_path: Path, place: str
) -> None:
    memlog, named = CommandLine(tmp_path / "usual"), (place, str(tmp_path / "other one"))
    memlog("token", "new", "phone", *named)
    there = f"`memlog token {place} '{tmp_path / 'other one'}'"
    assert f"{there} revoke phone`" in memlog("token", "new", "phone", *named).stderr
    assert f"{there} list`" in memlog("token", *named, "revoke", "desk").stderr
    assert f"{there} new NAME`" in memlog("token", "revoke", "phone", *named).stderr
    assert f"{there} new NAME`" in memlog("token", "list", *named).stdout


@pytest.mark.parametrize(
    "words",
    [["new", "phone", "--tokens-file", ""], ["--tokens-file", "", "new", "phone"]],
)
def test_an_empty_text_is_no_file_of_tokens(tmp_path: Path, words: list[str]) -> None:
    """As a variable that is not set gives it: the token would be made in the usual file."""
    memlog = CommandLine(tmp_path)
    refused = memlog("token", *words)
    assert (refused.code, refused.stdout) == (2, "")
    assert "'--tokens-file': it is empty. Name a file" in refused.stderr
    assert not (tmp_path / "tokens.json").exists()


def test_a_token_for_a_project_that_is_not_there_comes_with_a_warning(tmp_path: Path) -> None:
    memlog = CommandLine(tmp_path)
    assert memlog("projects", "create", "caf\u00e9").code == 0
    assert memlog("projects", "create", "old").code == 0
    assert memlog("projects", "archive", "old").code == 0
    there = [f"--project={name}" for name in ("cafe\u0301", "old", "default")]
    made = memlog("token", "new", "right", *there)
    assert (made.code, "Warning" in made.stderr) == (0, False)
    made = memlog("token", "new", "wrong", *there, "--project=caffe", "--project=xyz")
    assert (made.code, made.stdout.count("\n")) == (0, 1)
    assert made.stderr.splitlines()[1:] == [
        "Warning: There is no project 'caffe' yet: the token reaches it once it is made. "
        "Did you mean 'caf\u00e9'?",
        "Warning: There is no project 'xyz' yet: the token reaches it once it is made. "
        "`memlog projects create xyz` makes it.",
    ]
    assert len(memlog("token", "list", "--json").json) == 2


def test_the_list_of_tokens_is_whole_in_80_columns(tmp_path: Path) -> None:
    memlog = CommandLine(tmp_path)
    name, projects = "ci-runner@builds.example.internal", ["shop-frontend", "shop-backend"]
    chosen = [word for project in projects for word in ("--project", project)]
    assert memlog("token", "new", name, "--days", "90", *chosen).code == 0
    (row,) = memlog("token", "list", "--json").json
    shown = memlog("token", "list", COLUMNS="80").stdout
    head, *lines = shown.splitlines()
    assert all(len(line) <= 80 for line in shown.splitlines())
    starts = [head.index(column) for column in head.split()]
    spans = zip(starts, [*starts[1:], None], strict=True)
    columns = ["".join(line[start:end].strip() for line in lines) for start, end in spans]
    times = [row[at][:19].replace("T", "") + "Z" for at in ("created", "expires")]
    assert columns == [name, "write", ",".join(projects), "all", *times]


@pytest.mark.parametrize("name", ["", "a b", "ü", "../x", "-x", "x" * 101, "a\nb", "a\n"])
def test_a_name_that_would_not_stand_in_a_log_is_refused(tmp_path: Path, name: str) -> None:
    ended = run_memlog("token", "new", "--", name, data_dir=tmp_path)
    assert ended.returncode == 1
    assert "cannot be used" in ended.stderr
