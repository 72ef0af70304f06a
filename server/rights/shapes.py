"""The shapes of credentials that `detectors` has not, each a row: those known by sight, and those known by what they
are called.

What is done with them is left to `credentials`. The shapes are those that their makers tell of, or that gitleaks looks
for. Each begins at the start of a word or with letters that are rare, so that none takes more than linear time.
"""

from __future__ import annotations

import re
from functools import cache
from typing import NamedTuple

# Not `\b` and `\w`, which take letters of all scripts for one word: a key may stand within Chinese.
_START = r"(?<![A-Za-z0-9_-])"
_END = r"(?![A-Za-z0-9_-])"


class Shape(NamedTuple):
    """A credential of a kind: `signs`, in small letters, one of which is in every match, and the pattern."""

    kind: str
    signs: tuple[str, ...]
    pattern: str

    def may_be_in(self, small: str) -> bool:
        """False where no part of a text, given in small letters, can have this shape."""
        return any(sign in small for sign in self.signs)

    def found_in(self, text: str) -> bool:
        """Whether a part of `text` has this shape and is more than a placeholder."""
        return any(not _is_placeholder(each) for each in _compiled(self.pattern).finditer(text))


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    """When a text has its sign: all of them at once would keep the first write waiting."""
    return re.compile(pattern)


