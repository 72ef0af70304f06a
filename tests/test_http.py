"""MCP over HTTP as clients see it: both eras, sessions, projects in paths, several processes, the end."""

from __future__ import annotations

import gzip
import json
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import quote

import anyio
import pytest
from mcp.client.client import Client
from mcp.client.session import IncomingMessage
from mcp_types import ResourceUpdatedNotification

from tests.asgi import Client as InProcess
from tests.asgi import app_over, request
from tests.connected import ERAS, Mode, run
from tests.http_served import (
    Answer,
    HttpClient,
    HttpServer,
    get_stream,
    heard_until,
    served_http,
    until_told,
)
from tests.served import ENVELOPE, Era, served
from tests.service import Refused

JON = {"name": "Jon", "entityType": "person", "observations": ["likes dancing"]}
END_OF_CHUNKS = b"0\r\n\r\n"
WIRE_ERAS = pytest.mark.parametrize("era", ["2025-11-25", "2026-07-28"])


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpServer]:
    with served_http(tmp_path_factory.mktemp("http")) as server:
        yield server


@ERAS
def test_a_client_stores_searches_and_supersedes(server: HttpServer, mode: Mode) -> None:
    async def scenario() -> None:
        async with Client(f"{server.url}/mcp", mode=mode) as client:

            async def call(tool: str, **arguments: Any) -> dict[str, Any]:
                result = await client.call_tool(tool, {**arguments, "project": project})
                assert not result.is_error, result.content
                return result.structured_content or {}

            project = f"round-{mode}"
            await client.call_tool("create_project", {"name": project})
            old = (await call("store_memory", content="Lives in Seattle"))["created"]["id"]
            new = (await call("store_memory", content="Moved to Austin"))["created"]["id"]
            await call("supersede_memory", old_memory_id=old, new_memory_id=new)
            found = await call("search_memories", query="Seattle Austin")
            assert [each["id"] for each in found["memories"]] == [new]

    run(scenario)


def test_the_active_project_belongs_to_the_session(server: HttpServer) -> None:
    one, other = HttpClient(server, "2025-11-25"), HttpClient(server, "2025-11-25")
    one("create_project", name="of-one")
    assert one("get_current_project")["project"] == "of-one"
    assert other("get_current_project")["project"] == "default"
    assert HttpClient(server, "2025-11-25")("get_current_project")["project"] == "default"


def test_a_client_that_leaves_out_its_capabilities_is_let_in(server: HttpServer) -> None:
    client = HttpClient(server)
    client.era = "2025-11-25"
    introduced = {"name": "test", "version": "1"}
    opened = client.request("initialize", protocolVersion=client.era, clientInfo=introduced)
    assert (opened.status, "mcp-session-id" in opened.headers) == (200, True), opened
    assert opened.json["result"]["protocolVersion"] == client.era


def test_a_session_that_was_ended_is_unknown(server: HttpServer) -> None:
    client = HttpClient(server, "2025-11-25")
    assert server.ask("DELETE", "/mcp", b"", client.headers).status == 200
    answer = client.request("tools/list")
    assert (answer.status, answer.json["error"]["message"]) == (404, "There is no such session")


def test_who_shakes_hands_under_an_id_that_is_no_longer_known_gets_a_new_session(
    server: HttpServer,
) -> None:
    """As clients do that keep the id of before the server was started again."""
    client = HttpClient(server, "2025-11-25")
    lost = client.headers["Mcp-Session-Id"]
    assert server.ask("DELETE", "/mcp", b"", client.headers).status == 200
    introduced = {"name": "test", "version": "1"}
    shaken = {"protocolVersion": client.era, "capabilities": {}, "clientInfo": introduced}
    opened = client.request("initialize", **shaken)
    assert (opened.status, opened.headers["mcp-session-id"] != lost) == (200, True)
    client.headers["Mcp-Session-Id"] = opened.headers["mcp-session-id"]
    assert client("get_current_project")["project"] == "default"


