"""Every way in that must be shut: without a token, with the wrong one, from elsewhere, to what is not granted."""

from __future__ import annotations

import http.client
import json
import os
import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from memlog.settings import TOOLSETS, Settings
from server.registry import tools
from server.rights.grants import Grant, Right
from server.rights.tokens import Tokens, tokens_path
from tests.http_served import HttpClient, HttpServer, get_stream, served_http
from tests.served import Era, run_memlog
from tests.service import Refused, client_on

JON = {"name": "Jon", "entityType": "person", "observations": ["likes dancing"]}
NOTE = {"type": "note", "content": {"text": "x"}, "source": "chat://t", "confidence": 0.9}
SECRET = "0123456789abcdef0123456789abcdef"
BY_HAND = "Whoever runs the server can make it with `memlog projects create {}`."
WIRE_ERAS = pytest.mark.parametrize("era", ["2025-11-25", "2026-07-28"])


class Guarded(NamedTuple):
    """A server with tokens, and what project b holds."""

    server: HttpServer
    tokens: dict[str, str]
    memory_of_b: str


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    data_dir = tmp_path_factory.mktemp("guarded")
    with client_on(data_dir) as client:
        for name in ("a", "b"):
            client("create_project", name=name)
            client("create_entities", entities=[{**JON, "name": f"Jon of {name}"}], project=name)
        client("create_project", name="away")
        client("archive_project", name="away")
        memory_of_b: str = client("memory_create", **NOTE, project="b")["id"]
    kept = Tokens(tokens_path(Settings(data_dir=data_dir)))
    grants = [
        Grant("admin"),
        Grant("reader", "read"),
        Grant("writer", "write"),
        Grant("of-a", "write", ("a",)),
        Grant("admin-of-a", "admin", ("a",)),
        Grant("of-later", "write", ("later on", "b")),
        Grant("admin-of-later", "admin", ("later on", "b")),
        Grant("graphs", "read", None, ("graph",)),
        Grant("records", "write", None, ("records",)),
    ]
    tokens = {str(grant.name): kept.new(grant) for grant in grants}
    tokens["expired"] = kept.new(Grant("expired"), expires_us=1)
    with served_http(data_dir, MEMLOG_TOKEN=SECRET) as server:
        yield Guarded(server, tokens, memory_of_b)


# -- tokens


@pytest.mark.parametrize("path", ["/mcp", "/mcp/", "/mcp/p/a", "/mcp/p/a/", "/metrics"])
@pytest.mark.parametrize(
    "header",
    ["", "Bearer", "Bearer ", "Bearer wrong", "Basic abc", f"Bearer {SECRET[:-1]}", "Bearer ü"],
)
def test_without_the_right_token_nobody_is_let_in(guarded: Guarded, path: str, header: str) -> None:
    headers = {"Authorization": header} if header else {}
    method = "GET" if path == "/metrics" else "POST"
    answer = guarded.server.ask(method, path, b"{}", headers)
    assert answer.status == 401
    assert answer.headers["www-authenticate"].startswith('Bearer error="invalid_token"')
    assert answer.json["error"] == "invalid_token"


def test_an_expired_token_is_refused(guarded: Guarded) -> None:
    client = HttpClient(guarded.server, token=guarded.tokens["expired"])
    assert client.request("tools/list").status == 401


def test_a_token_in_the_address_is_no_token(guarded: Guarded) -> None:
    token = guarded.tokens["admin"]
    assert guarded.server.get(f"/metrics?access_token={token}").status == 401


def test_a_new_token_counts_at_once_and_a_revoked_one_no_more(tmp_path: Path) -> None:
    made = run_memlog("token", "new", "first", data_dir=tmp_path)
    with served_http(tmp_path) as server:
        first = HttpClient(server, token=made.stdout.strip())
        assert first.request("tools/list").status == 200
        second = run_memlog("token", "new", "second", data_dir=tmp_path).stdout.strip()
        assert HttpClient(server, token=second).request("tools/list").status == 200
        for name in ("first", "second"):
            assert run_memlog("token", "revoke", name, data_dir=tmp_path).returncode == 0
        assert first.request("tools/list").status == 401


