"""All that two sides agree on: messages, files, variables. Each is written and read here."""

from __future__ import annotations
