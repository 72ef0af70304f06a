"""Access tokens of an authorization server, a real one on the loopback that signs with its own key."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import anyio
import jwt
import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from starlette.routing import Match

from memlog import __version__
from memlog.configuration import load
from memlog.errors import InvalidParameter
from memlog.settings import Settings
from server.http import keys, oauth
from server.http.access import Access
from server.http.keys import NoKeys
from server.http.oauth import Claims, Issuer, grant_of
from server.http.resource import Metadata, Place
from server.rights.grants import Grant
from tests.http_served import HttpClient, HttpServer, served_http, until_told
from tests.served import Era
from tests.service import Refused

RESOURCE = "https://memory.example/mcp"
Changed = dict[str, Any]

ODD_CLAIMS: dict[str, list[Any]] = {
    "scope": [
        7,
        1.5,
        True,
        {"memlog:read": 1},
        ["memlog:read", 7],
        ["memlog:read", "\ud800"],
        [[]],
    ],
    "exp": [10**30, 10**400, 1e308, "9" * 10, True, [], {}],
    "sub": ["", "\ud800", "x" * 256, 7, ["ann"], {}],
    **{claim: [[], {}, [{}]] for claim in ("aud", "iss", "nbf", "iat", "jti")},
}
ODD_PAGES: dict[str, list[Any]] = {
    "issuer": [7, None, "", "https://issuer.example"],
    "jwks_uri": [7, None, [], "http://127.0.0.1:port/", "http://localhost/ "],
    "keys": [
        *(7, None, {}, [7], [{"kty": [], "kid": []}]),
        [{"kty": "oct", "k": "Zm9v", "kid": "one"}],
    ],
}


class Authority:
    """The authorization server: its metadata, its keys, and tokens that it signs."""

    def __init__(self) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self.asked: list[str] = []
        self.asked_by: str | None = None
        self.moved: dict[str, str] = {}
        authority = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                authority.asked.append(self.path)
                authority.asked_by = self.headers["User-Agent"]
                moved = authority.moved.get(self.path)
                found = authority.page(self.path) is not None
                self.send_response(302 if moved else 200 if found else 404)
                if moved:
                    self.send_header("Location", moved)
                self.end_headers()
                with suppress(OSError):  # nobody waits for the rest
                    for part in authority.sent(self.path):
                        self.wfile.write(part)

            def log_message(self, format: str, *arguments: object) -> None:
                """Nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def page(self, path: str) -> bytes | None:
        page = self.pages().get(path)
        return None if page is None else json.dumps(page).encode()

    def sent(self, path: str) -> Iterator[bytes]:
        yield self.page(path) or b""

    def pages(self) -> dict[str, Any]:
        key = json.loads(jwt.algorithms.ECAlgorithm.to_jwk(self._key.public_key()))
        return {
            "/.well-known/openid-configuration": {
                "issuer": self.url,
                "jwks_uri": f"{self.url}/keys",
            },
            "/keys": {"keys": [{**key, "kid": "one", "alg": "ES256", "use": "sig"}]},
        }

    def token(
        self, key: Any = None, kid: str | None = "one", critical: str | None = None, **changed: Any
    ) -> str:
        claims: Changed = {
            "iss": self.url,
            "aud": RESOURCE,
            "sub": "ann",
            "exp": time.time() + 600,
            "scope": "openid memlog:write memlog:project:a",
            **changed,
        }
        claims = {name: value for name, value in claims.items() if value is not None}
        payload = json.dumps(claims).encode()  # as it is: jwt.encode makes no odd ones
        header: Changed = {"kid": kid} if kid else {}
        if critical:
            header |= {critical: True, "crit": [critical]}
        return jwt.PyJWS().encode(payload, key or self._key, "ES256", header)


def require_no_keys(issuer: Issuer, authority: Authority) -> None:
    with pytest.raises(NoKeys):
        anyio.run(issuer.granted, authority.token())


@pytest.fixture(scope="module")
def authority() -> Iterator[Authority]:
    authority = Authority()
    thread = Thread(target=authority.server.serve_forever, daemon=True)
    thread.start()
    yield authority
    authority.server.shutdown()
    authority.server.server_close()


@pytest.fixture(scope="module")
def server(authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpServer]:
    with served_http(
        tmp_path_factory.mktemp("oauth"),
        MEMLOG_OAUTH_ISSUER=authority.url,
        MEMLOG_OAUTH_RESOURCE=RESOURCE,
        MEMLOG_PROJECT="a",
    ) as server:
        yield server


def test_a_token_of_the_issuer_is_taken_with_its_scopes(
    server: HttpServer, authority: Authority
) -> None:
    client = HttpClient(server, token=authority.token())
    client("create_entities", entities=[{"name": "Jon", "entityType": "person"}])
    (created, *_) = client("get_history", entityName="Jon")["events"]
    assert created["actor"] == "oauth:ann"
    assert "delete_project" not in client.tools()


@pytest.mark.parametrize(
    "changed",
    [
        {"aud": "https://elsewhere.example/mcp"},
        {"aud": None},
        {"iss": "https://evil.example"},
        {"exp": 1},
        {"exp": None},
        {"sub": None},
        {"kid": "another"},
        {"nbf": time.time() + 86_400},
        {"key": ec.generate_private_key(ec.SECP256R1())},
    ],
)
def test_a_token_that_is_not_for_this_server_is_refused(
    server: HttpServer, authority: Authority, changed: Changed
) -> None:
    client = HttpClient(server, token=authority.token(**changed))
    assert client.request("tools/list").status == 401