@pytest.mark.parametrize("anew", [False, True])
def test_who_listens_with_a_token_that_is_revoked_is_told_that_it_is_over(
    tmp_path: Path, anew: bool
) -> None:
    """Also where another of the same name is there before anybody looked."""
    kept = Tokens(tokens_path(Settings(data_dir=tmp_path)))
    token = kept.new(Grant("first"))
    with served_http(tmp_path, MEMLOG_HTTP_SESSION_SECONDS="1") as server:
        client = HttpClient(server, token=token)

        def revoke() -> None:
            while not any(line.get("status") == 200 for line in server.log()):
                time.sleep(0.01)  # until the stream has begun
            kept.revoke("first")
            if anew:
                kept.new(Grant("first"))

        with ThreadPoolExecutor(1) as pool:
            revoked = pool.submit(revoke)
            notifications = {"resourceSubscriptions": ["mem://recent"]}
            stream = client.request("subscriptions/listen", notifications=notifications)
            revoked.result()
        acknowledged, over = (line for line in stream.body.splitlines() if line[:5] == b"data:")
        assert b"subscriptions/acknowledged" in acknowledged
        assert b'"result"' in over


def test_from_the_first_token_on_nobody_comes_in_without_one(tmp_path: Path) -> None:
    with served_http(tmp_path, MEMLOG_HTTP_SESSION_SECONDS="3") as server:
        anybody = HttpClient(server, "2025-11-25")
        assert anybody.request("tools/list").status == 200
        token = run_memlog("token", "new", "first", data_dir=tmp_path).stdout.strip()
        assert anybody.request("tools/list").status == 401
        anybody.headers["Authorization"] = f"Bearer {token}"
        assert anybody.request("tools/list").status == 404  # the session was nobody's
        assert HttpClient(server, token=token).request("tools/list").status == 200


def test_where_the_environment_has_the_only_token_nobody_comes_in_without_it(
    tmp_path: Path,
) -> None:
    with served_http(tmp_path, MEMLOG_TOKEN=SECRET) as server:
        assert HttpClient(server).request("tools/list").status == 401
        assert HttpClient(server, token=SECRET).request("tools/list").status == 200


def test_tokens_that_cannot_be_read_let_nobody_in(tmp_path: Path) -> None:
    token = run_memlog("token", "new", "first", data_dir=tmp_path).stdout.strip()
    kept = tmp_path / "tokens.json"
    odd = {"name": "x", "sha256": "ü", "right": "read", "created": "2026-11-20T00:00:00Z"}
    with served_http(tmp_path) as server:
        for text in ("{", json.dumps({"tokens": [odd]})):
            kept.write_text(text)
            assert HttpClient(server, token=token).request("tools/list").status == 401
        for put in (kept.mkdir, partial(kept.symlink_to, kept), partial(os.mkfifo, kept)):
            kept.rmdir() if kept.is_dir() else kept.unlink()
            put()
            assert HttpClient(server, token=token).request("tools/list").status == 401
        kept.unlink()
        assert HttpClient(server).request("tools/list").status == 401


def test_tokens_that_go_away_before_the_first_request_open_no_door(tmp_path: Path) -> None:
    run_memlog("token", "new", "first", data_dir=tmp_path)
    with served_http(tmp_path) as server:
        (tmp_path / "tokens.json").unlink()
        assert HttpClient(server).request("tools/list").status == 401


def test_while_nobody_can_see_whether_there_are_tokens_nobody_is_let_in(tmp_path: Path) -> None:
    """The name that the link leads to is longer than a name may be, so looking there fails."""
    with served_http(tmp_path, MEMLOG_HTTP_SESSION_SECONDS="3") as server:
        session = HttpClient(server, "2025-11-25")
        listening = server.connect()
        listening.sendall(get_stream(session))
        assert listening.recv(65_536).startswith(b"HTTP/1.1 200")
        kept = tmp_path / "tokens.json"
        kept.symlink_to("x" * 300)
        assert HttpClient(server).request("tools/list").status == 401
        while listening.recv(65_536)[-5:] != b"0\r\n\r\n":
            """The stream of a session ends, whose right nobody can see, and the server does not."""
        kept.unlink()
        assert HttpClient(server).request("tools/list").status == 200
        listening.close()


def test_a_file_of_tokens_that_is_named_and_not_there_lets_nobody_in(tmp_path: Path) -> None:
    named = tmp_path / "misspelt.json"
    with served_http(tmp_path, MEMLOG_TOKENS_FILE=str(named)) as server:
        assert HttpClient(server).request("tools/list").status == 401
        told = [each["message"] for each in server.log() if each["level"] == "warning"]
        assert len(told) == 1
        assert f"Nobody is let in over HTTP, for there is no token in {named}" in told[0]


def test_of_hosts_that_anybody_may_come_by_the_log_warns_until_there_is_a_token(
    tmp_path: Path,
) -> None:
    """A tunnel brings in whoever knows its name."""
    told = "Whoever reaches memory.example, box:* may do everything"
    for token in ("", SECRET):
        hosts = {"MEMLOG_ALLOWED_HOSTS": "memory.example,box:*", "MEMLOG_TOKEN": token}
        with served_http(tmp_path, **hosts) as server:
            warned = [each["message"] for each in server.log() if each["level"] == "warning"]
        assert [each[: len(told)] for each in warned] == ([] if token else [told])


