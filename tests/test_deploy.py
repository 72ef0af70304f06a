"""The examples of docs/deploy and docs/security.md, as far as they can be checked where no engine is."""

from __future__ import annotations

import re
from pathlib import Path

from memlog.settings import SETTINGS, Settings

REPOSITORY = Path(__file__).parents[1]
DEPLOY = REPOSITORY / "docs" / "deploy"
SECURITY = (REPOSITORY / "docs" / "security.md").read_text()
VARIABLES = {variable for setting in SETTINGS for variable in setting.variables}


def test_every_variable_in_the_examples_is_a_setting() -> None:
    for text in [SECURITY, *(page.read_text() for page in DEPLOY.iterdir())]:
        assert set(re.findall(r"\bMEMLOG_[A-Z_]*[A-Z]\b", text)) <= VARIABLES


def test_the_container_copies_what_there_is_and_runs_as_nobody_special() -> None:
    text = (DEPLOY / "Containerfile").read_text()
    copied = re.findall(r"^COPY (?!--from)(\S+) ", text, re.MULTILINE)
    assert {"memlog", "projections", "server"} < set(copied)
    assert all((REPOSITORY / each).is_dir() for each in copied)
    for pinned in re.findall(r"-r (\S+)", text):
        assert (REPOSITORY / pinned).is_file()
    stage = text.rpartition("\nFROM ")[2]
    assert stage.index("\nUSER memlog\n") < stage.index("\nENTRYPOINT ")
    assert "VOLUME /data" in stage and "MEMLOG_DATA_DIR=/data" in stage
    assert f"http://127.0.0.1:{Settings().http_port}/readyz" in stage
    assert f"EXPOSE {Settings().http_port}\n" in stage


def test_the_composition_is_published_to_its_own_machine() -> None:
    text = (DEPLOY / "compose.yaml").read_text()
    port = Settings().http_port
    assert re.findall(r'^ +- "([\d.:]+)"$', text, re.MULTILINE) == [f"127.0.0.1:{port}:{port}"]
    assert "dockerfile: docs/deploy/Containerfile" in text


def test_the_limits_that_are_told_are_those_that_hold() -> None:
    told = SECURITY.partition("## What is checked")[2].partition("## Tokens")[0]
    settings = Settings()
    for said in (
        f"connections: {settings.http_connections_max:,} at a time",
        f"within {settings.http_patience_seconds:g} seconds",
        f"at most {settings.http_body_bytes_max // 2**20} MB",
        f"requests at a time: {settings.http_requests_max}",
        f"requests a second: {settings.http_requests_per_second:g} for each token, "
        f"{2 * settings.http_requests_per_second:g} in a burst",
        f"the time: {settings.http_request_seconds:g} seconds",
    ):
        assert said in told, said
