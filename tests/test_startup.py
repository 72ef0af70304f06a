"""The collector around imports, what is not imported at all, and Ctrl-C meanwhile."""

from __future__ import annotations

import ast
import gc
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from memlog.projects.store import Store
from server.inherited import forget_what_is_for_others
from server.starting.startup import collector_at_rest
from tests.http_served import served_http
from tests.served import DEADLINE_S, environment, run_memlog, served


@pytest.fixture(autouse=True)
def collector_as_before() -> Iterator[None]:
    yield
    gc.unfreeze()
    gc.enable()


def test_the_collector_rests_and_what_was_made_is_kept_from_it() -> None:
    before = gc.get_freeze_count()
    with collector_at_rest():
        assert not gc.isenabled()
        made: list[list[int]] = [[] for _ in range(1000)]
    assert gc.isenabled()
    assert gc.get_freeze_count() >= before + len(made)


def test_a_collector_that_was_off_stays_off() -> None:
    gc.disable()
    with collector_at_rest():
        pass
    assert not gc.isenabled()


def test_a_failed_import_does_not_leave_it_off() -> None:
    with pytest.raises(ImportError), collector_at_rest():
        raise ImportError
    assert gc.isenabled()


def test_a_server_on_stdio_imports_nothing_of_http() -> None:
    server = "import server.cli.serve, server.stdio.transport, server.dispatch, server.tools"
    assert imported(server, "server.http", "prometheus_client", "uvicorn.protocols") == []


def test_the_help_of_the_command_line_imports_no_sdk_and_no_index() -> None:
    help_ = "from server.cli import cli; cli.main(['--help'], standalone_mode=False)"
    assert imported(help_, "mcp", "mcp_types", "numpy", "faiss", "onnxruntime") == []


PRESSED_AT = """
import runpy, signal, sys

meanwhile = sys.argv[1]

class Pressed:
    def find_spec(self, name, *_):
        if name == meanwhile:
            signal.raise_signal(signal.SIGINT)

sys.meta_path.insert(0, Pressed())
sys.argv[1:] = sys.argv[2:]
runpy.run_module("memlog", run_name="__main__")
"""


def begin(data_dir: Path) -> None:
    """With the project that a command reads."""
    with closing(Store(data_dir)) as store:
        store.create("default")


@pytest.mark.parametrize("module", ["server.cli", "click", "server.cli.search", "numpy"])
def test_ctrl_c_while_modules_are_imported_ends_a_command_without_a_traceback(
    module: str, tmp_path: Path
) -> None:
    begin(tmp_path)
    ended = subprocess.run(
        [sys.executable, "-c", PRESSED_AT, module, "search", "Jon"],
        capture_output=True,
        env=environment(MEMLOG_DATA_DIR=str(tmp_path)),
        text=True,
        check=False,
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (1, "", "\nAborted!\n")


@pytest.mark.parametrize("transport", ["stdio", "http"])
def test_ctrl_c_while_a_server_starts_ends_it_as_sigterm_does(
    transport: str, tmp_path: Path
) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", PRESSED_AT, "mcp_types", "serve", "--transport", transport],
        capture_output=True,
        env=environment(MEMLOG_DATA_DIR=str(tmp_path)),
        text=True,
        input="",
        timeout=DEADLINE_S,
        check=False,
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (-signal.SIGINT, "", "")


TERMINATED_AT = PRESSED_AT.replace("SIGINT", "SIGTERM")
AS_FIRST_PROCESS = ["unshare", "--pid", "--fork", "--mount-proc"]


def test_what_ends_a_container_ends_a_server_that_is_just_starting_there(tmp_path: Path) -> None:
    """The system gives the first process no action of its own: a signal without a handler is lost."""
    if (
        shutil.which("unshare") is None
        or subprocess.run([*AS_FIRST_PROCESS, "true"], check=False).returncode
    ):
        pytest.skip("this user may not begin processes anew")
    ended = subprocess.run(
        [*AS_FIRST_PROCESS, sys.executable, "-c", TERMINATED_AT, "mcp.server.lowlevel", "serve"],
        input="",
        capture_output=True,
        env=environment(MEMLOG_DATA_DIR=str(tmp_path)),
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert (ended.returncode, ended.stdout) == (128 + signal.SIGTERM, "")


PRESSED_BESIDE_A_THREAD = """
import runpy, signal, sys, threading
import server.cli.running

def pressed(settings):
    threading.Thread(target=threading.Event().wait).start()
    print("what was said before")
    signal.raise_signal(signal.SIGINT)

server.cli.running.store_of = server.cli.running.service_of = pressed
sys.argv[1:] = ["search", "Jon"]
runpy.run_module("memlog", run_name="__main__")
"""


def test_ctrl_c_ends_a_command_whatever_thread_it_leaves_behind(tmp_path: Path) -> None:
    begin(tmp_path)
    ended = subprocess.run(
        [sys.executable, "-c", PRESSED_BESIDE_A_THREAD],
        capture_output=True,
        env=environment(MEMLOG_DATA_DIR=str(tmp_path)),
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    said = "what was said before\n"
    assert (ended.returncode, ended.stdout, ended.stderr) == (1, said, "\nAborted!\n")


def imported(program: str, *modules: str) -> list[str]:
    """Which of the modules a process has imported that ran the program."""
    told = (
        f"import sys; print([each for each in {modules} if each in sys.modules], file=sys.stderr)"
    )
    ended = subprocess.run(
        [sys.executable, "-c", f"{program}\n{told}"],
        capture_output=True,
        env=environment(),
        check=True,
    )
    found: list[str] = ast.literal_eval(ended.stderr.decode())
    return found


@pytest.mark.parametrize(
    ("variable", "named"),
    [
        ("OTEL_PROPAGATORS", "b3"),
        ("OTEL_PROPAGATORS", "tracecontext, b3"),
        ("OTEL_PYTHON_TRACER_PROVIDER", "of_another_program"),
    ],
)
def test_a_server_begins_though_what_is_named_to_opentelemetry_is_not_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str, named: str
) -> None:
    monkeypatch.setenv(variable, named)
    with served(tmp_path) as server:
        assert server("read_graph")["entities"] == []
        server.close_stdin()
        assert server.end()[0] == 0
    assert run_memlog("doctor", data_dir=tmp_path).returncode == 0


def test_what_is_named_to_opentelemetry_and_installed_is_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for named, left in (("baggage,b3", "baggage"), ("none", "none")):
        monkeypatch.setenv("OTEL_PROPAGATORS", named)
        forget_what_is_for_others()
        assert os.environ["OTEL_PROPAGATORS"] == left


def test_metrics_are_of_this_process_whatever_others_share(tmp_path: Path) -> None:
    shared = tmp_path / "of another program"
    shared.mkdir()
    for folder in (shared, tmp_path / "nowhere"):
        variables = {"PROMETHEUS_MULTIPROC_DIR": str(folder), "WEB_CONCURRENCY": "auto"}
        with served_http(tmp_path / "data", **variables) as server:
            assert server.get("/metrics").status == 200
            assert server.end() == 0
    assert not [*shared.iterdir()]