def test_an_address_of_the_loopback_that_is_served_is_answered_under_its_own_name(
    tmp_path: Path,
) -> None:
    with served_http(tmp_path, "--host", "127.0.0.2") as server:
        for host, status in (("127.0.0.2", 200), ("localhost", 200), ("127.0.0.3", 421)):
            connection = http.client.HTTPConnection("127.0.0.2", server.port, timeout=30)
            connection.request("GET", "/healthz", headers={"Host": host})
            assert connection.getresponse().status == status
            connection.close()


def test_no_token_is_ever_logged(guarded: Guarded) -> None:
    HttpClient(guarded.server, token=guarded.tokens["admin"]).request("tools/list")
    said = json.dumps(guarded.server.log())
    assert '"actor": "admin"' in said
    assert not [token for token in (*guarded.tokens.values(), SECRET) if token in said]


# -- what a token grants


def test_rights_narrow_the_list_of_tools(guarded: Guarded) -> None:
    offered = {
        name: HttpClient(guarded.server, token=guarded.tokens[name]).tools()
        for name in ("admin", "reader", "writer", "graphs")
    }
    assert "create_entities" not in offered["reader"] and "search_nodes" in offered["reader"]
    assert "create_entities" in offered["writer"] and "delete_project" not in offered["writer"]
    assert "delete_project" in offered["admin"]
    assert offered["graphs"] == {"read_graph", "search_nodes", "open_nodes"}


@WIRE_ERAS
def test_a_tool_that_is_not_granted_cannot_be_called(guarded: Guarded, era: Era) -> None:
    client = HttpClient(guarded.server, era, token=guarded.tokens["reader"])
    answer = client.request("tools/call", name="create_entities", arguments={"entities": [JON]})
    assert answer.json["error"]["code"] == -32601


@WIRE_ERAS
@pytest.mark.parametrize("path", ["/mcp", "/mcp/p/default"])
def test_a_token_that_may_only_read_makes_no_project_and_is_told_so(
    tmp_path: Path, era: Era, path: str
) -> None:
    kept = Tokens(tokens_path(Settings(data_dir=tmp_path)))
    rights: list[Right] = ["read", "write"]
    tokens = {right: kept.new(Grant(right, right)) for right in rights}
    with served_http(tmp_path) as server:
        reader = HttpClient(server, era, path=path, token=tokens["read"])
        calls: dict[str, dict[str, object]]
        calls = {"read_graph": {}, "get_current_project": {}, "switch_project": {"name": "default"}}
        for tool, arguments in calls.items():
            with pytest.raises(Refused, match="PROJECT_NOT_FOUND") as refused:
                reader(tool, **arguments)
            assert "may only read" in refused.value.error["message"]
        assert "error" in reader.request("resources/read", uri="memory://knowledge-graph").json
        assert reader("list_projects")["projects"] == []
        assert not list(tmp_path.glob("projects/*"))
        HttpClient(server, token=tokens["write"])("create_entities", entities=[JON])
        assert reader("read_graph")["entities"][0]["name"] == "Jon"


def test_resources_follow_the_toolsets(guarded: Guarded) -> None:
    client = HttpClient(guarded.server, token=guarded.tokens["graphs"])
    uri = f"mem://item/{guarded.memory_of_b}?project=b"
    assert "error" in client.request("resources/read", uri=uri).json
    templates = client.request("resources/templates/list").json["result"]["resourceTemplates"]
    assert [each["uriTemplate"] for each in templates] == ["memory://knowledge-graph{?project}"]


@WIRE_ERAS
@pytest.mark.parametrize(
    ("method", "asked"),
    [
        ("resources/read", {"uri": "mem://recent?project=away"}),
        ("resources/read", {"uri": "mem://item/mem_01h455vb4pex5vsknk084sn02q?project=a"}),
        ("prompts/get", {"name": "memory_recall", "arguments": {"query": "x", "project": "away"}}),
    ],
)
def test_outside_of_tools_too_no_tool_is_advised_that_is_not_granted(
    guarded: Guarded, era: Era, method: str, asked: dict[str, Any]
) -> None:
    client = HttpClient(guarded.server, era, token=guarded.tokens["records"])
    error = client.request(method, **asked).json["error"]
    assert error["data"]["code"] in {"PROJECT_ARCHIVED", "MEMORY_NOT_FOUND"}
    assert not [tool for tool in tools(TOOLSETS) if tool in json.dumps(error)]