def test_a_session_that_ends_while_it_is_given_requests_is_unknown_to_them(
    server: HttpServer,
) -> None:
    """The SDK takes them up only after it has looked whether the session is there."""
    before = len(server.log())
    answers: list[Answer] = []
    with ThreadPoolExecutor(5) as pool:
        for _ in range(20):
            client = HttpClient(server, "2025-11-25")
            asked = [
                pool.submit(client.post, request("resources/list", number)) for number in range(8)
            ]
            asked[0].result()
            assert server.ask("DELETE", "/mcp", b"", client.headers).status == 200
            answers += [each.result() for each in asked]
    told = {each.json["error"]["message"] for each in answers if each.status != 200}
    assert told <= {
        "There is no such session",
        "Not Found: Session has been terminated",
        "Session terminated before the request completed",
    }
    assert not [line for line in server.log()[before:] if line["level"] == "error"]


def test_a_session_opened_at_one_path_is_unknown_at_another(server: HttpServer) -> None:
    client = HttpClient(server, "2025-11-25")
    client.path = "/mcp/p/default"
    assert client.request("tools/list").status == 404


def test_who_opens_a_session_again_is_told_once_and_after_unsubscribing_no_more(
    server: HttpServer,
) -> None:
    HttpClient(server)("create_project", name="watched")
    client = HttpClient(server, "2025-11-25", path="/mcp/p/watched")
    with server.connect() as stream:
        stream.sendall(get_stream(client))
        for _ in range(2):
            for uri in ("memory://knowledge-graph", "mem://recent"):
                assert "result" in client.request("resources/subscribe", uri=uri).json
            client._shake_hands()
        client.request("resources/unsubscribe", uri="memory://knowledge-graph")
        client("create_entities", entities=[JON])
        client("store_memory", content="Lives in Seattle")
        heard = heard_until(stream, b"mem://recent")
        assert server.ask("DELETE", client.path, b"", client.headers).status == 200
        while not heard.endswith(END_OF_CHUNKS):  # the connection stays open, for the next request
            heard += (part := stream.recv(1_000))
            assert part
    assert b"memory://knowledge-graph" not in heard
    assert heard.count(b"mem://recent") == 1


def test_who_asks_for_a_stream_to_be_resumed_gets_a_new_one(server: HttpServer) -> None:
    """Clients do so on their own after a stream that broke off."""
    client = HttpClient(server, "2025-11-25")
    with server.connect() as stream:
        stream.sendall(get_stream(client, Last_Event_ID="7"))
        answer = stream.recv(1_000)
    assert answer.startswith(b"HTTP/1.1 200")
    assert b"text/event-stream" in answer


def test_a_new_stream_of_a_session_takes_the_place_of_the_one_before(server: HttpServer) -> None:
    """A client that lost its network opens another, long before anybody here learns of the first."""
    client = HttpClient(server, "2025-11-25")
    client.request("resources/subscribe", uri="mem://recent")
    with server.connect() as lost, server.connect() as stream:
        lost.sendall(get_stream(client))
        assert lost.recv(1_000).startswith(b"HTTP/1.1 200")
        stream.sendall(get_stream(client, Last_Event_ID="7"))
        assert stream.recv(1_000).startswith(b"HTTP/1.1 200")
        heard_until(lost, END_OF_CHUNKS)
        client("store_memory", content="Lives in Austin")
        heard_until(stream, b"mem://recent")


def test_what_changed_while_no_stream_listened_is_told_by_the_next_one(server: HttpServer) -> None:
    client = HttpClient(server, "2025-11-25")
    client("create_project", name="missed")
    for uri in ("memory://knowledge-graph", "mem://recent"):
        client.request("resources/subscribe", uri=uri)
    client("store_memory", content="Lives in Oslo")
    for _ in range(2):  # the first may have broken before it was read
        with server.connect() as stream:
            stream.sendall(get_stream(client, Last_Event_ID="7"))
            assert b"knowledge-graph" not in heard_until(stream, b"mem://recent")


