"""What looks like a credential: found by kind and place, kept with a warning or refused, and never repeated.

The credentials are made up, and put together here so that no scanner of this repository takes them for real.
"""

from __future__ import annotations

import base64
import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memlog.errors import InvalidParameter, LimitExceeded
from memlog.settings import Secrets
from server.http.logs import log_json_to_stderr
from server.input.diagnosis import Place
from server.registry import tools
from server.rights import credentials
from server.rights.credentials import judge, judge_lines, kinds, look, may_hold, plain
from server.rights.detectors import detectors
from server.rights.shapes import NAMED, SHAPES, Shape
from tests.command_line import JON, CommandLine, written
from tests.http_served import HttpClient, served_http
from tests.served import Era, served
from tests.service import Client, Refused, client_on

LETTERS = "aB3dE5gH7jK9mN1pQ3sT5vW7yZ9bC1eF3hJ5kM7nP9rS1uV3xY5aB7dE9gH1jK3mN5pQ7sT9vW1y"
LOWER = "0a1b2c3d4e5f60718293a4b5c6d7e8f9"


def encoded(value: dict[str, Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


AWS = "AKIA" + "2E5GH7JK9MN1PQ3S"
GITHUB = "ghp_" + LETTERS[:36]
JWT = ".".join((encoded({"alg": "HS256"}), encoded({"sub": "1", "name": "J"}), LETTERS[:43]))
PASSWORD = "xyzzy" + "plugh"

DIGITS = "72819305648201937465"
HEX = LOWER * 5
MARK = "T3Blbk" + "FJ"  # what all keys of OpenAI have in their middle

CHOSEN = "kT9w" + "Qz3Lm" + "X2p"

KNOWN = {
    "1Password Token": ["ops_" + "eyJ" + LETTERS],
    "Age Secret Key": ["AGE-SECRET-" + "KEY-1" + (LETTERS * 2).upper()[:58]],
    "Airtable Token": ["pat" + LETTERS[:14] + "." + HEX[:64]],
    "Anthropic Key": [
        f"sk-{'ant'}-{which}-" + (LETTERS * 2)[:93] + "AA"
        for which in ("api03", "admin01", "oat01")
    ],
    "Atlassian Token": ["ATATT3" + "xFfGF0" + LETTERS * 2 + "=1A2B3C4D", "ATBB" + LETTERS[:32]],
    "AWS Access Key": [
        AWS,
        "ASIA" + AWS[4:],
        f"aws_{'secret'}_access_key = " + LETTERS[:38] + "/+",
        f"The AWS {'secret'} key is " + LETTERS[:38] + "/+",
    ],
    "AWS Bedrock Key": ["ABSK" + LETTERS],
    "Azure Client Secret": [LETTERS[:3] + "8Q" + "~" + LETTERS[:34]],
    "Azure DevOps Token": [LETTERS[:76] + "AZDO" + LETTERS[:4]],
    "Azure Shared Access Signature": [
        "https://shop.example.com/in?sv=2023-11-03&sig=" + LETTERS[:43] + "%3D"
    ],
    "Azure Storage Account access key": [
        "AccountKey=" + (LETTERS * 2)[:86] + "==",
        "Shared" + "AccessKey=" + LETTERS[:43] + "=",
    ],
    "Basic Auth Credentials": [
        f"postgres://admin:{PASSWORD}@db.example.com/shop",
        f"redis://:{PASSWORD}@cache.example.com:6379/0",
        f"https://jon:{PASSWORD}!$7@git.example.com/shop.git",
    ],
    "Cerebras Key": ["csk-" + HEX[:48]],
    "Cloudflare Key": ["v1.0-" + HEX[:24] + "-" + HEX[:146]],
    "Crates.io Token": ["cio" + LETTERS[:32]],
    "Databricks Token": ["dapi" + LOWER],
    "DigitalOcean Token": [f"do{which}_v1_" + HEX[:64] for which in "opr"],
    "Discord Bot Token": ["M" + LETTERS[:23] + "." + LETTERS[:6] + "." + LETTERS[:38]],
    "Discord Webhook": [
        "https://discord.com/api/" + "webhooks/" + DIGITS[:18] + "/" + LETTERS[:68]
    ],
    "Docker Token": ["dckr_" + "pat_" + LETTERS[:27]],
    "Doppler Token": ["dp." + "pt." + LETTERS[:43]],
    "ElevenLabs Key": ["sk_" + HEX[:48]],
    "Figma Token": ["figd_" + LETTERS[:40]],
    "Fly.io Token": ["FlyV1 fm2_" + LETTERS],
    "GitHub Token": [
        *(f"gh{which}_" + LETTERS[:36] for which in "pousr"),
        "github_" + "pat_" + LETTERS[:22] + "_" + LETTERS[:59],
    ],
    "GitLab Token": [
        "glpat-" + LETTERS[:20],
        "glpat-" + LETTERS[:27] + ".01.0w1abcde2",
        "glrt-" + LETTERS[:20],
        "glptt-" + HEX[:40],
    ],
    "Google API Key": ["AIza" + LETTERS[:35]],
    "Google OAuth Secret": ["GOCSPX-" + LETTERS[:28]],
    "Google OAuth Token": ["ya29." + LETTERS],
    "Grafana Token": ["glsa_" + LETTERS[:32] + "_" + LOWER[:8], "glc_" + "eyJ" + LETTERS],
    "Groq Key": ["gsk_" + LETTERS[:52]],
    "Heroku Key": ["HRKU-" + "AA" + LETTERS[:58]],
    "Hugging Face Token": ["hf_" + LETTERS[:34]],
    "JSON Web Token": [JWT],
    "LangSmith Key": ["lsv2_" + "pt_" + LOWER + "_" + LOWER[:10]],
    "Linear Key": ["lin_" + "api_" + LETTERS[:40]],
    "Mailchimp Access Key": [LOWER + "-us12"],
    "Mailgun Key": ["key-" + LOWER],
    "Mem0 Key": ["m0-" + LETTERS[:40]],
    "Netlify Token": ["nfp_" + LETTERS[:36]],
    "New Relic Key": ["NRAK-" + LETTERS[:27].upper()],
    "Notion Token": ["ntn_" + DIGITS[:11] + LETTERS[:35], "secret_" + LETTERS[:43]],
    "NPM tokens": ["npm_" + LETTERS[:36], "//registry.example.com/:_authToken=" + HEX[:36]],
    "NuGet Key": ["oy2" + HEX[:43]],
    "NVIDIA Key": ["nvapi-" + LETTERS[:64]],
    "OpenAI Token": [
        "sk-" + LETTERS[:20] + MARK + LETTERS[:20],
        *(
            f"sk-{which}-" + LETTERS[:60] + "-_" + MARK + "-_" + LETTERS[:60]
            for which in ("proj", "svcacct", "admin")
        ),
    ],
    "OpenRouter Key": ["sk-" + "or-v1-" + HEX[:64]],
    "Password": [
        f"password = {CHOSEN}",
        f'password: "{CHOSEN}!"',
        f"DB_PASSWORD={CHOSEN}",
        f"user: jon, pass: {CHOSEN}",
        f"jon / pw: {CHOSEN}",
        f"machine api.example.com login jon password {CHOSEN}",
        f"host=db.example.com user=shop password={CHOSEN}",
        f"jdbc:postgresql://db.example.com/shop?user=shop&password={CHOSEN}",
        json.dumps({"user": "shop", "password": CHOSEN}),
        f"The password is {CHOSEN}",
        f"The password of the shop's database is {CHOSEN}",
        f"The Jira password for jon@example.com is {CHOSEN}",
        f"Das Passwort für den Router lautet {CHOSEN}",
        f"Le mot de passe de la base est {CHOSEN}",
        f"La contraseña del servidor es {CHOSEN}",
        f"A senha do banco é {CHOSEN}",
        f"Пароль від бази даних: {CHOSEN}",
        f"数据库的密码是{CHOSEN}",
        f"パスワードは{CHOSEN}です",
        f"كلمة المرور هي {CHOSEN}",
    ],
    "Perplexity Key": ["pplx-" + LETTERS[:48]],
    "Pinecone Key": ["pcsk_" + LETTERS[:6] + "_" + LETTERS[:63]],
    "PlanetScale Password": ["pscale_" + "pw_" + LETTERS[:43]],
    "Postman Key": ["PMAK-" + HEX[:24] + "-" + HEX[:34]],
    "Private Key": [
        *(
            f"-----BEGIN {whose}PRIVATE " + "KEY-----\nMIIEowIBAAKCAQEA"
            for whose in ("", "RSA ", "EC ", "OPENSSH ", "ENCRYPTED ")
        ),
        "-----BEGIN PGP PRIVATE " + "KEY BLOCK-----\n\nlQdGBGF",
        json.dumps("-----BEGIN RSA PRIVATE " + "KEY-----\nProc-Type: 4,ENCRYPTED"),
        "PuTTY-User-Key-" + "File-3: ssh-ed25519",
        *(
            "client-key-data: "
            + base64.b64encode(f"-----BEGIN {whose}PRIVATE KEY-----\n".encode()).decode()
            for whose in ("", "RSA ", "EC ", "OPENSSH ")
        ),
    ],
    "PyPI Token": ["pypi-" + "AgEIcHlwaS5vcmc" + LETTERS[:74]],
    "Replicate Token": ["r8_" + LETTERS[:37]],
    "RubyGems Key": ["rubygems_" + HEX[:48]],
    "Secret Key": ["sk-" + LOWER],
    "SendGrid API Key": ["SG." + LETTERS[:22] + "." + LETTERS[:43]],
    "Sentry Token": ["sntryu_" + HEX[:64], "sntrys_" + "eyJ" + LETTERS],
    "Shopify Token": ["shpat_" + LOWER],
    "Slack Token": [
        "xoxb-" + "123456789012-" + LOWER[:24],
        "xapp-" + "1-A012BCDEF3-" + DIGITS[:13] + "-" + HEX[:64],
        "xoxe-" + "1-" + LETTERS,
        "https://hooks.slack" + ".com/services/T012BCDEF3/B012BCDEF3/" + LETTERS[:24],
    ],
    "Square OAuth Secret": [
        "sq0csp-" + LETTERS[:43],
        "sq0atp-" + LETTERS[:22],
        "EAAA" + LETTERS[:60],
    ],
    "Stripe Access Key": [f"{which}k_" + "live_" + LETTERS[:24] for which in "sr"]
    + ["sk_" + "test_51" + LETTERS],
    "Stripe Webhook Secret": ["whsec_" + LETTERS[:32]],
    "Supabase Key": ["sbp_" + HEX[:40], "sb_" + "secret_" + LETTERS[:22] + "_" + LETTERS[:8]],
    "Tavily Key": ["tvly-" + "dev-" + LETTERS[:32]],
    "Teams Webhook": [
        "https://acme.webhook.example.com/webhookb2/x@y/" + "IncomingWebhook/" + LOWER + "/z"
    ],
    "Telegram Bot Token": [
        "1234567890:" + LETTERS[:35],
        "https://api.example.org/bot" + DIGITS[:9] + ":" + LETTERS[:35] + "/getMe",
    ],
    "Terraform Token": [LETTERS[:14] + ".atlas" + "v1." + LETTERS[:67]],
    "Token": [
        f"export TOKEN={LETTERS[:40]}",
        f"MISTRAL_API_KEY={LETTERS[:32]}",
        f"DATADOG_API_KEY: {LOWER}",
        f"apiKey = '{LETTERS[:32]}'",
        f"X-Api-Key: {LETTERS[:32]}",
        f"Authorization: Bearer {LETTERS[:40]}",
        f"Authorization: Basic {encoded({'jon': PASSWORD})}",
        f"https://example.com/feed?api_key={LOWER}",
        f"client_secret={LETTERS[:40]}",
        f"API key for the weather service is {LETTERS[:32]}",
    ],
    "Twilio API Key": ["SK" + LOWER],
    "Vault Token": ["hvs." + LETTERS],
    "xAI Key": ["xai-" + (LETTERS * 2)[:80]],
}
EXAMPLES = [(kind, text) for kind, texts in KNOWN.items() for text in texts]
IDS = [f"{kind} {texts.index(text)}" for kind, texts in KNOWN.items() for text in texts]

ORDINARY = [
    "Moved to Austin in May 2024 and likes the food there",
    "The password of the wifi is on the fridge",
    "API keys live in the vault under shop/production; ask Gina",
    "Set AWS_SECRET_ACCESS_KEY and OPENAI_API_KEY before `make deploy`",
    "See https://example.com:8443/login?next=/a@b and mail to jon@example.com",
    "Commit 9fceb02d0ae598e95dc970b74767f19372d61af8 fixed it; sha256 " + LOWER * 2,
    "mem_01h455vb4pex5vsknk084sn02q replaces prj_01h455vb4pex5vsknk084sn02r",
    "Call +1 555 0100 at 10:30, room 1234567890",
    "The class is called ACMEBillingServiceConfigurationFactoryBean",
    "123e4567-e89b-12d3-a456-426614174000",
    "Die Straße heißt Übergang; 東京 🙂",
    # what stands for a credential
    "ghp_" + "x" * 36,
    "glpat-" + "X" * 20,
    "sk_" + "live_" + "0" * 24,
    "sk-" + "ant-api03-" + "x" * 95,
    "AKIA" + "X" * 16,
    "The documentation has AKIA" + "IOSFODNN7EXAMPLE for a key",
    "aws_" + "secret_access_key = wJalrXUtnFEMI/K7MDENG/bPxRfiCY" + "EXAMPLEKEY",
    "export OPENAI_API_KEY=sk-...",
    "12345678:" + "ABCDEFGHIJKLMNOPQRSTUVWXYZABCDEFGHI",
    "postgres://user:password@localhost:5432/db",
    "https://<user>:<password>@git.example.com",
    "mongodb://{user}:{password}@host/db and postgres://${DB_USER}:${DB_PASSWORD}@db/shop",
    "amqp://guest:guest@localhost:5672, mysql://root:***@db/shop, redis://:$REDIS_PASSWORD@cache",
    "-----BEGIN RSA PRIVATE " + "KEY----- is how the file begins",
    # what is said of them, or done with them
    "password = PasswordField(_('Password')), token = request.headers['Authorization']",
    "apiKey: process.env.OPENAI_API_KEY, password: ${{ secrets.DB_PASSWORD }}, TOKEN=$(vault read a)",
    "DB_PASSWORD=${DB_PASSWORD} and Authorization: Bearer $TOKEN and password: changeme",
    "password_encryption=scram-sha-256, password_hasher: Argon2PasswordHasher, max_tokens=4096",
    "Password algorithm: PBKDF2WithHmacSHA256; the password was moved to KeePassXC2",
    "Password-ProtectedZip2024 is the archive; password: KeePass/Shop/Db2Prod",
    "--- PASS: TestCreateUser2FA (0.01s), PASS: LoginFlowV2Test3",
    "The secret's name is shop-db-v2-eu1-prod3, secret: k8s-s3-b2-backup-job1",
    "Token contract address: 0x52908400098527886E0F7030069857D2E4169EE7",
    f"nextToken: {LETTERS[:40]} and client token 123e4567-e89b-12d3-a456-426614174000",
    f"idempotency-key: {LOWER}, primary key: {LOWER}, public key: {LETTERS}",
    "The password reset flow expires after 15 minutes; the API key lives in 1Password, vault Shop",
    "Das Passwort steht im Tresor; пароль змінюють кожні 90 днів; 密码至少12位; كلمة المرور محفوظة",
    "arn:aws:secretsmanager:eu-central-1:123456789012:secret:ShopProd2-a1b2c3 is where it is kept",
    # what only looks like one
    "GATTACCATCTC" + "TACCGGTTCGCTTTCACTGGATGG is the primer",
    "MKTAYIAKQRQISFVKSHFSRQAKIALGL" + "IEVQAPILSRVGDGTQD",
    "cache-key-" + LOWER + " and SM" + LOWER,
    "pk_" + "live_" + LETTERS[:24] + " is in the page for all to see",
    "aws ecr tag shop, key of the commit 9fceb02d0ae598e95dc970b74767f19372d61af8",
    "hf_hub_download_cache_directory_override and npm_config_registry_override_for_tests_only",
    "https://www.example.com/maps/@52.5200,13.4050,12z and https://example.com/@jon/how-to",
    "ssh://git@git.example.com:2222/acme/shop.git and git@example.com:acme/shop.git",
    "lodash sha512-" + (LETTERS * 2)[:86] + "==",
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI" + LETTERS[:43] + " jon@laptop",
    "-----BEGIN PUBLIC KEY-----\nMIIBIjANBgkqhkiG9w0BAQEFAAOCAQ8AMIIBCgKCAQEA",
]


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    with client_on(tmp_path) as opened:
        yield opened


def positions(client: Client) -> int:
    return client.session.open(None)[1].project.head()


def texts_of(client: Client, tool: str, arguments: dict[str, Any]) -> list[str]:
    from server.performing import perform
    from server.registry import Call

    result = perform(client.tools[tool], Call(client.session), arguments).as_result()
    return [block.text for block in result.content if block.type == "text"]


# -- what is found


@pytest.mark.parametrize(("kind", "text"), EXAMPLES, ids=IDS)
def test_a_credential_is_known_alone_and_within_a_sentence(kind: str, text: str) -> None:
    assert kinds(text) == [kind]
    assert kinds(f"Jon says that he uses {text} for the shop.") == [kind]
    assert kinds(f"令牌是{text} 请保密") == [kind]


def test_every_kind_has_its_example() -> None:
    ours = {shape.kind for shape in (*SHAPES, *NAMED)}
    assert ours | {each.kind for each in detectors()} == set(KNOWN)


@pytest.mark.parametrize(
    "shape", [*SHAPES, *NAMED], ids=lambda shape: f"{shape.kind} {shape.signs[0]}"
)
@given(data=st.data())
def test_whatever_has_a_credentials_shape_is_looked_at(shape: Shape, data: st.DataObject) -> None:
    text = plain(data.draw(st.from_regex(shape.pattern)))
    assert any(sign in text.lower() for sign in shape.signs)
    assert may_hold(text)
    assert may_hold(f"Jon says that he uses {text} for the shop.")


def test_prose_is_not_looked_at_any_closer() -> None:
    assert not may_hold("The key of the cellar is on the fridge; ask Gina, who lives next door.")


@pytest.mark.parametrize("text", ORDINARY)
def test_ordinary_texts_are_none(text: str) -> None:
    assert kinds(text) == []


def test_a_value_is_read_together_with_its_name() -> None:
    secret = (LETTERS[:38] + "/+")[:40]
    assert kinds(secret) == []
    found = list(look({"aws": {"aws_secret_access_key": secret}}, Place()))
    assert list(map(str, found)) == ["aws.aws_secret_access_key (AWS Access Key)"]


@pytest.mark.parametrize("before", [0, 240, 499, 9_990])
@pytest.mark.parametrize(("kind", "text"), EXAMPLES, ids=IDS)
def test_a_credential_is_seen_wherever_a_long_text_is_cut(
    kind: str, text: str, before: int
) -> None:
    long = "word " * (before // 5) + " " * (before % 5) + text + " word" * 3_000
    assert kinds(long) == [kind]


@pytest.mark.parametrize(
    "text",
    [
        GITHUB[:20] + "\u200b" + GITHUB[20:],  # as a chat breaks a long word
        GITHUB[:20] + "\u00ad" + GITHUB[20:],
        "".join(chr(ord(each) + 0xFEE0) for each in GITHUB),  # as on a wide keyboard
    ],
)
def test_a_credential_is_known_by_what_is_seen_of_it(text: str) -> None:
    assert kinds(text) == ["GitHub Token"]


def test_a_key_that_is_a_credential_is_not_part_of_the_path() -> None:
    found = list(look({"keys": {AWS: {"of": GITHUB}}}, Place()))
    assert [kind for _, kind in found] == ["AWS Access Key", "GitHub Token"]
    assert AWS not in str(found)
    assert GITHUB not in str(found)


# -- warn


def test_by_default_it_is_stored_with_a_warning_that_names_place_and_kind(client: Client) -> None:
    answer = client(
        "create_entities",
        entities=[{"name": "Jon", "entityType": "person", "observations": ["ok", f"key {AWS}"]}],
    )
    (warning,) = answer["warnings"]
    assert "entities[0].observations[1] (AWS Access Key)" in warning
    assert "memlog purge PROJECT --entity NAME" in warning
    assert "MEMLOG_SECRETS=reject" in warning
    assert AWS not in warning
    assert answer["entities"][0]["observations"] == ["ok", f"key {AWS}"]


def test_a_warning_about_a_project_says_that_deleting_it_erases_it(
    client: Client, tmp_path: Path
) -> None:
    (warning,) = client("create_project", name="shop", description=f"key {AWS}")["warnings"]
    told = CommandLine(tmp_path / "other")(
        "projects", "create", "shop", "--description", AWS
    ).stderr
    for each in (warning, told):
        assert "description (AWS Access Key)" in each
        assert "only deleting the project (`memlog projects delete`) erases it" in each
        assert "purge" not in each


def test_a_warning_stands_in_a_text_of_its_own_so_a_bare_answer_stays_as_it_was(
    client: Client,
) -> None:
    entity = {"name": "Jon", "entityType": "person", "observations": [AWS]}
    answer, warning = texts_of(client, "create_entities", {"entities": [entity]})
    assert [each["name"] for each in json.loads(answer)] == ["Jon"]
    assert warning.startswith("Warning: Stored, though")
    assert AWS not in warning
    assert len(texts_of(client, "add_observations", {"observations": []})) == 1


def test_a_warning_joins_those_that_the_tool_gives_itself(client: Client) -> None:
    edge = {"from": "Jon", "to": "nobody", "relationType": f"has {GITHUB}"}
    warnings = client("create_relations", relations=[edge])["warnings"]
    assert [GITHUB in each for each in warnings] == [False] * 3
    assert "relations[0].relationType (GitHub Token)" in warnings[-1]


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("delete_entities", {"entityNames": ["nobody"], "threadId": GITHUB}),
        (
            "delete_relations",
            {
                "relations": [{"from": "Jon", "to": "nobody", "relationType": "knows"}],
                "threadId": GITHUB,
            },
        ),
        (
            "create_entities",
            {
                "entities": [{"name": "Jon", "entityType": "person", "observations": [GITHUB]}],
                "ifExists": "skip",
            },
        ),
    ],
)
@pytest.mark.parametrize("command_id", [None, "once"])
def test_where_nothing_changed_nobody_says_that_it_was_stored(
    client: Client, tool: str, arguments: dict[str, Any], command_id: str | None
) -> None:
    client("create_entities", entities=[{"name": "Jon", "entityType": "person"}])
    before = positions(client)
    (warning,) = client.as_command(command_id, tool, arguments)["warnings"]
    assert warning.startswith("This looks like a credential: ")
    assert "(GitHub Token). This call stored nothing." in warning
    assert "Stored" not in warning and "purge" not in warning
    assert positions(client) == before


def test_a_retry_of_a_command_is_warned_of_again(client: Client) -> None:
    first = client.as_command("once", "store_memory", {"content": JWT})
    again = client.as_command("once", "store_memory", {"content": JWT})
    assert first == again
    assert "content (JSON Web Token)" in again["warnings"][0]


def test_many_findings_are_counted(client: Client) -> None:
    entity = {
        "name": "Jon",
        "entityType": "person",
        "observations": [f"{n} {AWS}" for n in range(15)],
    }
    (warning,) = client("create_entities", entities=[entity])["warnings"]
    assert warning.count("AWS Access Key") == 10
    assert "and 5 more" in warning


# -- reject, in every tool that stores texts

STORING: dict[str, tuple[dict[str, Any], str]] = {
    "create_entities": (
        {"entities": [{"name": "Ann", "entityType": GITHUB, "observations": []}]},
        "entities[0].entityType",
    ),
    "add_observations": (
        {"observations": [{"entityName": "Jon", "contents": ["fine", {"content": GITHUB}]}]},
        "observations[0].contents[1].content",
    ),
    "create_relations": (
        {"relations": [{"from": "Jon", "to": GITHUB, "relationType": "uses"}]},
        "relations[0].to",
    ),
    "save_memory": (
        {
            "threadId": "t",
            "entities": [
                {
                    "name": "Ann",
                    "entityType": "Person",
                    "observations": [f"Uses {GITHUB}"],
                    "relations": [{"targetEntity": "Jon", "relationType": "knows"}],
                }
            ],
        },
        "entities[0].observations[0]",
    ),
    "store_memory": ({"content": f"The token is {GITHUB}"}, "content"),
    "memory_create": (
        {"type": "note", "content": {"a": [{"b": GITHUB}]}, "source": "chat", "confidence": 1},
        "content.a[0].b",
    ),
    "rename_entity": ({"name": "Jon", "newName": GITHUB}, "newName"),
    "update_observation": (
        {"entityName": "Jon", "observation": "was a banker", "newContent": GITHUB},
        "newContent",
    ),
    "create_project": ({"name": "shop", "description": GITHUB}, "description"),
    "delete_entities": ({"entityNames": ["nobody"], "threadId": GITHUB}, "threadId"),
}


@pytest.mark.parametrize("tool", STORING)
def test_where_they_are_refused_nothing_is_written_and_nothing_repeated(
    tmp_path: Path, tool: str
) -> None:
    arguments, path = STORING[tool]
    with client_on(tmp_path, secrets="reject") as client:
        client("create_entities", entities=[{k: JON[k] for k in JON if k != "type"}])
        before = positions(client)
        with pytest.raises(Refused) as refused:
            client(tool, arguments)
        assert refused.value.error["code"] == "INVALID_PARAMETER"
        (problem,) = refused.value.error["problems"]
        assert problem["path"] == path
        assert "GitHub Token" in problem["problem"]
        assert "value" not in problem
        assert GITHUB not in client.texts[-1]
        assert positions(client) == before
        assert [each["name"] for each in client("list_projects")["projects"]] == ["default"]


def test_one_among_many_refuses_the_whole_request_and_all_are_named(tmp_path: Path) -> None:
    observations = [f"fact {n}" for n in range(50)]
    observations[7], observations[31] = AWS, JWT
    with client_on(tmp_path, secrets="reject") as client:
        with pytest.raises(Refused) as refused:
            client(
                "create_entities",
                entities=[{"name": "Jon", "entityType": "person", "observations": observations}],
            )
        paths = [problem["path"] for problem in refused.value.error["problems"]]
        assert paths == ["entities[0].observations[7]", "entities[0].observations[31]"]
        assert client("read_graph")["entities"] == []
        for secret in (AWS, JWT):
            assert secret not in client.texts[-2]


def test_what_is_stored_already_can_be_found_renamed_and_deleted(tmp_path: Path) -> None:
    held = {"name": GITHUB, "entityType": "key", "observations": [AWS, JWT]}
    with client_on(tmp_path) as client:
        client("create_entities", entities=[held])
    with client_on(tmp_path, secrets="reject") as client:
        client("search_nodes", query=AWS)
        client("rename_entity", name=GITHUB, newName="the key")
        replaced = {"content": "kept in the vault", "supersedes": AWS}
        client("add_observations", observations=[{"entityName": "the key", "contents": [replaced]}])
        client("delete_observations", deletions=[{"entityName": "the key", "observations": [JWT]}])
        (entity,) = client("open_nodes", names=["the key"])["entities"]
        assert entity["observations"] == ["kept in the vault"]


def test_the_id_that_a_client_gives_a_command_is_looked_at_too(tmp_path: Path) -> None:
    with client_on(tmp_path, secrets="reject") as client:
        with pytest.raises(Refused) as refused:
            client.as_command(AWS, "store_memory", {"content": "fine"})
        assert refused.value.error["problems"][0]["path"] == '_meta["memlog/commandId"]'


def test_switched_off_nothing_is_looked_at(tmp_path: Path) -> None:
    with client_on(tmp_path, secrets="off") as client:
        assert "warnings" not in client("store_memory", content=AWS)


def test_every_tool_that_stores_texts_is_tried_above() -> None:
    only_looking_up = {
        "delete_observations", "delete_relations", "supersede_memory", "forget_memory", "undo",
        "merge_entities", "archive_project", "restore_project", "delete_project",
    }  # fmt: skip
    toolsets = ("graph", "projects", "knowledge", "facts", "records", "history")
    writing = {name for name, tool in tools(toolsets).items() if tool.writes}
    assert writing - only_looking_up == set(STORING)


# -- time


def test_what_would_take_too_long_is_refused_or_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(credentials, "SECONDS_MAX", 0.0)
    doubt = judge({"a": AWS}, "warn")
    assert doubt is not None and "Not all of it" in doubt.said()
    with pytest.raises(LimitExceeded):
        judge({"a": AWS}, "reject")
    assert judge({"a": AWS}, "off") is None


# -- never printed


@pytest.mark.parametrize("era", ["2025-11-25", "2026-07-28"])
@pytest.mark.parametrize("secrets", ["warn", "reject", "off"])
def test_nothing_of_it_is_in_the_log_at_its_finest_level(
    tmp_path: Path, era: Era, secrets: Secrets
) -> None:
    with served(tmp_path, era=era, MEMLOG_LOG_LEVEL="debug", MEMLOG_SECRETS=secrets) as server:
        entity = {"name": "Jon", "entityType": "person", "observations": [AWS, JWT]}
        server.result("create_entities", entities=[entity])
        server.result("store_memory", content=GITHUB)
        server.result("search_nodes", query=GITHUB)
        server.result("create_entities", entities=[{**entity, "name": 7}])
        for odd in (AWS, f'"{AWS}"', f'{{"jsonrpc":"2.0","id":1,"method":"{AWS}"', f'["{AWS}"]'):
            server.write(odd.encode() + b"\n")
        server.write(json.dumps({"jsonrpc": AWS, "id": {AWS: 1}, "method": AWS}).encode() + b"\n")
        server.close_stdin()
        server.popen.wait(60)
        said = server.stderr()
        assert "DEBUG" in said
    assert not [each for each in (AWS, JWT, GITHUB) if each in said]


@pytest.mark.parametrize("era", ["2025-11-25", "2026-07-28"])
def test_nothing_of_it_is_in_the_log_of_a_server_over_http(tmp_path: Path, era: Era) -> None:
    entity = {"name": "Jon", "entityType": "person", "observations": [AWS, JWT]}
    with served_http(tmp_path, MEMLOG_LOG_LEVEL="debug") as server:
        client = HttpClient(server, era)
        assert "AWS Access Key" in client("create_entities", entities=[entity])["warnings"][0]
        assert client("search_nodes", query=AWS)["entities"] != []
        with pytest.raises(Refused):
            client("add_observations", observations=[{"entityName": GITHUB, "contents": ["x"]}])
        server.get("/healthz")  # of which only the finest level tells
        server.end()
        said = json.dumps(server.log(), ensure_ascii=False)
    assert '"debug"' in said
    assert not [each for each in (AWS, JWT, GITHUB) if each in said]


def test_what_streams_answers_does_not_log_them() -> None:
    """Of sse_starlette every chunk would be a line, which only a stream that says much could show."""
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    try:
        log_json_to_stderr(logging.DEBUG)
        assert not logging.getLogger("sse_starlette.sse").isEnabledFor(logging.DEBUG)
    finally:
        root.handlers[:] = before
        root.setLevel(level)


# -- import

FILE = [JON, {**JON, "name": "Key", "observations": ["fine", f"is {AWS}"]}]


@pytest.fixture
def memlog(tmp_path: Path) -> CommandLine:
    return CommandLine(tmp_path / "data")


def test_an_import_warns_of_each_line(memlog: CommandLine, tmp_path: Path) -> None:
    done = memlog("import", written(tmp_path / "memory.jsonl", FILE))
    assert done.code == 0
    assert "Warning: line 2, observations[1] (AWS Access Key) looks like" in done.stderr
    assert "memlog purge" in done.stderr
    assert AWS not in done.stdout + done.stderr


@pytest.mark.parametrize("level", ["info", "debug"])
def test_a_refused_import_writes_nothing(memlog: CommandLine, tmp_path: Path, level: str) -> None:
    file = written(tmp_path / "memory.jsonl", FILE)
    done = memlog("import", file, MEMLOG_SECRETS="reject", MEMLOG_LOG_LEVEL=level)
    assert done.code == 1
    assert "line 2, observations[1]" in done.stderr
    assert AWS not in done.stdout + done.stderr
    assert memlog("projects", "--json").json == []
    without = written(tmp_path / "without.jsonl", FILE[:1])
    assert memlog("import", without, MEMLOG_SECRETS="reject").code == 0


def test_the_thread_of_an_import_is_looked_at_as_that_of_a_tool(
    memlog: CommandLine, tmp_path: Path
) -> None:
    words = ("import", "--thread", GITHUB, written(tmp_path / "memory.jsonl", [JON]))
    refused = memlog(*words, MEMLOG_SECRETS="reject")
    assert refused.code == 1
    assert "the command line, thread: This looks like a credential" in refused.stderr
    assert GITHUB not in refused.stdout + refused.stderr
    assert memlog("projects", "--json").json == []
    done = memlog(*words)
    assert done.code == 0
    assert "Warning: the command line, thread (GitHub Token) looks like" in done.stderr


def test_where_an_import_is_refused_nothing_is_to_be_purged(
    memlog: CommandLine, tmp_path: Path
) -> None:
    done = memlog("import", written(tmp_path / "memory.jsonl", [*FILE, {"type": "entity"}]))
    assert done.code == 1
    assert "(AWS Access Key) looks like" in done.stderr
    assert "purge" not in done.stderr


def test_a_line_that_is_no_json_is_refused_without_showing_it(
    memlog: CommandLine, tmp_path: Path
) -> None:
    file = tmp_path / "memory.jsonl"
    file.write_text(f'{{"type":"entity","name":"{AWS}"\n')
    done = memlog("import", file, MEMLOG_SECRETS="reject")
    assert done.code == 1
    assert "line 1" in done.stderr
    assert AWS not in done.stderr


def test_a_history_is_looked_through_as_well(memlog: CommandLine, tmp_path: Path) -> None:
    assert memlog("import", written(tmp_path / "memory.jsonl", FILE)).code == 0
    history = tmp_path / "history.jsonl"
    assert memlog("export", "--full", history).code == 0
    other = CommandLine(tmp_path / "other")
    done = other("import", history, MEMLOG_SECRETS="reject")
    assert done.code == 1
    assert "event.content" in done.stderr
    assert AWS not in done.stderr
    done = other("import", history)
    assert done.code == 0
    assert "Warning: line" in done.stderr


def test_the_command_line_judges_a_new_project_too(memlog: CommandLine) -> None:
    done = memlog("projects", "create", "shop", "--description", GITHUB, MEMLOG_SECRETS="reject")
    assert done.code == 1
    assert GITHUB not in done.stderr
    done = memlog("projects", "create", "shop", "--description", GITHUB)
    assert done.code == 0
    assert "description (GitHub Token)" in done.stderr


# -- our own texts


def test_lines_of_a_file_raise_with_their_numbers() -> None:
    with pytest.raises(InvalidParameter) as refused:
        judge_lines(
            [("line 4", json.dumps({"name": AWS}).encode()), ("line 9", GITHUB.encode())], "reject"
        )
    assert [problem.path for problem in refused.value.problems] == [
        "line 4, name",
        "line 9, text",
    ]


def test_a_line_too_deep_to_be_walked_is_looked_through_as_text() -> None:
    for depth in (10, 700, 100_000):
        deep = '{"a":' * depth + f'"{GITHUB}"' + "}" * depth
        found = judge_lines([("line 2", deep.encode())], "warn")
        assert {each.kind for each in found} == {"GitHub Token"}, depth
        assert all(each.path.startswith("line 2, ") for each in found)