@WIRE_ERAS
@pytest.mark.parametrize("name", ["of-a", "admin-of-a"])
@pytest.mark.parametrize("project", ["b", "B", "\uff42", "no-such-project"])
def test_another_project_is_not_found_by_name(
    guarded: Guarded, era: Era, name: str, project: str
) -> None:
    """Whether it exists or not, the answer is the same."""
    client = HttpClient(guarded.server, era, token=guarded.tokens[name])
    calls: dict[str, dict[str, object]] = {
        "read_graph": {"project": project},
        "search_nodes": {"query": "Jon", "project": project},
        "create_entities": {"entities": [JON], "project": project},
        "memory_list": {"project": project},
        "switch_project": {"name": project},
    }
    if name == "admin-of-a":
        calls |= {
            tool: {"name": project}
            for tool in ("create_project", "archive_project", "restore_project", "delete_project")
        }
    for tool, arguments in calls.items():
        with pytest.raises(Refused) as refused:
            client(tool, **arguments)
        assert refused.value.error == {
            "code": "PROJECT_NOT_FOUND",
            "message": f"Project '{project}' not found",
            "suggestion": "Within reach here: 'a'.",
        }, tool


@WIRE_ERAS
def test_another_project_is_not_found_by_path(guarded: Guarded, era: Era) -> None:
    client = HttpClient(guarded.server, token=guarded.tokens["of-a"])
    answers = set()
    for project in ("b", "none"):
        client.path = f"/mcp/p/{project}"
        answer = client.request("tools/list")
        answers.add((answer.status, answer.body.replace(project.encode(), b"?", 1)[:60]))
    assert len(answers) == 1 and answers.pop()[0] == 404


@WIRE_ERAS
def test_another_project_is_not_found_by_uri_or_id(guarded: Guarded, era: Era) -> None:
    client = HttpClient(guarded.server, era, token=guarded.tokens["of-a"])
    item = f"mem://item/{guarded.memory_of_b}"
    for uri in (
        item,
        f"{item}?project=b",
        "mem://recent?project=b",
        "memory://knowledge-graph?project=b",
    ):
        answer = client.request("resources/read", uri=uri)
        assert "not found" in answer.json["error"]["message"], uri
    for uri in ("mem://item/../b", "mem://item/..%2fb", "file:///etc/passwd", "mem://recent/../b"):
        assert "error" in client.request("resources/read", uri=uri).json, uri
    with pytest.raises(Refused, match="MEMORY_NOT_FOUND"):
        client("forget_memory", id=guarded.memory_of_b)


@pytest.mark.parametrize(
    "uri", ["mem://recent", "mem://by-tags/x", "mem://by-type/note", "memory://knowledge-graph"]
)
@pytest.mark.parametrize("project", ["b", "no-such-project"])
def test_what_is_out_of_reach_is_not_subscribed_to(
    guarded: Guarded, uri: str, project: str
) -> None:
    client = HttpClient(guarded.server, "2025-11-25", token=guarded.tokens["of-a"])
    answer = client.request("resources/subscribe", uri=f"{uri}?project={project}")
    told = f"Project '{project}' not found. Within reach here: 'a'."
    assert answer.json["error"]["message"] == told


def test_other_projects_are_in_no_list(guarded: Guarded) -> None:
    client = HttpClient(guarded.server, token=guarded.tokens["of-a"])
    assert [each["name"] for each in client("list_projects", status="all")["projects"]] == ["a"]
    ref = {"type": "ref/resource", "uri": "memory://knowledge-graph{?project}"}
    answer = client.request(
        "completion/complete", ref=ref, argument={"name": "project", "value": ""}
    )
    assert answer.json["result"]["completion"]["values"] == ["a"]
    assert (
        guarded.server.get("/metrics", Authorization=f"Bearer {guarded.tokens['of-a']}").status
        == 403
    )


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("admin", f"Create it first, at /mcp with create_project. {BY_HAND.format('none')}"),
        ("writer", BY_HAND.format("none")),
        ("of-a", "Within reach here: 'a'."),
        ("admin-of-a", "Within reach here: 'a'."),
    ],
)
def test_who_asks_for_a_path_of_no_project_is_advised_what_the_token_can_do(
    guarded: Guarded, name: str, advice: str | None
) -> None:
    client = HttpClient(guarded.server, path="/mcp/p/none", token=guarded.tokens[name])
    answer = client.request("tools/list")
    assert answer.status == 404
    assert answer.json["error"]["data"].get("suggestion") == advice