def test_who_accepts_no_stream_of_events_ends_none(server: HttpServer) -> None:
    client = HttpClient(server, "2025-11-25")
    client.request("resources/subscribe", uri="mem://recent")
    with server.connect() as stream:
        stream.sendall(get_stream(client))
        assert stream.recv(1_000).startswith(b"HTTP/1.1 200")
        refused = server.get(client.path, **{**client.headers, "Accept": "application/json"})
        assert refused.status == 406
        client("store_memory", content="Lives in Boston")
        heard_until(stream, b"mem://recent")


def test_an_idle_session_ends(tmp_path: Path) -> None:
    """Of a client that opens it and does nothing more: one that goes on may be too late where its machine is slow."""
    introduced = {"name": "test", "version": "1"}
    params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": introduced}
    with served_http(tmp_path, MEMLOG_HTTP_SESSION_SECONDS="0.2") as server:
        client = HttpClient(server)
        opened = client.post(request("initialize", 1, params))
        client.era = "2025-11-25"
        client.headers["Mcp-Session-Id"] = opened.headers["mcp-session-id"]
        until_told(server, "a session of a client ends")
        assert client.request("tools/list").status == 404


def test_a_session_that_only_listens_does_not_end_with_an_idle_one(tmp_path: Path) -> None:
    with served_http(tmp_path, MEMLOG_HTTP_SESSION_SECONDS="3") as server:
        client = HttpClient(server, "2025-11-25")
        client.request("resources/subscribe", uri="mem://recent")
        with server.connect() as stream:
            stream.sendall(get_stream(client))
            assert stream.recv(1_000).startswith(b"HTTP/1.1 200")
            HttpClient(server, "2025-11-25").request("tools/list")
            until_told(server, "a session of a client ends")
            client("store_memory", content="Lives in Boston")
            heard_until(stream, b"mem://recent")


def test_without_a_session_a_project_is_named_in_each_call(server: HttpServer) -> None:
    client = HttpClient(server)
    assert "name it in each call" in client("create_project", name="loose")["message"]
    assert client("get_current_project")["project"] == "default"
    with pytest.raises(Refused, match="no session"):
        client("switch_project", name="loose")
    client("create_entities", entities=[JON], project="loose")
    assert client("open_nodes", names=["Jon"], project="loose")["project"] == "loose"


def test_the_handshake_era_can_do_without_sessions_too(tmp_path: Path) -> None:
    with served_http(tmp_path, "--stateless") as server:
        client = HttpClient(server, "2025-11-25")
        assert "Mcp-Session-Id" not in client.headers
        client("create_entities", entities=[JON])
        assert client("open_nodes", names=["Jon"])["entities"]


@WIRE_ERAS
def test_without_a_session_nobody_is_advised_to_switch_to_a_project(
    tmp_path: Path, era: Era
) -> None:
    with served_http(tmp_path, "--stateless", MEMLOG_PROJECT="") as server:
        client = HttpClient(server, era)
        for name in ("one", "away"):
            client("create_project", name=name)
        client("archive_project", name="away")
        told = [client("get_current_project")["message"]]
        for tool, arguments in (
            ("read_graph", {}),
            ("read_graph", {"project": "away"}),
            ("create_project", {"name": "one"}),
        ):
            with pytest.raises(Refused) as refused:
                client(tool, **arguments)
            told.append(f"{refused.value.error['message']} {refused.value.error['suggestion']}")
        assert all("project" in each and "in each call" in each for each in told), told
        assert "switch_project" not in str(told)
        assert "/mcp/p/NAME" in told[1]
        assert client("read_graph", project="one")["entities"] == []


def test_without_a_session_no_resource_is_subscribed_to(tmp_path: Path) -> None:
    """Nobody could be told of a change, and nobody would ever take it back."""
    with served_http(tmp_path, "--stateless") as server:
        client = HttpClient(server, "2025-11-25")
        introduced = {"name": "test", "version": "1"}
        opened = client.request(
            "initialize", protocolVersion=client.era, capabilities={}, clientInfo=introduced
        )
        assert opened.json["result"]["capabilities"]["resources"]["subscribe"] is False
        answer = client.request("resources/subscribe", uri="memory://knowledge-graph")
        assert answer.json["error"]["code"] == -32601


