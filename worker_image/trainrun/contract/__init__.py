"""The formats that two sides share: messages, files, variables. Each is written and read here."""

from __future__ import annotations