@pytest.mark.parametrize(
    ("name", "advice"),
    [("admin-of-later", "Call create_project to make it. "), ("of-later", "")],
)
def test_of_a_project_that_a_token_reaches_and_nobody_made_it_is_told_how_it_is_made(
    guarded: Guarded, name: str, advice: str
) -> None:
    """A token may be made before its projects."""
    client = HttpClient(guarded.server, token=guarded.tokens[name])
    with pytest.raises(Refused) as refused:
        client("read_graph", project="later on")
    assert refused.value.error == {
        "code": "PROJECT_NOT_FOUND",
        "message": "Project 'later on' not found: it was not made yet, or it was deleted",
        "suggestion": advice + BY_HAND.format("'later on'"),
    }
    client.path = "/mcp/p/later%20on"
    answer = client.request("tools/list")
    assert answer.status == 404
    assert answer.json["error"]["data"]["suggestion"].endswith(BY_HAND.format("'later on'"))


def test_the_only_project_of_a_token_is_active_from_the_start(guarded: Guarded) -> None:
    client = HttpClient(guarded.server, token=guarded.tokens["of-a"])
    assert client("read_graph")["entities"][0]["name"] == "Jon of a"


@pytest.mark.parametrize(
    ("token", "path"),
    [("reader", "/mcp"), ("reader", "/mcp/"), ("admin", "/mcp/p/a"), ("admin", "/mcp/p/a/")],
)
def test_a_session_is_unknown_at_every_door_but_its_own(
    guarded: Guarded, token: str, path: str
) -> None:
    """On the SDK's way, on the short one of a plain call, and to who would end it."""
    session = HttpClient(guarded.server, "2025-11-25", token=guarded.tokens["admin"])
    call = partial(session.request, "tools/call", name="get_current_project", arguments={})
    assert call().status == 200
    own = session.headers
    session.headers = {**own, "Authorization": f"Bearer {guarded.tokens[token]}"}
    session.path = path
    assert session.request("tools/list").status == 404
    assert call().status == 404
    assert guarded.server.ask("DELETE", path, b"", session.headers).status == 404
    session.headers, session.path = own, "/mcp"
    assert call().status == 200


Opening = dict[str, Callable[[], HttpClient]]


@pytest.fixture
def crowded(tmp_path: Path) -> Iterator[Opening]:
    """A server with room for four sessions, and who opens one, by the names of their tokens."""
    kept = Tokens(tokens_path(Settings(data_dir=tmp_path)))
    tokens = {name: kept.new(Grant(name)) for name in ("greedy", "modest", "late")}
    with served_http(tmp_path, MEMLOG_HTTP_SESSIONS_MAX="4") as server:
        yield {
            name: partial(HttpClient, server, "2025-11-25", token=token)
            for name, token in tokens.items()
        }


def is_open(session: HttpClient) -> bool:
    return session.request("tools/list").status == 200


def test_who_opens_one_session_after_another_keeps_nobody_else_out(crowded: Opening) -> None:
    modest = crowded["modest"]()
    greedy = [crowded["greedy"]() for _ in range(10)]
    assert is_open(modest)
    assert sum(is_open(session) for session in greedy) == 3
    late = crowded["late"]()
    assert is_open(modest) and is_open(late)
    assert sum(is_open(session) for session in greedy) == 2


def test_of_the_sessions_of_a_token_the_one_that_was_in_use_for_long_stays(
    crowded: Opening,
) -> None:
    """Others are opened one after another, and each is used later than it."""
    began = time.monotonic()
    worked_in = crowded["greedy"]()
    until = time.monotonic() + max(1.0, 50 * (time.monotonic() - began))
    while time.monotonic() < until:
        assert is_open(worked_in)
        time.sleep(0.01)  # no more requests a second than a token may send
    left_alone = [crowded["greedy"]() for _ in range(6)]
    assert is_open(worked_in) and is_open(left_alone[-1])


def test_a_session_with_a_stream_is_in_use_and_stays(crowded: Opening) -> None:
    listening = [crowded["greedy"]() for _ in range(4)]
    with ExitStack() as streams:
        for session in listening[:3]:
            stream = streams.enter_context(session.server.connect())
            stream.sendall(get_stream(session))
            assert stream.recv(1_000).startswith(b"HTTP/1.1 200")
        assert is_open(crowded["modest"]())
        assert [is_open(session) for session in listening] == [True, True, True, False]


def test_where_every_session_is_in_use_the_next_is_refused(crowded: Opening) -> None:
    with ExitStack() as streams:
        for session in [crowded["greedy"]() for _ in range(4)]:
            stream = streams.enter_context(session.server.connect())
            stream.sendall(get_stream(session))
            assert stream.recv(1_000).startswith(b"HTTP/1.1 200")
        modest = HttpClient(session.server, token=session.headers["Authorization"][7:])
        modest.era = "2025-11-25"
        refused = modest.request("initialize", protocolVersion=modest.era, capabilities={})
    assert refused.status == 503
    assert (
        refused.json["error"]["message"] == "4 sessions are open, and all that could go are in use"
    )
    assert "DELETE" in refused.json["error"]["data"]["suggestion"]