@WIRE_ERAS
def test_a_path_fixes_the_project(server: HttpServer, era: Era) -> None:
    HttpClient(server)("create_project", name=f"fixed {era}")
    client = HttpClient(server, era, path=f"/mcp/p/fixed%20{era}")
    assert client("create_entities", entities=[JON])["project"] == f"fixed {era}"
    assert [each["name"] for each in client("list_projects")["projects"]] == [f"fixed {era}"]
    with pytest.raises(Refused, match="PROJECT_NOT_FOUND"):
        client("open_nodes", names=["Jon"], project="default")
    with pytest.raises(Refused, match="PROJECT_NOT_FOUND"):
        client("create_project", name="another")


def test_a_project_in_the_path_is_one_however_its_letters_are_composed(server: HttpServer) -> None:
    """Else a name of ten accents would be a thousand doors, each with a server of its own."""
    composed, decomposed = quote("Caf\u00e9"), quote("Cafe\u0301")
    HttpClient(server)("create_project", name="Cafe\u0301")
    session = HttpClient(server, "2025-11-25", path=f"/mcp/p/{composed}")
    session.path = f"/mcp/p/{decomposed}"
    assert session.request("tools/list").status == 200


@WIRE_ERAS
@pytest.mark.parametrize("spelt", ["Caf\u00e9", "Cafe\u0301"], ids=["composed", "decomposed"])
def test_the_usual_project_is_made_on_first_use_however_the_path_spells_it(
    tmp_path: Path, era: Era, spelt: str
) -> None:
    with served_http(tmp_path, MEMLOG_PROJECT="Cafe\u0301") as server:
        client = HttpClient(server, era, path=f"/mcp/p/{quote(spelt)}")
        assert client("create_entities", entities=[JON])["entities"]


@WIRE_ERAS
@pytest.mark.parametrize("gone_by", ["archive_project", "delete_project"])
def test_a_project_fixed_by_the_path_is_active_again_as_soon_as_it_is_back(
    server: HttpServer, era: Era, gone_by: str
) -> None:
    name = f"back {era} {gone_by}"
    anywhere = HttpClient(server)
    anywhere("create_project", name=name)
    client = HttpClient(server, era, path=f"/mcp/p/{quote(name)}")
    client(gone_by, name=name)
    if gone_by == "archive_project":
        with pytest.raises(Refused, match="PROJECT_ARCHIVED"):
            client("read_graph")
        client("restore_project", name=name)
    else:
        assert client.request("tools/list").status == 404
        anywhere("create_project", name=name)
    assert client("create_entities", entities=[JON])["project"] == name
    assert client("get_current_project")["project"] == name


@pytest.mark.parametrize("name", ["", "x" * 3_000, "%20", "a%00b"])
def test_nobody_is_advised_to_make_a_project_that_cannot_be_made(
    server: HttpServer, name: str
) -> None:
    answer = server.ask("POST", f"/mcp/p/{name}", b"{}", {"Content-Type": "application/json"})
    assert answer.status == 404
    told = answer.json["error"]["data"]["suggestion"]
    assert told.startswith("No project has such a name. /mcp/p/NAME is for the project NAME alone")


def test_a_path_of_no_project_is_not_found(server: HttpServer) -> None:
    for path in ("/mcp/p/nobody", "/mcp/p/..", "/mcp/p/%2e%2e%2fetc", "/mcp/p/a/b", "/mcp/p/"):
        client = HttpClient(server, path=path)
        assert client.request("tools/list").status == 404, path


