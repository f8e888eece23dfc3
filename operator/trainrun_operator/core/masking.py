"""Texts from processes, services and libraries, without what looks like a secret.

Layer: core; pure. Rather too much is left out than too little: nobody looks for a password in a
message, but a message is sent on. Takes time that grows with the length of the text, no faster.
"""

from __future__ import annotations

import re

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


def masked(text: str) -> str:
    """The text with MASK in place of keys, tokens and passwords; their names stay."""
    for pattern in _PATTERNS:
        text = pattern.sub(_mask, text)
    return text


def _mask(found: re.Match[str]) -> str:
    return f"{found.groupdict().get('keep') or ''}{MASK}"
