"""The examples of docs/deploy and docs/security.md, as far as they can be checked where no engine is."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

from memlog.settings import VARIABLES, Settings
from tests.certificates import certificate_of_its_own
from tests.http_served import served_http
from tests.served import environment

REPOSITORY = Path(__file__).parents[1]
DEPLOY = REPOSITORY / "docs" / "deploy"
GUIDE = (REPOSITORY / "docs" / "guide.md").read_text()
SECURITY = (REPOSITORY / "docs" / "security.md").read_text()


def test_every_variable_in_the_examples_is_a_setting() -> None:
    texts = [SECURITY, *(page.read_text() for page in DEPLOY.iterdir())]
    named = set(re.findall(r"\bMEMLOG_[A-Z_]*[A-Z]\b", "\n".join(texts)))
    assert {"MEMLOG_DATA_DIR", "MEMLOG_TOKEN"} <= named <= {*VARIABLES}


def copied(containerfile: str) -> list[str]:
    """What comes from the checkout into the image."""
    return re.findall(r"^COPY (?!--from)(\S+) ", containerfile, re.MULTILINE)


def test_the_container_copies_what_there_is_and_runs_as_nobody_special() -> None:
    text = (DEPLOY / "Containerfile").read_text()
    assert {"memlog", "projections", "server"} < set(copied(text))
    assert all((REPOSITORY / each).is_dir() for each in copied(text))
    pinned = re.findall(r"-r (\S+)", text)
    assert pinned and all((REPOSITORY / each).is_file() for each in pinned)
    stage = text.rpartition("\nFROM ")[2]
    assert stage.index("\nUSER 10001:10001\n") < stage.index("\nENTRYPOINT ")
    assert "VOLUME /data" in stage and "MEMLOG_DATA_DIR=/data" in stage
    assert f"EXPOSE {Settings().http_port}\n" in stage


def test_the_image_is_of_the_modules_alone_and_none_is_ignored() -> None:
    """Not of the checkout's .venv, nor of what another Python compiled."""
    ignored = (DEPLOY / "Containerfile.dockerignore").read_text().splitlines()
    taken = {line[1:] for line in ignored if line.startswith("!")}
    assert "*" in ignored and "**/__pycache__" in ignored
    assert taken == set(copied((DEPLOY / "Containerfile").read_text()))


def test_the_health_check_goes_by_the_settings_and_tells_ready_from_anything_else(
    tmp_path: Path,
) -> None:
    text = (DEPLOY / "Containerfile").read_text()
    found = re.search(r"^HEALTHCHECK .*?CMD (\[.*?\])$", text, re.MULTILINE)
    assert found
    _, *arguments = json.loads(found[1])
    cert, key = map(str, certificate_of_its_own(tmp_path))
    tls = {"MEMLOG_TLS_CERT": cert, "MEMLOG_TLS_KEY": key}

    def healthy(port: int) -> bool:
        command = [sys.executable, *arguments]
        own = environment(MEMLOG_HTTP_PORT=str(port), **tls)
        return subprocess.run(command, env=own, capture_output=True, check=False).returncode == 0

    with served_http(tmp_path, **tls) as server:
        for _ in range(100):
            if ready := healthy(server.port):
                break
        assert ready
        server.end()
        assert not healthy(server.port)


def test_podman_is_told_to_keep_the_health_check() -> None:
    """Its own format of images has none, and it says so only in a warning."""
    (line,) = re.findall("podman build .*", (DEPLOY / "Containerfile").read_text())
    assert "--format docker" in line


def test_the_unit_starts_what_setup_makes_as_a_user_that_its_head_makes() -> None:
    text = (DEPLOY / "memlog.service").read_text()
    command = re.search(r"^ExecStart=/opt/memlog/\.venv/bin/python (.*)$", text, re.MULTILINE)
    assert command
    helped = subprocess.run(
        [sys.executable, *command[1].split(), "--help"],
        cwd=REPOSITORY,
        capture_output=True,
        check=False,
    )
    assert helped.returncode == 0, helped.stderr
    head = text.partition("[Unit]")[0]
    steps = [
        head.index(step) for step in ("setup", "useradd", "install -d", "token new", "systemctl")
    ]
    assert steps == sorted(steps)
    assert "User=memlog\n" in text and "useradd" in head and " memlog\n" in head


def test_the_unit_gives_up_on_a_setting_that_is_refused_at_every_start() -> None:
    """Of [Unit]: elsewhere systemd passes it over, with a warning at best."""
    text = (DEPLOY / "memlog.service").read_text()
    assert "\nStartLimitIntervalSec=60\n" in text.partition("\n[Service]\n")[0]


def test_the_composition_is_published_to_its_own_machine() -> None:
    text = (DEPLOY / "compose.yaml").read_text()
    port = Settings().http_port
    assert re.findall(r'^ +- "([\d.:]+)"$', text, re.MULTILINE) == [f"127.0.0.1:{port}:{port}"]
    assert "dockerfile: docs/deploy/Containerfile" in text


def test_the_composition_has_a_name_of_its_own() -> None:
    """Else its containers and its volume are those of every composition in a folder named deploy."""
    text = (DEPLOY / "compose.yaml").read_text()
    assert "\nname: memlog\n" in text


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


def test_a_bundle_is_of_this_version_and_starts_what_its_files_offer() -> None:
    manifest = json.loads((DEPLOY / "manifest.json").read_text())
    pyproject = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())
    project, server = pyproject["project"], manifest["server"]
    assert (manifest["version"], manifest["license"]) == (project["version"], project["license"])
    assert server["mcp_config"]["args"][-1] in project["scripts"]
    assert set(server["mcp_config"]["env"].values()) == {
        f"${{user_config.{name}}}" for name in manifest["user_config"]
    }
    found = re.search(r"git archive --add-file=(\S+) HEAD (.+) \|", GUIDE)
    assert found and (REPOSITORY / found[1]) == DEPLOY / "manifest.json"
    files = found[2].split()
    assert server["entry_point"].partition("/")[0] in files
    assert {*pyproject["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]} < {*files}
    assert {"pyproject.toml", project["readme"], *project["license-files"]} < {*files}