@WIRE_ERAS
@pytest.mark.parametrize("door", ["/mcp", "/mcp/p/default", "/a/b", "/a/b/p/default"])
def test_a_slash_at_the_end_of_the_path_changes_nothing(
    tmp_path: Path, era: Era, door: str
) -> None:
    """Many clients are configured so. It is the same door, where a session goes on."""
    with served_http(tmp_path, MEMLOG_HTTP_PATH=door.partition("/p/")[0]) as server:
        client = HttpClient(server, era, path=f"{door}/")
        assert client("create_entities", entities=[JON])["project"] == "default"
        client.path = door
        assert client("open_nodes", names=["Jon"])["entities"]


def test_no_other_spelling_of_a_slash_at_the_end_of_the_path_is_one(server: HttpServer) -> None:
    HttpClient(server)("create_project", name="x")
    ends = (
        "//",
        "%2f",
        "/%2f",
        "%2f/",
        "/.",
        "/..",
        "/./",
        "/p",
        "/p/",
        "/p//",
        "/p/x//",
        "/p/x%2f",
        "/p/../x",
    )
    for path in (
        *(f"/mcp{end}" for end in ends),
        "//mcp/",
        "/mcp/p/x/../x/",
        "/healthz/",
        "/metrics/",
    ):
        answer = server.ask("POST", path, b"{}", {"Content-Type": "application/json"})
        assert answer.status == 404, path


def test_a_project_whose_name_ends_with_a_slash_goes_before_the_one_without(
    server: HttpServer,
) -> None:
    for name in ("shelf", "shelf/"):
        HttpClient(server)("create_project", name=name)
        for path in ("/mcp/p/shelf", "/mcp/p/shelf/", "/mcp/p/shelf%2F/"):
            if path.startswith("/mcp/p/shelf%") and name == "shelf":
                continue
            there = HttpClient(server, path=path)("get_current_project")["project"]
            assert there == ("shelf" if path == "/mcp/p/shelf" else name)


def test_a_project_of_a_path_with_a_slash_that_is_not_there_is_told_by_its_name(
    server: HttpServer,
) -> None:
    answer = HttpClient(server, path="/mcp/p/nobody/").request("tools/list")
    assert answer.status == 404
    assert answer.json["error"]["message"] == "Project 'nobody' not found"


def test_a_project_of_a_path_is_not_called_missing_where_nobody_can_tell(tmp_path: Path) -> None:
    data_dir, away = tmp_path / "data", tmp_path / "away"

    async def scenario() -> None:
        async with app_over(data_dir) as app:
            client = InProcess(app, "2025-11-25", path="/mcp/p/shop")
            anywhere = InProcess(app, "2025-11-25")
            await anywhere.open()
            await anywhere.call("create_project", {"name": "shop"})
            await client.open()
            data_dir.rename(away)
            told = (await client.call("read_graph", {})).json["result"]["structuredContent"]
            away.rename(data_dir)
            assert told["error"]["code"] == "STORAGE_ERROR"
            assert (await client.call("read_graph", {})).status == 200

    run(scenario)


@WIRE_ERAS
@pytest.mark.parametrize(
    ("method", "headers", "status"),
    [
        ("POST", {"Accept": "text/html"}, 406),
        ("POST", {"Accept": "text/html, application/xml"}, 406),
        ("POST", {"Content-Type": "text/plain"}, 400),
        ("POST", {"Content-Type": ""}, 400),
        ("POST", {"MCP-Protocol-Version": "1999-01-01"}, 400),
        ("POST", {"Mcp-Session-Id": "x", "MCP-Protocol-Version": ""}, 404),
        ("PUT", {}, 405),
        ("OPTIONS", {}, 405),
        ("GET", {"Accept": "text/html"}, {"2025-11-25": 406, "2026-07-28": 405}),
        ("DELETE", {"Mcp-Session-Id": ""}, {"2025-11-25": 400, "2026-07-28": 405}),
    ],
)
def test_each_refusal_is_json_with_its_status(
    server: HttpServer,
    era: Era,
    method: str,
    headers: dict[str, str],
    status: int | dict[str, int],
) -> None:
    client = HttpClient(server, era)
    given = {**client.headers, "MCP-Protocol-Version": era, "Mcp-Method": "ping", **headers}
    given = {name: value for name, value in given.items() if value}
    answer = server.ask(method, "/mcp", b'{"jsonrpc":"2.0","id":1,"method":"ping"}', given)
    assert answer.status == (status if isinstance(status, int) else status[era])
    assert answer.headers["content-type"] == "application/json"
    assert answer.json["error"]["message"]
    assert ("allow" in answer.headers) == (answer.status == 405)