SHAPES = (
    # clouds
    # Not within letters of the same kind, as of a protein or of DNA.
    Shape(
        "AWS Access Key",
        ("akia", "asia", "abia", "acca"),
        r"(?<![0-9A-Z])(?:ABIA|ACCA|AKIA|ASIA)[0-9A-Z]{16}(?![0-9A-Z])",
    ),
    Shape(
        "AWS Access Key",
        ("aws",),
        r"(?ai:aws.{0,40}?(?:key|token|secret).{0,20}?)[\s\"'=:`(](?P<drawn>[A-Za-z0-9/+]{40})(?![A-Za-z0-9/+=])",
    ),
    Shape("AWS Bedrock Key", ("absk",), r"ABSK[A-Za-z0-9+/]{60,}"),
    Shape(
        "Azure Client Secret", ("q~",), _START + r"[A-Za-z0-9_~.]{3}[0-9]Q~[A-Za-z0-9_~.-]{31,34}"
    ),
    Shape("Azure DevOps Token", ("azdo",), _START + r"[A-Za-z0-9]{76}AZDO[A-Za-z0-9]{4}" + _END),
    Shape(
        "Azure Storage Account access key",
        ("accountkey=", "sharedaccesskey="),
        r"(?:AccountKey=[A-Za-z0-9+/]{86}|SharedAccessKey=[A-Za-z0-9+/]{43})=",
    ),
    Shape("Azure Shared Access Signature", ("sig=",), r"[?&]sig=[A-Za-z0-9%+/]{43,90}"),
    Shape("Cloudflare Key", ("v1.0-",), _START + r"v1\.0-[0-9a-f]{24}-[0-9a-f]{146}"),
    Shape("DigitalOcean Token", ("_v1_",), r"do[opr]_v1_[0-9a-f]{64}"),
    Shape("Fly.io Token", ("fm2_",), r"fm2_[A-Za-z0-9+/]{60,}"),
    Shape("Google API Key", ("aiza",), _START + r"AIza[A-Za-z0-9_-]{35}" + _END),
    Shape("Google OAuth Secret", ("gocspx-",), r"GOCSPX-[A-Za-z0-9_-]{28}"),
    Shape("Google OAuth Token", ("ya29.",), _START + r"ya29\.[A-Za-z0-9_-]{30,}"),
    Shape("Heroku Key", ("hrku-",), r"HRKU-[A-Za-z0-9_-]{36,}"),
    Shape("Netlify Token", ("nfp_",), _START + r"nfp_[A-Za-z0-9]{36}" + _END),
    Shape("PlanetScale Password", ("pscale_",), r"pscale_(?:pw|tkn|oauth)_[A-Za-z0-9_.=-]{32,64}"),
    Shape(
        "Supabase Key",
        ("sbp_", "sb_secret_"),
        _START + r"(?:sbp_[0-9a-f]{40}|sb_secret_[A-Za-z0-9_-]{30,})",
    ),
    Shape(
        "Terraform Token",
        (".atlasv1.",),
        _START + r"[A-Za-z0-9]{14}\.atlasv1\.[A-Za-z0-9_-]{60,70}",
    ),
    # code, packages and what builds them
    Shape(
        "Atlassian Token",
        ("atatt3", "atctt3", "atbb"),
        r"AT[AC]TT3[A-Za-z0-9_=-]{100,}|ATBB[A-Za-z0-9]{32}",
    ),
    Shape("Crates.io Token", ("cio",), _START + r"cio[A-Za-z0-9]{32}" + _END),
    Shape("Databricks Token", ("dapi",), _START + r"dapi[0-9a-f]{32}"),
    Shape("Docker Token", ("dckr_",), r"dckr_(?:pat|oat)_[A-Za-z0-9_-]{27,}"),
    Shape(
        "Doppler Token",
        ("dp.",),
        _START + r"dp\.(?:pt|st|ct|sa|scim|audit)\.(?:[a-z0-9_-]{2,35}\.)?[A-Za-z0-9]{40,44}",
    ),
    Shape("GitHub Token", ("github_pat_",), r"github_pat_[A-Za-z0-9]{22}_[A-Za-z0-9]{59}"),
    Shape(
        "Grafana Token",
        ("glsa_", "glc_"),
        r"glsa_[A-Za-z0-9]{32}_[0-9A-Fa-f]{8}|glc_eyJ[A-Za-z0-9+/]{60,}",
    ),
    Shape("Linear Key", ("lin_",), _START + r"lin_(?:api|oauth)_[A-Za-z0-9]{40,64}"),
    Shape("New Relic Key", ("nrak-",), r"NRAK-[A-Z0-9]{27}"),
    Shape("NPM tokens", ("npm_",), _START + r"npm_[A-Za-z0-9]{36}" + _END),
    Shape("NPM tokens", (":_authtoken=",), r":_authToken=\s{0,9}[A-Za-z0-9_-]{30}"),
    Shape("NuGet Key", ("oy2",), _START + r"oy2[a-z0-9]{43}" + _END),
    Shape("Postman Key", ("pmak-",), r"PMAK-[0-9a-f]{24}-[0-9a-f]{34}"),
    Shape("RubyGems Key", ("rubygems_",), r"rubygems_[0-9a-f]{48}"),
    Shape("Sentry Token", ("sntry",), r"sntryu_[0-9a-f]{64}|sntrys_eyJ[A-Za-z0-9+/=_]{60,}"),
    Shape("Vault Token", ("hvs.", "hvb.", "hvr."), _START + r"hv[sbr]\.[A-Za-z0-9_-]{24,}"),
    # models
    Shape("Anthropic Key", ("sk-ant-",), r"sk-ant-[a-z0-9]{3,12}-[A-Za-z0-9_-]{80}"),
    Shape("Cerebras Key", ("csk-",), _START + r"csk-[a-z0-9]{48}" + _END),
    Shape("ElevenLabs Key", ("sk_",), _START + r"sk_[0-9a-f]{48}" + _END),
    Shape("Groq Key", ("gsk_",), _START + r"gsk_[A-Za-z0-9]{52}"),
    Shape(
        "Hugging Face Token", ("hf_", "api_org_"), _START + r"(?:hf|api_org)_[A-Za-z0-9]{34}" + _END
    ),
    Shape("LangSmith Key", ("lsv2_",), r"lsv2_(?:pt|sk)_[0-9a-f]{32}_[0-9a-f]{10}"),
    Shape("Mem0 Key", ("m0-",), _START + r"m0-[A-Za-z0-9]{40}" + _END),
    Shape("NVIDIA Key", ("nvapi-",), _START + r"nvapi-[A-Za-z0-9_-]{64}"),
    Shape(
        "OpenAI Token", ("t3blbkfj",), _START + r"sk-[A-Za-z0-9_-]{20,200}T3BlbkFJ[A-Za-z0-9_-]{20}"
    ),
    Shape("OpenRouter Key", ("sk-or-v1-",), r"sk-or-v1-[0-9a-f]{64}"),
    Shape("Perplexity Key", ("pplx-",), _START + r"pplx-[A-Za-z0-9]{48}"),
    Shape("Pinecone Key", ("pcsk_",), r"pcsk_[A-Za-z0-9]{4,8}_[A-Za-z0-9]{50,}"),
    Shape("Replicate Token", ("r8_",), _START + r"r8_[A-Za-z0-9]{37}" + _END),
    Shape("Secret Key", ("sk-",), _START + r"sk-[0-9a-f]{32}" + _END),
    Shape("Tavily Key", ("tvly-",), _START + r"tvly-(?:dev-|prod-)?[A-Za-z0-9]{32}"),
    Shape("xAI Key", ("xai-",), _START + r"xai-[A-Za-z0-9]{80}"),
    # messages and mail
    Shape("Discord Webhook", ("/api/webhooks/",), r"/api/webhooks/[0-9]{17,20}/[A-Za-z0-9_-]{60}"),
    Shape("Mailgun Key", ("key-",), _START + r"key-[0-9a-f]{32}" + _END),
    Shape(
        "Slack Token",
        ("xox", "xapp-"),
        r"(?ai:xox[ce]-[a-z0-9.-]{30}|xoxd-[a-z0-9%+/]{30}|xapp-[0-9]-[a-z0-9]{8,16}-[0-9]{8,16}-[a-z0-9]{32})",
    ),
    Shape("Teams Webhook", ("/incomingwebhook/",), r"/IncomingWebhook/[0-9a-f]{32}/"),
    # money, tables, designs
    Shape("Airtable Token", ("pat",), _START + r"pat[A-Za-z0-9]{14}\.[0-9a-f]{64}"),
    Shape("Figma Token", ("figd_", "figor_", "figou_"), r"fig(?:d|or|ou)_[A-Za-z0-9_-]{40}"),
    Shape("Notion Token", ("ntn_",), _START + r"ntn_[0-9]{11}[A-Za-z0-9]{35}"),
    Shape("Notion Token", ("secret_",), _START + r"secret_[A-Za-z0-9]{43}" + _END),
    Shape("Shopify Token", ("shp",), r"shp(?:at|ca|pa|ss|ua|tka)_[0-9a-fA-F]{32}"),
    Shape(
        "Square OAuth Secret",
        ("sq0csp-", "sq0atp-", "eaaa"),
        r"sq0(?:csp-[A-Za-z0-9_-]{43}|atp-[A-Za-z0-9_-]{22})|(?<![A-Za-z0-9_+/-])EAAA[A-Za-z0-9_-]{60}"
        + _END,
    ),
    Shape(
        "Stripe Access Key", ("k_live_", "k_test_"), _START + r"[rs]k_(?:live|test)_[A-Za-z0-9]{24}"
    ),
    Shape("Stripe Webhook Secret", ("whsec_",), r"whsec_[A-Za-z0-9+/]{32}"),
    # of nobody's in particular
    Shape("1Password Token", ("ops_eyj",), r"ops_eyJ[A-Za-z0-9_-]{60}"),
    Shape("Age Secret Key", ("age-secret-key-1",), r"AGE-SECRET-KEY-1[0-9A-Z]{58}"),
    Shape(
        "Basic Auth Credentials",
        ("://",),
        r"""://[^\s:/?#@<>{}"'`]{0,200}:(?P<password>[^\s/?#@"'`]{1,200})@""",
    ),
    Shape(
        "JSON Web Token",
        ("eyj",),
        _START + r"eyJ[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10}",
    ),
    Shape(
        "Private Key",
        ("begin", "putty-user-key-file"),
        # With a line of the key: its first line is what everybody names it by.
        r"BEGIN (?:[A-Z0-9]{1,9} ){0,2}PRIVATE KEY(?: BLOCK)?-----(?:\s|\\[nr]){1,9}[A-Za-z0-9+/]{4}"
        r"|PuTTY-User-Key-File-[23]:",
    ),
    Shape(
        "Private Key",
        ("ls0tls1crudjti",),
        r"LS0tLS1CRUdJTi[A-Za-z0-9+/]{0,20}(?:UFJJVkFURS|BSSVZBVE|QUklWQVRF)",
    ),
)


