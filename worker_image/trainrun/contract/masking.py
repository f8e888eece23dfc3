"""Texts from processes, services and libraries, without what looks like a secret.

Layer: contract, pure. Rather too much is left out than too little: nobody looks for a password in a
message, but a message is sent on. Takes time that grows with the length of the text, no faster.
"""

from __future__ import annotations

import re
from typing import Any

from trainrun.text import without_escapes

MASK = "***"
"""Stands in place of a secret."""

_NAME = (
    r"(?:password|passwd|passphrase|secret|token|credential"
    r"|(?:api|access|account|private)[_-]?key)"
)
_IS = r"\\?['\"]?\s{0,8}[=:]\s{0,8}\\?"
"""With backslashes where it stands in a text within a text."""
_QUOTED = r"[bru]?(?:'(?:[^'\\\n]|\\.)*'?|\"(?:[^\"\\\n]|\\.)*\"?)"
"""With the blanks in it; without an end, as in a line that was cut, all of the line."""
_PLAIN = r"\S*[^\s,;)}\]'\"]"
_SCHEME = r"(?:(?:bearer|basic|token)\s{1,8})?"

_PATTERNS = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        # user:password@ or token@ in an address, to the last @ of it
        r"(?P<keep>://)[^\s/'\"<>]*(?=@)",
        # what tells by its form that it is a key or a token
        r"(?-i:(?:AKIA|ASIA)[A-Z0-9]{16}|\bAIza[A-Za-z0-9_-]{8,})",
        r"(?-i:\b(?:hf_|ghp_|gho_|github_pat_|glpat-|sk-|xox[abp]-)[A-Za-z0-9_-]{8,})",
        r"(?-i:(?<![\w-])eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*)",
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
    *(
        "eyj",
        "passw",
        "passphrase",
        "secret",
        "token",
        "credential",
        "key",
        "authorization",
        "bearer",
        "sig",
    ),
)
"""In lower case; where none of them is, no pattern matches. Most lines of a log have none."""


def masked(text: str) -> str:
    """The text with MASK in place of keys, tokens and passwords; their names stay.

    Colours go: they stand between a name and its secret, and a link may hold one.
    """
    text = without_escapes(text)
    lower = text.lower()
    if not any(sign in lower for sign in _SIGNS):
        return text
    for pattern in _PATTERNS:
        text = pattern.sub(_mask, text)
    return text


def masked_object(value: Any) -> Any:
    """A JSON value with each of its texts masked; the names of its fields stay."""
    if isinstance(value, str):
        return masked(value)
    if isinstance(value, list):
        return [masked_object(item) for item in value]
    if isinstance(value, dict):
        return {key: masked_object(item) for key, item in value.items()}
    return value


def _mask(found: re.Match[str]) -> str:
    return f"{found.groupdict().get('keep') or ''}{MASK}"
