"""Masks secrets in texts from processes, services and libraries.

Layer: contract; pure except for `hide_values`. When in doubt it masks: users do not need passwords
in messages, and messages get forwarded. A W&B key looks like a commit hash: 40 hexadecimal digits
stay only if the text says what they are, or in a path. The time is linear in the length of the
text.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from trainrun._common.text import without_escapes

if TYPE_CHECKING:
    from collections.abc import Mapping

MASK = "***"
"""Replaces a secret."""

_NAME = (
    r"(?:password|passwd|passphrase|secret|token|credential"
    r"|(?:api|access|account|private)[_-]?key)"
)
_IS = r"\\?['\"]?\s{0,8}[=:]\s{0,8}\\?"
"""With backslashes, for a quoted text within a text."""
_QUOTED = r"[bru]?(?:'(?:[^'\\\n]|\\.)*'?|\"(?:[^\"\\\n]|\\.)*\"?)"
"""A quoted value including blanks; without a closing quote, as in a truncated line, the whole
line."""
_PLAIN = r"\S*[^\s,;)}\]'\"]"
_NO_PASSWORD = (
    r"is|was|for|of|and|or|to|from|not|in|has|must|may|can|cannot|required|expired|incorrect|wrong"
    r"|authentication|failed|prompt|file|field|with|does|did|if|that|on|by|protected|needed"
)
"""Words that follow the word password in sentences about one."""
_SCHEME = r"(?:(?:bearer|basic|token)\s{1,8})?"

_PATTERNS = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        # user:password@ or token@ in an address, to the last @ of it
        r"(?P<keep>://)[^\s/'\"<>]*(?=@)",
        # keys and tokens recognizable by their form
        r"(?-i:(?:AKIA|ASIA)[A-Z0-9]{16}(?:[\s,:'\"]{1,8}[A-Za-z0-9/+]{40}\b)?)",
        r"(?-i:\bAIza[A-Za-z0-9_-]{8,}|\bya29\.[\w-]{8,}|\bGOOG1[A-Z0-9]{20,})",
        (
            r"(?-i:\b(?:hf_|gh[pousr]_|github_pat_|glpat-|sk-|xox[a-z]-|xapp-|npm_|pypi-|nvapi-|r8_|gsk_"
            r"|wandb_v\d_|dapi(?=[0-9a-f]{32}))[A-Za-z0-9_-]{8,})"
        ),
        r"(?-i:(?<![\w-])eyJ(?:[\w-]{8,}\.[\w-]{8,}\.[\w-]*|[\w-]{40,}={0,2}))",
        r"(?P<keep>\b(?:hooks\.slack\.com/services|discord(?:app)?\.com/api/webhooks)/)[^\s'\"]+",
        # a private key, whole or a line of it; the key of an account of Azure
        r"(?-is:-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----(?:[^-]*(?:-----END [A-Z ]{0,40}-----)?))",
        r"^\s{0,8}(?=[^\n]{0,64}[G-Zg-z+/])[A-Za-z0-9+/]{64}\s{0,8}$",
        r"(?<![A-Za-z0-9+/])[A-Za-z0-9+/]{86}==",
        # W&B; if the text names it, it is a commit or a checksum
        (
            r"(?P<named>(?:(?:commit|sha|revision|\brev|checksum|digest|hash|\bhead|tree|parent)\w{0,20}"
            rf"(?:{_IS}|\s{{1,8}}(?:is |now |at |to ){{0,3}})['\"(]?|[/@.]))?"
            r"\b(?-i:[0-9a-f]{40})\b"
        ),
        # password VALUE, api key VALUE
        (
            r"(?P<keep>\b(?:password|passwd|passphrase)\s{1,8}(?:is\s{1,8})?)"
            rf"(?!(?:{_NO_PASSWORD})\b)(?:{_QUOTED}|{_PLAIN})"
        ),
        (
            r"(?P<keep>\b(?:api|access|secret|private)[ _-]key\s{1,8}(?:is\s{1,8})?)"
            r"(?=[^\s\d]{0,80}\d)[^\s,;'\"]{8,}"
        ),
        # --token VALUE, and the same as a list of words; no --tokenizer, no --max-tokens
        rf"(?P<keep>--[\w-]{{0,40}}{_NAME}(?:['\"],)?\s{{1,8}})(?!-)(?:{_QUOTED}|{_PLAIN})",
        # Authorization: Scheme VALUE
        rf"(?P<keep>authorization[\w-]{{0,40}}{_IS})(?:{_QUOTED}|\S+[ \t]{{1,8}}{_PLAIN}|{_PLAIN})",
        r"(?P<keep>\bbearer\s{1,8})[^\s,;'\"]+",
        # name=VALUE, 'name': 'VALUE', ?sig=VALUE
        rf"(?P<keep>(?:{_NAME}[\w-]{{0,40}}|signature|\bsig){_IS}){_SCHEME}(?:{_QUOTED}|{_PLAIN})",
    )
)


_SIGNS = (
    *("@", "akia", "asia", "aiza", "hf_", "ghp_", "gho_", "github_pat_", "glpat-", "sk-", "xox"),
    *("ghu_", "ghs_", "ghr_", "ya29.", "goog1", "xapp-", "npm_", "pypi-", "nvapi-", "r8_", "gsk_"),
    *("wandb_v", "dapi", "hooks.slack", "/webhooks/"),
    *("eyj", "passw", "passphrase", "secret", "token", "credential", "key", "authorization"),
    *("bearer", "sig"),
)
"""In lower case; without any of these, only the patterns for long words can match. Most log lines
have neither."""
_LONG_WORD = re.compile(r"[A-Za-z0-9+/]{40}")

_hidden: list[str] = []
"""Values of secret variables, longest first."""
_SHORTEST = 6
_SECRET_NAME = re.compile(
    r"(?i:(?:^|[_-])(?:(?:api|access|secret|private|auth|account)?key|token|secret|password|passwd"
    r"|passphrase|credentials?)(?:[_-](?!file$|path$|dir$|name$|url$|type$|env$|limit$)|$))"
    r"|(?:Key|Token|Secret|Password)$"
)
"""WANDB_API_KEY, HF_TOKEN, apiKey; not TOKENIZERS_PARALLELISM, KEYBOARD or TOKEN_FILE."""
_NUMBER = re.compile(r"[-+.\d]+(?:[eE][-+]?\d+)?")
_NO_SECRETS = frozenset(
    ("default", "disabled", "enabled", "required", "optional", "offline", "unknown", "public")
)


def masked(text: str) -> str:
    """The text with MASK in place of keys, tokens and passwords; their names stay.

    Removes colours: they may separate a name from its secret, and a terminal link may contain one.
    """
    text = without_escapes(text)
    for value in _hidden:
        if value in text:
            text = text.replace(value, MASK)
    lower = text.lower()
    if not any(sign in lower for sign in _SIGNS) and not _LONG_WORD.search(text):
        return text
    for pattern in _PATTERNS:
        text = pattern.sub(_mask, text)
    return text


def masked_object(value: Any) -> Any:
    """A JSON value with all its texts masked; the names of its fields stay."""
    if isinstance(value, str):
        return masked(value)
    if isinstance(value, list):
        return [masked_object(item) for item in value]
    if isinstance(value, dict):
        return {
            key: MASK
            if isinstance(item, str) and _is_secret(str(key), item)
            else masked_object(item)
            for key, item in value.items()
        }
    return value


def hide_values(environ: Mapping[str, str]) -> None:
    """Make `masked` also hide the values of variables whose names contain KEY, TOKEN, SECRET,
    PASSWORD or CREDENTIAL, except values under six characters, numbers, paths, and words such as
    `default`."""
    values = {
        line
        for name, value in environ.items()
        if _is_secret(name, value)
        for line in value.split("\n")
    }
    long_enough = {value for value in values if len(value) >= _SHORTEST}
    _hidden[:] = sorted(long_enough.union(_hidden), key=len, reverse=True)


def _is_secret(name: str, value: str) -> bool:
    if len(value) < _SHORTEST or value.lower() in _NO_SECRETS or value.startswith(("/", "./", "~")):
        return False
    return _SECRET_NAME.search(name) is not None and _NUMBER.fullmatch(value) is None


def _mask(found: re.Match[str]) -> str:
    if found.groupdict().get("named"):
        return found[0]
    return f"{found.groupdict().get('keep') or ''}{MASK}"