# What a password is called, and what may stand between that and the password: `DB_PASSWORD=…`, "the password of the
# shop's database is …", in the languages of many who write. Words that make it another thing (its hash) end the search.
PASSWORD_SIGNS = (
    "pass", "pwd", "pw:", "pw=", "pw ", "pw'", 'pw"', "kennwort", "wachtwoord", "lösenord", "contraseña", "senha",
    "hasło", "haslo", "heslo", "парол", "密码", "密碼", "パスワード", "비밀번호", "كلمة", "parola", "şifre",
)  # fmt: skip
_PASSWORD = (
    r"passw(?:or[dt]|d)|passphrase|kennwort|wachtwoord|lösenord|mot de passe|contraseña|senha|has[łl]o|heslo|парол[ья]"
    r"|密[码碼]|パスワード|비밀번호|كلمة (?:المرور|السر)|parola\w?\w?|şifre\w?\w?"
)
_PASS = (
    r"(?<![a-z])(?!(?-i:PASS:\s))(?:pass|pwd|pw(?=[ :='\"]))"  # words that have other meanings, too
)
_TOKEN = (
    r"(?<!next)(?<!next[-_])(?<!page)(?<!page[-_])token|(?<!:)secret|bearer|basic"
    r"|(?:api|access|auth|private|secret|account|encryption)[-_ ]?key"
)
_GIVEN = r"""["'\]]{0,2}\s{0,3}(?::=|=>|[:=])\s{0,3}["'`]?"""
_OF = (
    r"for|of|on|to|in|at|für|vo[nm]|zu[rm]|der|des|am|auf|pour|de|du|d[eo]l|della|do|da|par[ae]|en|van|voor"
    r"|від|от|для|до"
)
_TOLD = (
    rf"""(?:\s(?:{_OF})(?:\s[^\s,;:=!?"']{{0,30}}[^\s.,;:=!?"']){{1,4}}?(?:'s\s\w{{1,20}})?)?"""
    r"(?:\s{0,2}[:=]|\s[–—-]|\s(?:is|ist|lautet|est|es|è|é|це|это|هي|هو)(?=\s)|\s?(?:是|为|為|は|은|는))"
    r"""\s{0,2}["'`“«]?"""
)
_VALUE = r"[!#-%*+\-./0-9:=?@A-Z\\^_a-z~]"