def test_who_uses_all_of_many_sessions_takes_none_from_who_has_fewer(crowded: Opening) -> None:
    modest = crowded["modest"]()
    with ExitStack() as streams:
        for session in [crowded["greedy"]() for _ in range(3)]:
            stream = streams.enter_context(session.server.connect())
            stream.sendall(get_stream(session))
            assert stream.recv(1_000).startswith(b"HTTP/1.1 200")
        del session.headers["Mcp-Session-Id"]
        refused = session.request(
            "initialize",
            protocolVersion=session.era,
            capabilities={},
            clientInfo={"name": "test", "version": "1"},
        )
        assert refused.status == 503
        assert is_open(modest)


def test_what_opens_no_session_ends_none(crowded: Opening) -> None:
    held = [crowded["greedy"]() for _ in range(4)]
    stranger = crowded["late"]()  # of `greedy` one has gone
    del stranger.headers["Mcp-Session-Id"]
    for body in (b"", b"{}", b"[]", b'{"jsonrpc":"2.0","id":1,"method":"tools/list"}'):
        assert stranger.post(body).status >= 400
    assert sum(is_open(session) for session in held) == 3


@WIRE_ERAS
def test_the_name_of_the_token_is_the_actor_of_every_event(guarded: Guarded, era: Era) -> None:
    name = f"Written {era}"
    writer = HttpClient(guarded.server, era, token=guarded.tokens["writer"])
    writer("create_entities", entities=[{**JON, "name": name}], project="a")
    events = writer("get_history", entityName=name, project="a")["events"]
    assert {event["actor"] for event in events} == {"writer"}
    since = events[-1]["position"] - 1
    changes = writer("changes_since", since=since, project="a")["commands"]
    assert {command["actor"] for command in changes} == {"writer"}
    made = HttpClient(guarded.server, era, token=SECRET)
    made("create_project", name=f"made {era}")
    events = made("get_history", project=f"made {era}")["events"]
    assert {event["actor"] for event in events} == {"environment"}


# -- where requests come from


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:8081",
        "127.0.0.1.evil.example",
        "",
        "localhost.evil.example:80",
        "localhost..",
        "[::1",
        "::1]",
        "[::1].evil.example",
        "[::2]",
        "\xc0\xff",
        "localhost:80@evil.example",
        "localhost:evil.example",
        "localhost:*",
        "127.0.0.1:80:evil.example",
        "127.0.0.1:80,evil.example",
        "[::1]:80.evil.example",
    ],
)
@pytest.mark.parametrize("path", ["/mcp", "/healthz", "/metrics"])
def test_a_foreign_host_is_refused(guarded: Guarded, host: str, path: str) -> None:
    """What DNS rebinding sends: the right address under the name of somebody else's page."""
    answer = guarded.server.get(path, Host=host)
    assert (answer.status, b"add it to MEMLOG_ALLOWED_HOSTS" in answer.body) == (421, True)


@pytest.mark.parametrize(
    "origin",
    [
        "https://evil.example",
        "null",
        "http://localhost.evil.example",
        "http://127.0.0.1.evil.example:80",
        "http://localhost:80@evil.example",
        "http://localhost:evil.example",
        "http://localhost:80/evil.example",
        "http://localhost:*",
        "http://[::1]:80.evil.example",
        "http://localhost:80, http://evil.example",
    ],
)
def test_a_foreign_origin_is_refused(guarded: Guarded, origin: str) -> None:
    headers = {"Origin": origin, "Authorization": f"Bearer {guarded.tokens['admin']}"}
    answer = guarded.server.ask("POST", "/mcp", b"{}", headers)
    assert (answer.status, "Origin" in answer.json["error"]["message"]) == (403, True)
    assert b"add it to MEMLOG_ALLOWED_ORIGINS" in answer.body


@pytest.mark.parametrize(
    ("twice", "status"),
    [
        (["Origin: http://localhost", "Origin: https://evil.example"], 403),
        (["Origin: https://evil.example", "Origin: http://localhost"], 403),
        (["Host: localhost", "Host: evil.example"], 400),
        (["Host: evil.example", "Host: localhost"], 400),
    ],
)
def test_two_hosts_or_origins_are_refused_whichever_comes_first(
    guarded: Guarded, twice: list[str], status: int
) -> None:
    host = [] if twice[0].startswith("Host") else ["Host: localhost"]
    head = ["GET /healthz HTTP/1.1", *host, *twice, "Connection: close", "", ""]
    with socket.create_connection(("127.0.0.1", guarded.server.port)) as connection:
        connection.sendall("\r\n".join(head).encode())
        assert connection.recv(100).startswith(f"HTTP/1.1 {status} ".encode())