@WIRE_ERAS
@pytest.mark.parametrize(
    ("method", "params"),
    [("tools/call", {"name": "list_projects", "arguments": {}}), ("prompts/list", {})],
    ids=["the short way", "the SDK's"],
)
def test_who_accepts_events_alone_gets_the_same_answer_as_one(
    server: HttpServer, era: Era, method: str, params: dict[str, Any]
) -> None:
    client = HttpClient(server, era)
    body = request(method, 1, {**params, "_meta": ENVELOPE})
    head = {**client.headers, "MCP-Protocol-Version": era, "Mcp-Method": method}
    head |= {"Mcp-Name": params["name"]} if "name" in params else {}
    plain = server.ask("POST", "/mcp", body, head)
    event = server.ask("POST", "/mcp", body, {**head, "Accept": "text/event-stream"})
    assert (event.status, event.headers["content-type"]) == (200, "text/event-stream")
    assert event.body == b"event: message\ndata: " + plain.body + b"\n\n"
    assert plain.json["result"]


def test_a_session_can_be_led_by_who_accepts_events_alone(server: HttpServer) -> None:
    client = HttpClient(server)
    client.headers["Accept"] = "text/event-stream"
    introduced = {"name": "test", "version": "1"}
    params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": introduced}
    opened = client.post(request("initialize", 1, params))
    assert opened.body.startswith(b'event: message\ndata: {"jsonrpc":"2.0","id":1,"result":')
    client.headers["Mcp-Session-Id"] = opened.headers["mcp-session-id"]
    assert client.post(b'{"jsonrpc":"2.0","method":"notifications/initialized"}').status == 202
    refused = client.post(b'{"jsonrpc":"2.0"}')
    assert (refused.status, refused.headers["content-type"]) == (400, "application/json")


@WIRE_ERAS
def test_who_says_nothing_of_what_is_accepted_accepts_all(server: HttpServer, era: Era) -> None:
    client = HttpClient(server, era)
    client("store_memory", content="Lives in Turin")  # which makes the project
    del client.headers["Accept"]
    assert client("list_projects")["projects"]


@WIRE_ERAS
def test_what_is_accepted_may_stand_in_several_lines(server: HttpServer, era: Era) -> None:
    """As clients send it that add a header for each media type (RFC 9110, 5.3)."""
    client = HttpClient(server, era)
    call = {"name": "list_projects", "arguments": {}, "_meta": ENVELOPE}
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}
    head = {
        **client.headers,
        "MCP-Protocol-Version": era,
        "Mcp-Method": "tools/call",
        "Mcp-Name": "list_projects",
        "Host": "localhost",
        "Content-Length": str(len(body := json.dumps(message).encode())),
        "Accept": "text/event-stream\r\nAccept: application/json",
    }
    lines = "".join(f"{name}: {value}\r\n" for name, value in head.items())
    with server.connect() as connection:
        connection.sendall(f"POST /mcp HTTP/1.1\r\n{lines}\r\n".encode() + body)
        assert connection.recv(100).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("flags", [(), ("--stateless",)], ids=["session", "stateless"])
def test_half_of_a_character_is_named_under_the_id_of_its_request(
    tmp_path: Path, flags: tuple[str, ...]
) -> None:
    """As JavaScript sends a text that was cut within an emoji."""
    params = {"name": "store_memory", "arguments": {"content": "Waves \ud83d"}}
    with served_http(tmp_path, *flags) as server:
        answer = HttpClient(server).post(request("tools/call", 7, params))
    assert (answer.status, answer.headers["content-type"]) == (400, "application/json")
    assert (answer.json["id"], answer.json["error"]["code"]) == (7, -32602)
    assert "lone surrogate U+D83D: half of a character" in answer.json["error"]["message"]