NAMED = (
    Shape(
        "Password",
        PASSWORD_SIGNS,
        rf"(?i:(?:{_PASSWORD})(?:{_GIVEN}|{_TOLD}))(?P<chosen>{_VALUE}{{8,200}})"
        rf"|(?i:(?:{_PASS}){_GIVEN}|(?:{_PASSWORD})\s)(?P<mixed>{_VALUE}{{8,200}})",
    ),
    Shape(
        "Token",
        ("token", "secret", "key", "bearer", "basic"),
        rf"(?i:{_TOKEN})(?:(?i:{_GIVEN}|{_TOLD})|\s)(?P<given>{_VALUE}{{16,200}})",
    ),
)
"""Those of which only the name is known that they are given: what looks drawn by lot behind `password` or `token`."""

_STANDS_FOR_ONE = re.compile(r"(\S)\1{7}|EXAMPLE|(?i:abcdefghij)")
"""Eight times the same sign, the word in the keys of AWS's documentation, the alphabet: nobody drew these by lot."""

_NO_PASSWORD = re.compile(
    r"[$<{].*|%[({].*|\W+|x+|(?:your|my|the)?[-_]?(?:pass(?:word|wd)?|pw|pwd|secret|token|guest)|changeme",
    re.I,
)
"""A name that something else puts a password for, or one that says what it is."""

_DIGEST = re.compile(r"[0-9a-f]{40}")
"""As that of a commit."""

_ELSEWHERE = re.compile(r"[$/~.%@]|0x|(?i:sha|md5)|.*(?:://|\.env|environ)")
"""How a variable begins, a path, a reference or an address."""

_UUID = re.compile(r"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}")

_TURN = re.compile(r"[A-Za-z](?=[0-9])|[0-9](?=[A-Za-z])")


def stands_for_one(text: str) -> bool:
    """Whether it is written where a credential would be, as in documentation."""
    return _STANDS_FOR_ONE.search(text) is not None


def _is_placeholder(match: re.Match[str]) -> bool:
    if stands_for_one(match[0]):
        return True
    return not all(_JUDGES[name](value) for name, value in match.groupdict().items() if value)


def _is_chosen(value: str) -> bool:
    """Has capital letters, small ones and digits, as most who ask for a password demand: few words have."""
    return (
        _ELSEWHERE.match(value) is None
        and any(map(str.isdigit, value))
        and any(map(str.islower, value))
        and any(map(str.isupper, value))
        and ("/" not in value or _turns(value) >= 3)
    )


def _is_drawn(value: str) -> bool:
    """Not the id of a row or a request, which has a form of its own, nor a name with dots."""
    value = value.rstrip(".:?!")
    return (
        _ELSEWHERE.match(value) is None
        and "." not in value
        and max(map(_turns, re.split("[-_]", value))) >= 4
        and _UUID.fullmatch(value) is None
    )


def _turns(value: str) -> int:
    """How often letters and digits take turns: in a name seldom, for they stand in a few heaps there."""
    return len(_TURN.findall(value))


_JUDGES = {
    "password": lambda value: _NO_PASSWORD.fullmatch(value) is None,
    "drawn": lambda value: _DIGEST.fullmatch(value) is None,
    "chosen": _is_chosen,
    "mixed": lambda value: _is_chosen(value) and _turns(value) >= 3,
    "given": _is_drawn,
}
