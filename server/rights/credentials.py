"""What looks like a credential among the texts that a call is about to store: where, of which kind, never what.

The shapes are those of detect-secrets, of which only the detectors are used that know one service's
credentials by sight. Left out are those that go by entropy or by words such as "password", which take
prose for secrets, and those of assignments to one vendor's variables, which cost more than all others
together (`docs/security.md` has the figures). Nothing is verified, so nothing leaves the machine.

A detector that finds nothing has proved nothing: this catches accidents, not intent.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from memlog.commands import CreateProject, only_finds
from memlog.errors import InvalidParameter, LimitExceeded, MemlogError, Problem, refusal
from memlog.settings import Secrets
from server.input.diagnosis import Place

if TYPE_CHECKING:
    from detect_secrets.plugins.base import RegexBasedDetector

SECONDS_MAX = 1.0
"""Of the processor, for the texts of one call: 9 MB of them where each has something to look at. Waiting does not
count: for the detectors, which the first call imports, or for others who compute."""

PIECE_CHARACTERS = 10_000
PIECE_CHARACTERS_OF_SLOW = 500
"""Longer texts are looked through in pieces that overlap by half, so a credential of half a piece is always seen
whole. The pattern for JSON Web Tokens takes time in the square of a piece, those of the slow ones ten times more."""

RUN_CHARACTERS_MIN = 16
_SIGNS = ("://", "eyJ", "_authToken=", "PRIVATE KEY", "PuTTY-User-Key-File")
"""What every shape has: so long a run without a space, one of these signs, or, in any case, that of Slack's."""

PATHS_MAX = 10

_REMEDY = (
    "Say where it is kept instead of what it is. Whoever runs the server chooses by MEMLOG_SECRETS."
)

_ERASING = (
    "Deleting keeps it in the history: only `memlog purge` erases the entity or memory for good."
)
_ERASING_PROJECT = (
    "Archiving keeps it: only deleting the project (`memlog projects delete`) erases it for good."
)


class Finding(NamedTuple):
    """Where something looks like a credential, and like which."""

    path: str
    kind: str

    def __str__(self) -> str:
        return f"{self.path} ({self.kind})"


def judge(arguments: Any, secrets: Secrets, command_id: str | None = None) -> str | None:
    """What to tell the caller of a tool that writes: None, or a warning that names places and kinds.

    Raises InvalidParameter with every place where such texts are refused, and LimitExceeded where it would take
    longer than SECONDS_MAX to look for them. No error and no warning holds any of the text.
    """
    if secrets == "off":
        return None
    found: list[Finding] = []
    unfinished = False
    until = time.thread_time() + SECONDS_MAX
    try:
        found.extend(look(command_id, Place().down("_meta").down("memlog/commandId"), until))
        for each in look(arguments, Place(), until):
            found.append(each)
    except LimitExceeded:
        if secrets == "reject" and not found:
            raise
        unfinished = True
    if found and secrets == "reject":
        raise _refused(found)
    erasing = _ERASING_PROJECT if isinstance(arguments, CreateProject) else _ERASING
    return _warning(found, unfinished, erasing) if found or unfinished else None


def judge_lines(lines: Iterable[tuple[str, bytes]], secrets: Secrets) -> list[Finding]:
    """What is found in the lines of a file that is about to be imported, JSON or not, each with its place.

    Raises InvalidParameter with every place where such texts are refused.
    """
    found: list[Finding] = []
    for place, text in lines if secrets != "off" else ():
        try:
            within = list(look(msgspec.json.decode(text), Place()))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            # The import says what is wrong.
            within = list(look({"text": text.decode("utf-8", "replace")}, Place()))
        found += (Finding(f"{place}, {each.path}", each.kind) for each in within)
    if found and secrets == "reject":
        raise _refused(found)
    return found


def _refused(found: list[Finding]) -> MemlogError:
    """The refusal of everything that was found."""
    problems = (
        Problem(path, f"This looks like a credential ({kind}), and none is stored", _REMEDY)
        for path, kind in found
    )
    return refusal([(InvalidParameter, each) for each in problems])


def _warning(found: list[Finding], unfinished: bool, erasing: str) -> str:
    said = []
    if found:
        places = ", ".join(map(str, found[:PATHS_MAX]))
        more = f" and {len(found) - PATHS_MAX} more" if len(found) > PATHS_MAX else ""
        said.append(
            f"Stored, though it looks like a credential: {places}{more}. Tell the user. {erasing} "
            "MEMLOG_SECRETS=reject makes the server refuse such texts."
        )
    if unfinished:
        said.append("Not all of it was looked through for credentials: it would have taken long.")
    return " ".join(said)


# -- looking