def test_a_compressed_body_is_refused_as_one(server: HttpServer) -> None:
    client = HttpClient(server)
    body = gzip.compress(b'{"jsonrpc":"2.0","id":1,"method":"ping"}')
    answer = client.post(body, Content_Encoding="gzip")
    assert answer.status == 415
    assert answer.headers["accept-encoding"] == "identity"
    assert "gzip" in answer.json["error"]["message"]


def test_a_refused_preflight_of_a_browser_is_json(tmp_path: Path) -> None:
    with served_http(tmp_path, MEMLOG_ALLOWED_ORIGINS="https://app.example") as server:
        asked = {"Origin": "https://app.example", "Access-Control-Request-Method": "PUT"}
        answer = server.ask("OPTIONS", "/mcp", b"", asked)
        assert (answer.status, answer.json["error"]["message"]) == (400, "Disallowed CORS method")


@WIRE_ERAS
def test_processes_on_stdio_and_http_see_each_others_writes(tmp_path: Path, era: Era) -> None:
    with served_http(tmp_path) as web, served(tmp_path, era=era) as pipe:
        client = HttpClient(web, era)
        client("create_entities", entities=[JON])
        assert pipe("search_nodes", query="dancing")["entities"][0]["name"] == "Jon"
        pipe("add_observations", observations=[{"entityName": "Jon", "contents": ["sings"]}])
        assert client("search_nodes", query="sings")["entities"][0]["name"] == "Jon"


@ERAS
@pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning")
def test_a_subscriber_hears_of_a_write_in_another_process(tmp_path: Path, mode: Mode) -> None:
    uri = "memory://knowledge-graph"

    async def scenario() -> None:
        heard = anyio.Event()

        async def take(message: IncomingMessage) -> None:
            if isinstance(message, ResourceUpdatedNotification):
                heard.set()

        def write() -> None:
            pipe("create_entities", entities=[JON])

        async with Client(f"{web.url}/mcp", mode=mode, message_handler=take) as client:
            if mode == "legacy":
                await client.session.subscribe_resource(uri)
                await anyio.to_thread.run_sync(write)
                await heard.wait()
                return
            async with client.listen(resource_subscriptions=[uri]) as events:
                await anyio.to_thread.run_sync(write)
                assert await anext(events)

    with served_http(tmp_path) as web, served(tmp_path) as pipe:
        run(scenario)


def test_many_clients_lose_no_write(server: HttpServer) -> None:
    HttpClient(server)("create_project", name="busy")

    def work(number: int) -> None:
        client = HttpClient(server, "2025-11-25" if number % 2 else "2026-07-28")
        for each in range(5):
            name = f"{number}-{each}"
            client("create_entities", entities=[{**JON, "name": name}], project="busy")
            assert client("open_nodes", names=[name], project="busy")["entities"]

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    graph = HttpClient(server)("read_graph", project="busy", limit=100)
    assert len(graph["entities"]) == 40


def test_the_head_of_an_answer_and_its_body_come_in_one_piece(server: HttpServer) -> None:
    with server.connect() as connection:
        for _ in range(20):
            connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert connection.recv(65_536).endswith(b'\r\n\r\n{"status":"alive"}')


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_whole_with_streams_open(tmp_path: Path, number: signal.Signals) -> None:
    with served_http(tmp_path) as server:
        client = HttpClient(server, "2025-11-25")
        with server.connect() as stream:
            stream.sendall(get_stream(client))
            assert stream.recv(100).startswith(b"HTTP/1.1 200")
            client("create_entities", entities=[JON])
            assert server.end(number) == 0
    with served(tmp_path) as pipe:
        assert pipe("open_nodes", names=["Jon"])["entities"]