@pytest.mark.parametrize(
    ("claim", "odd"), [(claim, odd) for claim, odds in ODD_CLAIMS.items() for odd in odds]
)
def test_a_claim_of_an_odd_shape_is_refused_as_any_bad_token(
    server: HttpServer, authority: Authority, claim: str, odd: Any
) -> None:
    answer = HttpClient(server, token=authority.token(**{claim: odd})).request("tools/list")
    assert (answer.status, answer.json["error"]) == (401, "invalid_token")


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"aud": "account"}, "it is for account, not for https://memory.example/mcp"),
        ({"aud": ["a", "b"]}, "it is for ['a', 'b'], not for https://memory.example/mcp"),
        ({"aud": None}, "it is for nobody it names, not for https://memory.example/mcp"),
        ({"aud": "x" * 100_000}, "…, not for https://memory.example/mcp: the authorization server"),
        ({"iss": "https://sts.example/"}, "its issuer is https://sts.example/, and MEMLOG_OAUTH_"),
        ({"sub": None}, 'missing the "sub" claim'),
    ],
)
def test_the_log_says_what_is_wrong_with_a_token_that_the_issuer_signed(
    authority: Authority, caplog: pytest.LogCaptureFixture, changed: Changed, told: str
) -> None:
    """An audience that was not set up is why most tokens of real issuers are refused at first."""
    caplog.set_level("INFO")
    token = authority.token(**changed)
    assert anyio.run(Issuer(authority.url, RESOURCE).granted, token) is None
    assert told in caplog.text
    assert len(caplog.text) < 1_000 and token not in caplog.text


@pytest.mark.parametrize(
    ("audience", "let_in"),
    [
        ("6e74172b", True),
        (["client@project", "6e74172b"], True),
        (RESOURCE, False),
        ("6E74172B", False),
        (["6e74", "172b"], False),
        (None, False),
    ],
)
def test_an_issuer_that_does_not_know_the_resource_by_its_address_names_it_as_was_set(
    authority: Authority, audience: object, let_in: bool
) -> None:
    """Some put the id of a client or a project into `aud`, whatever a client asks for."""
    issuer = Issuer(authority.url, RESOURCE, "6e74172b")
    granted = anyio.run(issuer.granted, authority.token(aud=audience))
    assert (granted is not None) is let_in


@pytest.mark.parametrize(
    ("resource", "audience", "let_in"),
    [
        ("https://memory.example", "https://memory.example/", True),
        ("https://memory.example/", "https://memory.example", True),
        ("https://memory.example", "https://memory.example//", False),
        ("https://memory.example", "https://memory.example/mcp", False),
        (RESOURCE, f"{RESOURCE}/", False),
    ],
)
def test_a_resource_without_a_path_is_the_same_with_a_slash(
    authority: Authority, resource: str, audience: str, let_in: bool
) -> None:
    """Clients that parse it ask for it with one (RFC 3986, 6.2.3)."""
    token = authority.token(aud=audience)
    assert (anyio.run(Issuer(authority.url, resource).granted, token) is not None) is let_in
    named = Issuer(authority.url, resource, resource)
    assert anyio.run(named.granted, token) is None


@pytest.mark.parametrize("claim", ["aud", "iss"])
def test_the_log_repeats_nothing_that_the_issuer_did_not_sign(
    authority: Authority, caplog: pytest.LogCaptureFixture, claim: str
) -> None:
    caplog.set_level("INFO")
    token = authority.token(ec.generate_private_key(ec.SECP256R1()), **{claim: "invented"})
    assert anyio.run(Issuer(authority.url, RESOURCE).granted, token) is None
    assert "Signature verification failed" in caplog.text and "invented" not in caplog.text


@pytest.mark.parametrize(
    "token", ["ya29.a0AfB", "ory_at_Zk", "eyJhbGciOiJkaXIifQ..aXY.dGV4dA.dGFn"]
)
def test_a_token_that_is_opaque_or_encrypted_is_told_of_in_the_log_as_that(
    authority: Authority, caplog: pytest.LogCaptureFixture, token: str
) -> None:
    caplog.set_level("INFO")
    assert anyio.run(Issuer(authority.url, RESOURCE).granted, token) is None
    assert "no signed JSON Web Token" in caplog.text and token not in caplog.text


def test_a_token_that_comes_as_bound_to_a_key_is_told_of_in_the_log_as_that(
    server: HttpServer, authority: Authority
) -> None:
    """The authorization server decides that clients prove a key, who say so in place of `Bearer` (RFC 9449, 7.1)."""
    client = HttpClient(server)
    token = authority.token(cnf={"jkt": "0ZcOCORZNYy-DWpqq30jZyJGHTN0d2HglBV3uiguA4I"})
    client.headers |= {"Authorization": f"DPoP {token}", "DPoP": "a.b.c"}
    assert client.request("tools/list").status == 401
    told = until_told(server, "came as DPoP")["message"]
    assert "only Bearer is taken" in told and token not in told


@pytest.mark.parametrize("signed_by", ["none", "HS256"])
def test_a_token_without_the_issuers_signature_is_refused(
    server: HttpServer, authority: Authority, signed_by: str
) -> None:
    """No algorithm at all, and a secret in place of a key pair."""
    claims = jwt.decode(authority.token(), options={"verify_signature": False})
    secret = "" if signed_by == "none" else "s" * 64
    token = jwt.encode(claims, secret, signed_by, {"kid": "one"})
    assert HttpClient(server, token=token).request("tools/list").status == 401


