"""The custom resources: models, defaults, rules, CRD generation and loading of YAML."""

from __future__ import annotations
