"""These tests need packages that the project itself does not: `make test-frameworks` has them."""

from __future__ import annotations

from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("transformers") and find_spec("lightning") else ["test_*.py"]