def test_a_token_whose_header_has_to_be_understood_and_is_not_is_refused(
    server: HttpServer, authority: Authority
) -> None:
    """RFC 7515, 4.1.11."""
    token = authority.token(critical="confirmed")
    assert HttpClient(server, token=token).request("tools/list").status == 401


@pytest.mark.parametrize(
    ("algorithm", "made"),
    [
        ("RS512", lambda: rsa.generate_private_key(65537, 2048)),
        ("PS256", lambda: rsa.generate_private_key(65537, 2048)),
        ("ES384", lambda: ec.generate_private_key(ec.SECP384R1())),
        ("ES512", lambda: ec.generate_private_key(ec.SECP521R1())),
        ("EdDSA", ed25519.Ed25519PrivateKey.generate),
        ("Ed25519", ed25519.Ed25519PrivateKey.generate),  # RFC 9864
    ],
)
def test_a_key_of_any_kind_that_the_issuer_publishes_signs(
    authority: Authority,
    monkeypatch: pytest.MonkeyPatch,
    algorithm: str,
    made: Callable[[], Any],
) -> None:
    key, pages = made(), authority.pages()
    kind = jwt.get_algorithm_by_name(algorithm)
    published = json.loads(kind.to_jwk(key.public_key()))
    pages["/keys"]["keys"] = [{**published, "kid": "one", "alg": algorithm}]
    monkeypatch.setattr(authority, "pages", lambda: pages)
    claims = jwt.decode(authority.token(), options={"verify_signature": False})
    token = jwt.encode(claims, key, algorithm, {"kid": "one"})
    assert anyio.run(Issuer(authority.url, RESOURCE).granted, token) is not None


@pytest.mark.parametrize("algorithm", ["RS256", "PS512", "ES384", "EdDSA"])
def test_a_token_of_an_algorithm_that_the_key_is_not_for_is_refused(
    server: HttpServer, authority: Authority, algorithm: str
) -> None:
    """The head of a token is anybody's to write."""
    head = jwt.utils.base64url_encode(json.dumps({"alg": algorithm, "kid": "one"}).encode())
    token = f"{head.decode()}.{authority.token().partition('.')[2]}"
    assert HttpClient(server, token=token).request("tools/list").status == 401


def test_an_invented_key_does_not_make_the_server_ask_again(
    server: HttpServer, authority: Authority
) -> None:
    assert HttpClient(server, token=authority.token()).request("tools/list").status == 200
    asked = len(authority.asked)
    for number in range(5):
        token = authority.token(kid=f"invented-{number}")
        assert HttpClient(server, token=token).request("tools/list").status == 401
    assert len(authority.asked) == asked


