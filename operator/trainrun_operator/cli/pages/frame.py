"""The frame of a static page: one file to send, to keep, to read on a phone. No scripts, nothing
fetched.

Layer: cli; pure.
"""

from __future__ import annotations

import html

from trainrun.contract.masking import masked
from trainrun_operator.cli.pages.style import STYLE


def framed(title: str, body: str, *, style: str) -> str:
    """The whole page; `style` comes after that of all pages. `title` is text, `body` is HTML."""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; '
        "style-src 'unsafe-inline'\">\n"
        f"<title>{safe(title)}</title>\n<style>{STYLE}{style}</style></head>\n"
        f"<body><main>\n{body}\n</main></body></html>\n"
    )


def safe(words: str) -> str:
    """Escaped, and without what looks like a secret."""
    return html.escape(masked(words))