def look(value: Any, place: Place, until: float = float("inf")) -> Iterator[Finding]:
    """The findings in every text of `value` that would be stored, keys of JSON objects among them.

    What a struct names in `looked_up` only finds what is stored already, and is passed over: otherwise nobody
    could delete or rename a credential. Raises LimitExceeded when the thread's clock (`thread_time`) says `until`.
    """
    if isinstance(value, str):
        yield from (Finding(str(place), kind) for kind in kinds(value, until))
    elif isinstance(value, msgspec.Struct):
        for name, spelt in _stored(type(value)):
            yield from look(getattr(value, name), place.down(spelt), until)
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _look_at_pair(key, item, place, until)
    elif isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            yield from look(item, place.down(index), until)


def _look_at_pair(key: str, item: Any, place: Place, until: float) -> Iterator[Finding]:
    """Key and value are read together, as a file of settings has them: some secrets are known by their name."""
    found = kinds(f'"{key}": "{item}"' if isinstance(item, str) else key, until)
    within = place.down("…" if found and kinds(key, until) else key)
    yield from (Finding(str(within), kind) for kind in found)
    if not isinstance(item, str):
        yield from look(item, within, until)


@cache
def _stored(cls: type[msgspec.Struct]) -> tuple[tuple[str, str], ...]:
    """The fields of which texts are stored: their names in Python and on the wire."""
    fields = msgspec.structs.fields(cls)
    return tuple((each.name, each.encode_name) for each in fields if not only_finds(cls, each.name))


def kinds(text: str, until: float = float("inf")) -> list[str]:
    """As what `text` would be a credential, in words. Raises as `look`."""
    found: list[str] = []
    if not may_hold(text):
        return found
    for detector, characters in detectors():
        for piece in _pieces(text, characters):
            if time.thread_time() >= until:
                raise LimitExceeded(
                    f"It would take more than {SECONDS_MAX:g} s to look for credentials in this request",
                    suggestion="Send it in several smaller requests.",
                )
            if next(detector.analyze_string(piece), None) is not None:
                found.append(detector.secret_type)
                break
    return found


def may_hold(text: str) -> bool:
    """False where no detector can find anything, as in almost all prose, told in a tenth of their time."""
    return (
        max(map(len, text.split()), default=0) >= RUN_CHARACTERS_MIN
        or any(sign in text for sign in _SIGNS)
        or "xox" in text.lower()
    )


def _pieces(text: str, characters: int) -> Iterator[str]:
    step = characters // 2
    for start in range(0, max(len(text) - step, 1), step):
        yield text[start : start + characters]


@cache
def detectors() -> tuple[tuple[RegexBasedDetector, int], ...]:
    """Each detector, and in pieces of how many characters it is given a text.

    The first call imports them, some 60 ms: after the first answer, or with the first write if that comes sooner.
    """
    from detect_secrets.plugins.aws import AWSKeyDetector
    from detect_secrets.plugins.azure_storage_key import AzureStorageKeyDetector
    from detect_secrets.plugins.basic_auth import BasicAuthDetector
    from detect_secrets.plugins.discord import DiscordBotTokenDetector
    from detect_secrets.plugins.github_token import GitHubTokenDetector
    from detect_secrets.plugins.gitlab_token import GitLabTokenDetector
    from detect_secrets.plugins.jwt import JwtTokenDetector
    from detect_secrets.plugins.mailchimp import MailchimpDetector
    from detect_secrets.plugins.npm import NpmDetector
    from detect_secrets.plugins.openai import OpenAIDetector
    from detect_secrets.plugins.private_key import PrivateKeyDetector
    from detect_secrets.plugins.pypi_token import PypiTokenDetector
    from detect_secrets.plugins.sendgrid import SendGridDetector
    from detect_secrets.plugins.slack import SlackDetector
    from detect_secrets.plugins.square_oauth import SquareOAuthDetector
    from detect_secrets.plugins.stripe import StripeDetector
    from detect_secrets.plugins.telegram_token import TelegramBotTokenDetector
    from detect_secrets.plugins.twilio import TwilioKeyDetector

    logging.captureWarnings(False)  # which its own log turns on for the whole process

    usual = (
        AWSKeyDetector(),
        AzureStorageKeyDetector(),
        BasicAuthDetector(),
        DiscordBotTokenDetector(),
        GitHubTokenDetector(),
        GitLabTokenDetector(),
        JwtTokenDetector(),
        MailchimpDetector(),
        PrivateKeyDetector(),
        PypiTokenDetector(),
        SendGridDetector(),
        SlackDetector(),
        SquareOAuthDetector(),
        StripeDetector(),
        TelegramBotTokenDetector(),
        TwilioKeyDetector(),
    )
    slow = (NpmDetector(), OpenAIDetector())
    return (
        *((each, PIECE_CHARACTERS) for each in usual),
        *((each, PIECE_CHARACTERS_OF_SLOW) for each in slow),
    )