def test_a_key_that_the_issuer_withdrew_counts_no_more(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its place under the same name is taken by another, and no name is unknown."""
    issuer = Issuer(authority.url, RESOURCE)
    stolen = authority.token()
    assert anyio.run(issuer.granted, stolen) is not None
    monkeypatch.setattr(authority, "_key", ec.generate_private_key(ec.SECP256R1()))
    assert anyio.run(issuer.granted, stolen) is not None
    monkeypatch.setattr(keys, "KEYS_SECONDS", 0.0)
    monkeypatch.setattr(keys, "FETCH_SECONDS", 0.0)
    assert anyio.run(issuer.granted, stolen) is None
    assert anyio.run(issuer.granted, authority.token()) is not None


@pytest.mark.parametrize("kid", ["one", None])
def test_a_key_that_takes_the_place_of_another_under_the_same_name_signs_at_once(
    authority: Authority, monkeypatch: pytest.MonkeyPatch, kid: str | None
) -> None:
    """As with an authorization server that makes its key at each start."""
    issuer = Issuer(authority.url, RESOURCE)
    before = authority.token(kid=kid)
    assert anyio.run(issuer.granted, before) is not None
    monkeypatch.setattr(authority, "_key", ec.generate_private_key(ec.SECP256R1()))
    assert anyio.run(issuer.granted, authority.token(kid=kid)) is None  # it was asked just before
    monkeypatch.setattr(keys, "FETCH_SECONDS", 0.0)
    assert anyio.run(issuer.granted, authority.token(kid=kid)) is not None
    assert anyio.run(issuer.granted, before) is None


def test_a_forged_signature_does_not_make_the_server_ask_again(
    server: HttpServer, authority: Authority
) -> None:
    assert HttpClient(server, token=authority.token()).request("tools/list").status == 200
    asked = len(authority.asked)
    for _ in range(5):
        token = authority.token(key=ec.generate_private_key(ec.SECP256R1()))
        assert HttpClient(server, token=token).request("tools/list").status == 401
    assert len(authority.asked) == asked


def test_the_keys_that_are_there_count_while_the_issuer_is_away(
    authority: Authority, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    issuer = Issuer(authority.url, RESOURCE)
    assert anyio.run(issuer.granted, authority.token()) is not None
    monkeypatch.setattr(keys, "KEYS_SECONDS", 0.0)
    monkeypatch.setattr(keys, "FETCH_SECONDS", 0.0)
    token = authority.token()
    monkeypatch.setattr(authority, "pages", lambda: {})
    assert anyio.run(issuer.granted, token) is not None
    assert "cannot be had" in caplog.text


def test_who_has_a_token_that_holds_longer_is_not_ended_with_a_shorter_one(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    hour = 3_600.0
    monkeypatch.setattr(oauth, "LEEWAY_SECONDS", hour)
    issuer = Issuer(authority.url, RESOURCE)
    grant = anyio.run(issuer.granted, authority.token())
    until = time.time() - 10
    short, of_bob = authority.token(exp=until), authority.token(sub="bob", exp=until)
    assert grant is not None and anyio.run(issuer.granted, short) == grant
    bob = anyio.run(issuer.granted, of_bob)
    assert bob is not None and issuer.still_holds(bob)
    monkeypatch.setattr(oauth, "LEEWAY_SECONDS", 0.0)
    assert anyio.run(issuer.granted, short) is None
    monkeypatch.setattr(oauth, "time", SimpleNamespace(time=lambda: time.time() + hour))
    assert issuer.still_holds(grant)
    assert not issuer.still_holds(bob)


def test_a_session_goes_on_with_a_token_of_the_same_scopes_in_another_order(
    server: HttpServer, authority: Authority
) -> None:
    """RFC 6749, 3.3: their order does not matter."""
    scopes = ["memlog:read", *(f"memlog:{each}" for each in ("project:a", "project:b"))]
    scopes += ["memlog:toolset:graph", "memlog:toolset:facts"]
    session = HttpClient(server, "2025-11-25", token=authority.token(scope=" ".join(scopes)))
    for given in (scopes[::-1], [*scopes, *scopes]):
        token = authority.token(scope=" ".join(given))
        session.headers["Authorization"] = f"Bearer {token}"
        assert session.request("tools/list").status == 200


@pytest.mark.parametrize("path", ["/mcp", "/mcp/"])
def test_who_has_no_token_is_told_where_to_get_one(
    server: HttpServer, authority: Authority, path: str
) -> None:
    refused = HttpClient(server, path=path).request("tools/list")
    assert refused.status == 401
    where = "https://memory.example/.well-known/oauth-protected-resource/mcp"
    assert f'resource_metadata="{where}"' in refused.headers["www-authenticate"]
    metadata = server.get("/.well-known/oauth-protected-resource/mcp").json
    assert metadata["resource"] == RESOURCE
    assert metadata["authorization_servers"] == [authority.url]
    assert metadata["scopes_supported"] == ["memlog:read", "memlog:write"]


def test_the_right_to_delete_projects_is_had_by_who_asks_for_it_though_nobody_is_told_to(
    server: HttpServer, authority: Authority
) -> None:
    """MCP has clients ask for all that the metadata lists, which is to be what basic use needs."""
    admin = HttpClient(server, token=authority.token(scope="memlog:admin"))
    assert "delete_project" in admin.tools()
    listed = server.get("/.well-known/oauth-protected-resource/mcp").json["scopes_supported"]
    asking = HttpClient(server, token=authority.token(scope=" ".join(listed)))
    assert asking.tools() >= {"create_entities", "list_projects"}
    assert not asking.tools() & {"create_project", "delete_project"}


@pytest.mark.parametrize(
    "name", ["a", "a/", "nobody", "nobody/", "caf%C3%A9", "a%2fb", "a/b", "a%20b", "%61", "a'(b)~"]
)
def test_who_has_no_token_for_a_project_is_told_of_the_very_address_it_asked(
    server: HttpServer, authority: Authority, name: str
) -> None:
    """RFC 9728, 3.3. VS Code uses no metadata that names another; whether there is such a project nobody is told."""
    refused = HttpClient(server, path=f"/mcp/p/{name}").request("tools/list")
    assert refused.status == 401
    where = f"/.well-known/oauth-protected-resource/mcp/p/{name}"
    told = f'resource_metadata="https://memory.example{where}"'
    assert told in refused.headers["www-authenticate"]
    metadata = server.get(where).json
    assert metadata["resource"] == f"{RESOURCE}/p/{name}"
    whole = server.get("/.well-known/oauth-protected-resource/mcp").json
    assert metadata == {**whole, "resource": metadata["resource"]}
    token = authority.token(aud=metadata["resource"], scope="openid")
    refused = HttpClient(server, path=f"/mcp/p/{name}", token=token).request("tools/list")
    assert refused.status == 403
    assert told in refused.headers["www-authenticate"]


@pytest.mark.parametrize("end", ["", "/"])
def test_the_metadata_of_a_project_is_where_it_is_told_of_whatever_ends_the_address_of_all(
    end: str,
) -> None:
    metadata = Metadata(f"{RESOURCE}{end}", "https://issuer.example", [])
    asked = {"path": "/mcp/p/a", "raw_path": b"/mcp/p/a", "path_params": {"project": "a"}}
    told = {"type": "http", "method": "GET", "path": urlsplit(str(metadata.url(asked))).path}
    found = [
        child
        for route in metadata.routes()
        for match, child in [route.matches(told)]
        if match is Match.FULL
    ]
    assert [child["path_params"] for child in found] == [{"project": "a"}]


def test_a_name_cannot_get_out_of_the_header_that_repeats_it(server: HttpServer) -> None:
    refused = server.ask("POST", '/mcp/p/a",scope="b\\', b"{}", {})
    told = refused.headers["www-authenticate"]
    assert told.endswith('/.well-known/oauth-protected-resource/mcp/p/a%22,scope=%22b/"')


@pytest.mark.parametrize("name", ["a", "a/", "%61", "%61/"])
@pytest.mark.parametrize("audience", ["a", "a/", ["x", "a"], ["a", "b"], None])
def test_a_token_for_a_project_or_for_all_is_taken_at_the_address_of_the_project(
    server: HttpServer, authority: Authority, name: str, audience: str | list[str] | None
) -> None:
    named = [audience] if isinstance(audience, str) else audience or []
    aud = [f"{RESOURCE}/p/{each}" for each in named] or RESOURCE
    token = authority.token(aud=aud, scope="memlog:write")
    for era in ("2026-07-28", "2025-11-25"):
        client = HttpClient(server, era, path=f"/mcp/p/{name}", token=token)
        assert client("read_graph")["project"] == "a"
        assert "create_entities" in client.tools()


@pytest.mark.parametrize(
    "path",
    [
        *("/mcp", "/mcp/", "/mcp/p/b", "/mcp/p/b/", "/mcp/p/", "/mcp/p/A", "/mcp//p/a", "/metrics"),
        *("/mcp/p/a%2F", "/mcp/p/a//", "/mcp/p/a%2Fb", "/mcp/p/b%00a", "/mcp/p/a%ff"),
        *("/mcp/p/a/../b", "/mcp/p/%2e%2e/p/b"),
    ],
)
def test_a_token_for_a_project_opens_no_other_address(
    server: HttpServer, authority: Authority, path: str
) -> None:
    token = authority.token(aud=[f"{RESOURCE}/p/a", f"{RESOURCE}/p/a/"], scope="memlog:admin")
    method = "GET" if path == "/metrics" else "POST"
    answer = server.ask(method, path, b"{}", {"Authorization": f"Bearer {token}"})
    assert answer.status == (404 if path == "/mcp//p/a" else 401)


@pytest.mark.parametrize("era", ["2026-07-28", "2025-11-25"])
def test_a_token_for_a_project_reaches_no_other_by_any_way(
    server: HttpServer, authority: Authority, era: Era
) -> None:
    everywhere = HttpClient(server, era, token=authority.token(scope="memlog:admin"))
    with suppress(Refused):
        everywhere("create_project", name="b")
    stored = everywhere(
        "memory_create", type="note", source="x", content="x", confidence=1, project="b"
    )
    confined = authority.token(
        aud=f"{RESOURCE}/p/a", scope="memlog:admin memlog:project:b memlog:project:a"
    )
    client = HttpClient(server, era, path="/mcp/p/a", token=confined)
    for tool in ("read_graph", "list_threads"):
        with pytest.raises(Refused, match="PROJECT_NOT_FOUND"):
            client(tool, project="b")
    with pytest.raises(Refused, match="PROJECT_NOT_FOUND"):
        client("delete_project", name="b")
    assert [each["name"] for each in client("list_projects")["projects"]] == ["a"]
    assert "error" in client.request("resources/read", uri=stored["uri"]).json
    with pytest.raises(Refused, match="MEMORY_NOT_FOUND"):
        client("forget_memory", id=stored["id"])
    if era == "2025-11-25":
        for session, path in ((everywhere, "/mcp/p/a"), (client, "/mcp/p/b"), (client, "/mcp")):
            headers = {**session.headers, "Authorization": f"Bearer {confined}"}
            body = b'{"jsonrpc":"2.0","id":1,"method":"tools/list"}'
            assert server.ask("POST", path, body, headers).status in (401, 404)
        client.headers["Authorization"] = everywhere.headers["Authorization"]
        assert client.request("tools/list").status == 404, "it was opened with another token"


def test_a_scope_narrows_a_token_for_a_project_to_none_that_it_is_not_for(
    authority: Authority,
) -> None:
    issuer, here = Issuer(authority.url, RESOURCE), Place("a", "", frozenset({f"{RESOURCE}/p/a"}))
    for scope, projects in [
        ("memlog:read", ("a",)),
        ("memlog:read memlog:project:a", ("a",)),
        ("memlog:read memlog:project:b", ()),
        (f"{RESOURCE}/p/a/memlog:read {RESOURCE}/memlog:project:b", ()),
        (f"{RESOURCE}/p/a/memlog:read {RESOURCE}/p/b/memlog:admin", ("a",)),
    ]:
        token = authority.token(aud=[f"{RESOURCE}/p/{each}" for each in "ab"], scope=scope)
        assert anyio.run(issuer.granted, token, here) == Grant("oauth:ann", "read", projects)
        assert anyio.run(issuer.granted, token) is None
        named = Issuer(authority.url, RESOURCE, "an id")
        assert anyio.run(named.granted, token, here) is None


@pytest.mark.parametrize(
    ("scopes", "grant"),
    [
        ("memlog:read", Grant("oauth:ann", "read")),
        (["memlog:read", "memlog:admin"], Grant("oauth:ann", "admin")),
        ("memlog:read memlog:toolset:graph", Grant("oauth:ann", "read", None, ("graph",))),
        ("memlog:read memlog:toolset:none", Grant("oauth:ann", "read", None, ())),
        ("memlog:write memlog:project:b", Grant("oauth:ann", "write", ("b",))),
        ("memlog:project:b memlog:read memlog:project:a", Grant("oauth:ann", "read", ("a", "b"))),
        ("memlog:read memlog:project:b memlog:project:b", Grant("oauth:ann", "read", ("b",))),
        ("memlog:everything", None),
        ("memlog:read memlog:Project:a", None),
        ("memlog:read memlog:projects:a", None),
        ("memlog:read memlog:project:", None),
        ("memlog:read openid others:project:a", Grant("oauth:ann", "read")),
        (f"openid {RESOURCE}/memlog:write", Grant("oauth:ann", "write")),
        (f"memlog:read {RESOURCE}/memlog:project:a", Grant("oauth:ann", "read", ("a",))),
        (f"memlog:read {RESOURCE}/memlog:everything", None),
        ("memlog:read https://other.example/mcp/memlog:admin", Grant("oauth:ann", "read")),
        (f"memlog:read {RESOURCE}/{RESOURCE}/memlog:admin", Grant("oauth:ann", "read")),
        (
            "api://home/memlog:write api://home/memlog:project:a",
            Grant("oauth:ann", "write", ("a",)),
        ),
        ("memlog:read api://other/memlog:admin", Grant("oauth:ann", "read")),
    ],
)
def test_scopes_say_what_is_granted(scopes: object, grant: Grant | None) -> None:
    claims = {"sub": "ann", "exp": 1, "scope": scopes}
    prefixes = ("api://home/", "memlog:", f"{RESOURCE}/")
    assert grant_of(msgspec.convert(claims, Claims), prefixes) == grant


@pytest.mark.parametrize("scope", ["openid", "memlog:project:a", None])
def test_whose_token_grants_nothing_is_told_which_scopes_to_ask_for(
    server: HttpServer, authority: Authority, scope: str | None
) -> None:
    """A token that counts: to renew it, as after a 401, would help nobody. What clients ask for then is all they get,
    so it is what they ask for without a token."""
    refused = HttpClient(server, token=authority.token(scope=scope)).request("tools/list")
    assert refused.status == 403
    told = refused.headers["www-authenticate"]
    assert 'error="insufficient_scope", scope="memlog:read memlog:write"' in told
    assert 'resource_metadata="https://memory.example/' in told
    assert "memlog:write" in refused.json["error"]["data"]["suggestion"]
    given = f"none of its scopes ({scope})" if scope else "it has no scope that"
    told = f"oauth:ann was refused: {given} is one of memlog:read, "
    assert any(told in line["message"] for line in server.log())
    assert (
        server.get("/metrics", Authorization=f"Bearer {authority.token(scope=scope)}").status == 403
    )


def test_clients_are_told_of_scopes_as_the_issuer_knows_them(
    tmp_path: Path, authority: Authority
) -> None:
    """Entra ID refuses `memlog:read` without the resource before it, and has it without in the token."""
    variables = {
        "MEMLOG_OAUTH_ISSUER": authority.url,
        "MEMLOG_OAUTH_RESOURCE": RESOURCE,
        "MEMLOG_OAUTH_SCOPE_PREFIX": "api://home/",
    }
    asked_for = [f"api://home/memlog:{right}" for right in ("read", "write", "admin")]
    with served_http(tmp_path, **variables) as server:
        metadata = server.get("/.well-known/oauth-protected-resource/mcp").json
        assert metadata["scopes_supported"] == asked_for[:2]
        token = authority.token(scope=None, scp="openid")
        refused = HttpClient(server, token=token).request("tools/list")
        assert refused.status == 403
        assert f'scope="{" ".join(asked_for[:2])}"' in refused.headers["www-authenticate"]
        assert ", ".join(asked_for) in refused.json["error"]["data"]["suggestion"]
        for scope in ("memlog:read", asked_for[0]):
            token = authority.token(scope=None, scp=scope)
            assert HttpClient(server, token=token).request("tools/list").status == 200


@pytest.mark.parametrize("prefix", ['a"b', "a b", "a\\b", "\u00e4"])
def test_a_prefix_that_no_scope_can_have_is_refused(
    prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It goes into a header."""
    monkeypatch.setenv("MEMLOG_OAUTH_SCOPE_PREFIX", prefix)
    with pytest.raises(InvalidParameter, match="oauth_scope_prefix is"):
        load()


@pytest.mark.parametrize(
    ("issuer", "resource"),
    [
        ("http://issuer.example", RESOURCE),
        ("https://issuer.example", ""),
        ("issuer.example", RESOURCE),
    ],
)
def test_an_issuer_over_plain_http_is_refused(issuer: str, resource: str) -> None:
    with pytest.raises(InvalidParameter, match="https://"):
        Issuer(issuer, resource)


@pytest.mark.parametrize("named", ["issuer", "resource"])
@pytest.mark.parametrize(
    "address", ["https://[fd00::1", "https://a.example:99999", "https://a.example:x", "https://a b"]
)
def test_what_is_no_address_is_refused_as_one_that_is_not_secure(named: str, address: str) -> None:
    addresses = {"issuer": "https://issuer.example", "resource": RESOURCE, named: address}
    with pytest.raises(InvalidParameter, match=f"{named.upper()} is .*must be an https"):
        Issuer(**addresses)


@pytest.mark.parametrize("named", ["issuer", "resource"])
def test_an_address_with_a_password_is_refused_and_the_password_not_shown(named: str) -> None:
    """Whoever asks without a token is told both."""
    address = "http://ann:swordfish@memory.example"
    addresses = {"issuer": "https://issuer.example", "resource": RESOURCE, named: address}
    with pytest.raises(InvalidParameter, match=f"{named.upper()} names a user") as refused:
        Issuer(**addresses)
    assert "swordfish" not in str(refused.value)


def test_a_resource_without_an_issuer_is_refused() -> None:
    """The door would stand open."""
    for named in (
        Settings(oauth_resource=RESOURCE),
        Settings(oauth_audience="memlog"),
        Settings(oauth_scope_prefix="api://memlog/"),
    ):
        with pytest.raises(InvalidParameter, match="MEMLOG_OAUTH_ISSUER is not"):
            Access(named)


@pytest.mark.parametrize(
    ("page", "odd"), [(page, odd) for page, odds in ODD_PAGES.items() for odd in odds]
)
def test_an_issuer_that_publishes_nonsense_lets_nobody_in(
    authority: Authority, monkeypatch: pytest.MonkeyPatch, page: str, odd: object
) -> None:
    pages = authority.pages()
    where = "/keys" if page == "keys" else "/.well-known/openid-configuration"
    pages[where] = {**pages[where], page: odd}
    monkeypatch.setattr(authority, "pages", lambda: pages)
    require_no_keys(Issuer(authority.url, RESOURCE), authority)


def test_an_issuer_whose_pages_are_larger_than_any_lets_nobody_in(
    authority: Authority, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(keys, "FETCHED_BYTES_MAX", 100)
    require_no_keys(Issuer(authority.url, RESOURCE), authority)
    assert f"{authority.url}/keys holds more than 100 bytes" in caplog.text


@pytest.mark.parametrize("where", ["/.well-known/openid-configuration", "/keys"])
@pytest.mark.parametrize(
    ("held", "told"),
    [(b"[" * 200_000, "JSON that is nested too deeply"), (b"[]", "no JSON object")],
    ids=["nested", "a list"],
)
def test_an_issuer_whose_pages_are_nested_without_end_or_no_objects_lets_nobody_in(
    authority: Authority,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    held: bytes,
    told: str,
    where: str,
) -> None:
    page = authority.page
    monkeypatch.setattr(authority, "page", lambda path: held if path == where else page(path))
    require_no_keys(Issuer(authority.url, RESOURCE), authority)
    assert f"{authority.url}{where} holds {told}" in caplog.text


@pytest.mark.parametrize(
    ("path", "where"),
    [
        ("", "/.well-known/oauth-authorization-server"),
        ("/", "/.well-known/openid-configuration"),
        ("/realms/home", "/realms/home/.well-known/openid-configuration"),
        ("/o/memlog/", "/o/memlog/.well-known/openid-configuration"),
        ("/tenant", "/.well-known/oauth-authorization-server/tenant"),
        ("/tenant/", "/.well-known/openid-configuration/tenant"),
    ],
)
def test_the_metadata_of_an_issuer_is_found_wherever_clients_look_for_it(
    authority: Authority, monkeypatch: pytest.MonkeyPatch, path: str, where: str
) -> None:
    """Also where a page in its place tells nothing, as a web application has for every path."""
    url, keys = f"{authority.url}{path}", authority.pages()["/keys"]
    metadata = {"issuer": url, "jwks_uri": f"{authority.url}/keys"}
    pages = {where: json.dumps(metadata).encode(), "/keys": json.dumps(keys).encode()}
    monkeypatch.setattr(authority, "page", lambda path: pages.get(path, b"<!doctype html>"))
    assert anyio.run(Issuer(url, RESOURCE).granted, authority.token(iss=url)) is not None


def test_why_no_keys_can_be_had_is_told_of_each_address_with_what_mends_it(
    authority: Authority, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """An issuer is most often misspelt by the slash at its end, and that is seen at one address of three."""
    pages = authority.pages()
    pages["/.well-known/oauth-authorization-server"] = {"issuer": f"{authority.url}/"}
    pages["/.well-known/openid-configuration"] = {"issuer": authority.url}
    monkeypatch.setattr(authority, "pages", lambda: pages)
    require_no_keys(Issuer(authority.url, RESOURCE), authority)
    assert (
        f"{authority.url}/.well-known/oauth-authorization-server speaks for '{authority.url}/', "
        "which MEMLOG_OAUTH_ISSUER has to be letter by letter if it is the one meant; "
        f"{authority.url}/.well-known/openid-configuration names no jwks_uri"
    ) in caplog.text
    away = Issuer("http://127.0.0.1:9/", RESOURCE)
    require_no_keys(away, authority)
    assert "http://127.0.0.1:9/.well-known/openid-configuration: <urlopen error" in caplog.text


def test_an_issuer_that_is_spelt_otherwise_is_told_of_before_anybody_comes(
    tmp_path: Path, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clients compare too, and bring no token of one that calls itself otherwise (RFC 8414, 3.3)."""
    given = {"MEMLOG_OAUTH_ISSUER": f"{authority.url}/", "MEMLOG_OAUTH_RESOURCE": RESOURCE}
    with served_http(tmp_path, **given) as server:
        told = until_told(server, "cannot be had")["message"]
        assert f"speaks for '{authority.url}', which MEMLOG_OAUTH_ISSUER has to be" in told
        pages = authority.pages()
        pages["/.well-known/openid-configuration"]["issuer"] = f"{authority.url}/"
        monkeypatch.setattr(authority, "pages", lambda: pages)  # it began a moment later
        token = authority.token(iss=f"{authority.url}/")
        assert HttpClient(server, token=token).request("tools/list").status == 200


@pytest.mark.parametrize(
    "other",
    [{"kty": "oct", "alg": "HS256"}, {"alg": "none"}, {"alg": ["ES256"]}, "no key", None],
)
def test_a_published_key_that_nobody_can_make_anything_of_keeps_the_server_from_nothing(
    tmp_path: Path, authority: Authority, monkeypatch: pytest.MonkeyPatch, other: Any
) -> None:
    """Keys are looked for at the start, too, and what went wrong there ended the server."""
    pages = authority.pages()
    (key,) = pages["/keys"]["keys"]
    pages["/keys"]["keys"].insert(
        0, {**key, "kid": "other", **other} if isinstance(other, dict) else other
    )
    monkeypatch.setattr(authority, "pages", lambda: pages)
    given = {"MEMLOG_OAUTH_ISSUER": authority.url, "MEMLOG_OAUTH_RESOURCE": RESOURCE}
    with served_http(tmp_path, **given) as server:
        client = HttpClient(server, token=authority.token())
        assert client.request("tools/list").status == 200


def test_the_issuer_is_asked_in_the_name_of_memlog(authority: Authority) -> None:
    """Firewalls before authorization servers refuse `Python-urllib`."""
    assert anyio.run(Issuer(authority.url, RESOURCE).granted, authority.token()) is not None
    assert authority.asked_by == f"memlog/{__version__}"


@pytest.mark.parametrize(("host", "let_in"), [("127.0.0.1", True), ("0.0.0.0", False)])
def test_keys_are_fetched_from_where_they_moved_to_but_over_plain_http_from_this_machine_alone(
    authority: Authority, monkeypatch: pytest.MonkeyPatch, host: str, let_in: bool
) -> None:
    pages = authority.pages()
    pages["/moved"] = pages["/keys"]
    monkeypatch.setattr(authority, "pages", lambda: pages)
    moved = f"http://{host}:{authority.server.server_port}/moved"
    monkeypatch.setattr(authority, "moved", {"/keys": moved})
    issuer = Issuer(authority.url, RESOURCE)
    if let_in:
        assert anyio.run(issuer.granted, authority.token()) is not None
    else:
        require_no_keys(issuer, authority)


def test_keys_are_taken_from_no_file_of_this_machine(
    authority: Authority, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pages = authority.pages()
    keys = tmp_path / "keys.json"
    keys.write_bytes(json.dumps(pages["/keys"]).encode())
    pages["/.well-known/openid-configuration"]["jwks_uri"] = f"file://localhost{keys}"
    monkeypatch.setattr(authority, "pages", lambda: pages)
    require_no_keys(Issuer(authority.url, RESOURCE), authority)


def test_an_issuer_that_answers_byte_by_byte_is_waited_for_so_long_and_no_longer(
    authority: Authority, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(keys, "FETCH_SECONDS_MAX", 0.2)
    ended = Event()

    def byte_by_byte(path: str) -> Iterator[bytes]:
        for _ in range(100):
            if not ended.wait(0.05):
                yield b" "

    monkeypatch.setattr(authority, "sent", byte_by_byte)
    issuer = Issuer(authority.url, RESOURCE)
    monkeypatch.setattr(keys, "FETCH_SECONDS", 0.0)
    before = len(authority.asked)
    for _ in range(2):
        require_no_keys(issuer, authority)
    ended.set()
    assert "they did not come within 0.2 seconds" in caplog.text
    assert "what it was asked for before is still on its way" in caplog.text
    asked = authority.asked[before:]
    assert len(asked) == len(set(asked))


def test_while_no_keys_were_ever_had_no_token_is_called_bad(
    tmp_path: Path, authority: Authority
) -> None:
    """After a 401 a client would only renew a token that is good."""
    variables = {"MEMLOG_OAUTH_ISSUER": "http://127.0.0.1:9", "MEMLOG_OAUTH_RESOURCE": RESOURCE}
    with served_http(tmp_path, **variables) as server:
        client = HttpClient(server, token=authority.token(iss="http://127.0.0.1:9"))
        for _ in range(2):
            answer = client.request("tools/list")
            assert answer.status == 503
            assert 1 <= int(answer.headers["retry-after"]) <= keys.FETCH_SECONDS
            assert "http://127.0.0.1:9 could not be had" in answer.json["error"]["message"]
        assert any("cannot be had" in line["message"] for line in server.log())
        assert HttpClient(server).request("tools/list").status == 401
        assert HttpClient(server, token="no access token").request("tools/list").status == 401


def test_a_key_that_is_not_known_is_named_in_the_log_with_when_the_issuer_is_asked_again(
    authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    issuer = Issuer(authority.url, RESOURCE)
    assert anyio.run(issuer.granted, authority.token()) is not None
    token = authority.token(kid="published-since")
    assert anyio.run(issuer.granted, token) is None
    told = (
        f"its key 'published-since' is not among those of {authority.url}, which is asked again in "
    )
    assert told in caplog.text
    assert token not in caplog.text


@pytest.mark.parametrize("claim", ["iat", "nbf"])
@pytest.mark.parametrize(("ahead_s", "let_in"), [(2, True), (3_600, False)])
def test_a_clock_of_the_issuer_that_is_a_little_ahead_keeps_nobody_out(
    authority: Authority, claim: str, ahead_s: int, let_in: bool
) -> None:
    """When a token was issued (RFC 7519, 4.1.6) keeps nobody out at all."""
    changed: Changed = {claim: int(time.time()) + ahead_s}
    token = authority.token(**changed)
    granted = anyio.run(Issuer(authority.url, RESOURCE).granted, token)
    assert (granted is not None) == (let_in or claim == "iat")


@pytest.mark.parametrize(
    ("others", "let_in"), [([], True), (["enc"], True), (["sig"], False), (["enc", "sig"], False)]
)
def test_a_token_that_names_no_key_is_of_the_only_one_that_signs(
    authority: Authority, monkeypatch: pytest.MonkeyPatch, others: list[str], let_in: bool
) -> None:
    pages = authority.pages()
    (own,) = pages["/keys"]["keys"]
    pages["/keys"]["keys"] += [{**own, "kid": use, "use": use} for use in others]
    monkeypatch.setattr(authority, "pages", lambda: pages)
    granted = anyio.run(Issuer(authority.url, RESOURCE).granted, authority.token(kid=None))
    assert (granted is not None) is let_in