@pytest.mark.parametrize(
    "host", ["LOCALHOST", "LocalHost.:8081", "[0:0:0:0:0:0:0:1]", "[::0001]:1", "127.0.0.1.:80"]
)
def test_a_host_is_known_in_every_spelling(guarded: Guarded, host: str) -> None:
    assert guarded.server.get("/healthz", Host=host).status == 200
    assert guarded.server.get("/healthz", Origin=f"HTTP://{host}").status == 200
    client = HttpClient(guarded.server, "2025-11-25", token=guarded.tokens["admin"])
    client.headers |= {"Host": host, "Origin": f"http://{host}"}
    assert client("list_projects")["projects"]  # the SDK's own check lets it pass too
    assert client.request("tools/list").status == 200


@pytest.mark.parametrize("path", ["/mcp/p/b", "/mcp/p/b/"])
def test_a_project_out_of_reach_is_as_one_that_is_not_there(guarded: Guarded, path: str) -> None:
    token = guarded.tokens["of-a"]
    there, nowhere = (
        HttpClient(guarded.server, path=each, token=token).request("tools/list")
        for each in (path, path.replace("/b", "/nobody"))
    )
    assert there.status == nowhere.status == 404
    assert there.json == json.loads(nowhere.body.replace(b"nobody", b"b"))


@WIRE_ERAS
@pytest.mark.parametrize("scheme", ["http", "HTTPS"])
def test_a_target_with_its_host_is_served_under_that_host(
    guarded: Guarded, era: Era, scheme: str
) -> None:
    """RFC 9112, 3.2.2: it takes the place of the Host header."""
    there = f"{scheme}://127.0.0.1:{guarded.server.port}"
    client = HttpClient(guarded.server, era, path=f"{there}/mcp", token=guarded.tokens["admin"])
    client.headers["Host"] = "evil.example"
    assert client("list_projects")["projects"]
    assert client.request("tools/list").status == 200
    of_b = HttpClient(guarded.server, era, path=f"{there}/mcp/p/b", token=guarded.tokens["admin"])
    assert of_b("get_current_project")["project"] == "b"
    assert guarded.server.get(f"{there}/healthz?x=1", Host="evil.example").status == 200
    assert guarded.server.get(there).status == 404
    assert guarded.server.log()[-1]["path"] == "/"


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:8081",
        "127.0.0.1.evil.example",
        "127.0.0.1@evil.example",
        "localhost:80@evil.example",
        "@localhost",
        "",
    ],
)
@pytest.mark.parametrize("path", ["/mcp", "/healthz", "/metrics", ""])
def test_a_target_with_a_foreign_host_is_refused(guarded: Guarded, host: str, path: str) -> None:
    assert guarded.server.get(f"http://{host}{path}", Host="localhost").status == 421


def test_an_allowed_host_may_be_written_in_any_spelling(tmp_path: Path) -> None:
    with served_http(
        tmp_path,
        MEMLOG_ALLOWED_HOSTS="Memory.Example:*",
        MEMLOG_ALLOWED_ORIGINS="https://App.Example",
    ) as server:
        headers = {"Host": "memory.example.:443", "Origin": "https://app.example"}
        allowed = server.get("/healthz", **headers)
        assert allowed.status == 200
        assert allowed.headers["access-control-allow-origin"] == "https://app.example"


def test_any_port_is_also_none(tmp_path: Path) -> None:
    """Clients leave out 80 and 443."""
    with served_http(
        tmp_path,
        MEMLOG_ALLOWED_HOSTS="memory.example:*",
        MEMLOG_ALLOWED_ORIGINS="https://app.example:*",
    ) as server:
        for port in ("", ":443"):
            headers = {"Host": f"memory.example{port}", "Origin": f"https://app.example{port}"}
            assert server.get("/healthz", **headers).status == 200


def test_pages_of_an_origin_with_any_port_are_handed_answers_and_no_others(tmp_path: Path) -> None:
    with served_http(tmp_path, MEMLOG_ALLOWED_ORIGINS="http://localhost:*,https://a.b") as server:
        for origin, handed in (
            ("http://localhost:3000", True),
            ("http://LOCALHOST", True),
            ("https://a.b", True),
            ("https://localhost:3000", False),
            ("http://127.0.0.1:3000", False),
        ):
            answer = server.get("/healthz", Origin=origin)
            assert (answer.status, "access-control-allow-origin" in answer.headers) == (200, handed)
        assert server.get("/healthz", Origin="https://acb").status == 403


@pytest.mark.parametrize("origin", ["https://*.example", "https://app.example:80*"])
def test_an_origin_of_which_more_than_the_port_is_open_is_refused_at_the_start(
    tmp_path: Path, origin: str
) -> None:
    done = run_memlog(
        "serve", "--transport", "http", data_dir=tmp_path, MEMLOG_ALLOWED_ORIGINS=origin
    )
    assert (done.returncode, "say an origin such as" in done.stderr) == (1, True), done.stderr


@pytest.mark.parametrize(
    ("header", "foreign", "shown"),
    [
        ("Host", "Memory.Example.com.:443", "memory.example.com:443"),
        ("Host", "x" * 20_000, "x" * 80 + "…"),
        ("Origin", "https://app.example", "https://app.example"),
    ],
)
def test_a_foreign_host_or_origin_is_named_to_who_sent_it(
    guarded: Guarded, header: str, foreign: str, shown: str
) -> None:
    """Behind a tunnel that changes it nobody could tell otherwise what to allow."""
    refusal = guarded.server.get("/mcp", **{header: foreign}).json["error"]
    assert refusal["message"] == f"This {header} is not one that the server answers to: {shown!r}"


def test_a_foreign_host_or_origin_is_not_repeated_in_the_log(tmp_path: Path) -> None:
    with served_http(tmp_path) as server:
        assert server.get("/mcp", Host="x" * 20_000).status == 421
        assert server.get("/mcp", Origin="http://" + "x" * 20_000).status == 403
        assert [line["status"] for line in server.log() if "status" in line] == [421, 403]
        assert "xxxx" not in str(server.log())


def test_allowed_hosts_and_origins_are_answered_on_every_address(tmp_path: Path) -> None:
    with served_http(
        tmp_path,
        "--host",
        "0.0.0.0",
        MEMLOG_TOKEN=SECRET,
        MEMLOG_ALLOWED_HOSTS="memory.example:*",
        MEMLOG_ALLOWED_ORIGINS="https://app.example",
    ) as server:
        assert server.get("/healthz", Host="memory.example:443").status == 200
        assert server.get("/healthz", Host="evil.example").status == 421
        assert server.get("/healthz", Origin="https://app.example").status == 200
        assert server.get("/healthz", Origin="https://evil.example").status == 403
        asks = {
            "Access-Control-Request-Method": "POST",
            "Access-Control-Request-Headers": "authorization,content-type,mcp-session-id",
        }
        allowed = server.ask("OPTIONS", "/mcp", b"", {"Origin": "https://app.example", **asks})
        assert allowed.status == 200
        assert allowed.headers["access-control-allow-origin"] == "https://app.example"
        assert "mcp-session-id" in allowed.headers["access-control-allow-headers"]
        from_outside = {"Access-Control-Request-Private-Network": "true", **asks}
        allowed = server.ask(
            "OPTIONS", "/mcp", b"", {"Origin": "https://app.example", **from_outside}
        )
        assert allowed.status == 200
        assert allowed.headers["access-control-allow-private-network"] == "true"
        for origin, status in (("http://localhost:3000", 400), ("https://evil.example", 403)):
            refused = server.ask("OPTIONS", "/mcp", b"", {"Origin": origin, **asks})
            assert refused.status == status
            assert "access-control-allow-origin" not in refused.headers


@pytest.mark.parametrize(
    ("variables", "missing"),
    [
        ({}, "a token"),
        ({"MEMLOG_TOKEN": SECRET}, "allowed hosts"),
        ({"MEMLOG_ALLOWED_HOSTS": "memory.example"}, "a token"),
        ({"MEMLOG_TOKEN": "short", "MEMLOG_ALLOWED_HOSTS": "memory.example"}, "shorter than 32"),
    ],
)
@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_an_address_that_others_reach_needs_tokens_and_hosts(
    tmp_path: Path, variables: dict[str, str], missing: str, host: str
) -> None:
    arguments = ("serve", "--transport", "http", "--port", "0", "--host", host)
    ended = run_memlog(*arguments, data_dir=tmp_path, stdin=b"", **variables)
    assert ended.returncode == 1
    assert missing in ended.stderr


@pytest.mark.parametrize(
    "token",
    [
        f"{SECRET}\n",
        f" {SECRET}",
        f"{SECRET}\t",
        f"{SECRET}\x7f{SECRET}",
        f"{SECRET}日",
        f"{SECRET}é",
    ],
)
def test_a_token_of_the_environment_that_no_client_could_send_is_refused_and_not_shown(
    tmp_path: Path, token: str
) -> None:
    arguments = ("serve", "--transport", "http", "--port", "0")
    ended = run_memlog(*arguments, data_dir=tmp_path, stdin=b"", MEMLOG_TOKEN=token)
    assert ended.returncode == 1
    assert "MEMLOG_TOKEN has white space at an end, or a character that no header" in ended.stderr
    assert SECRET not in ended.stderr
