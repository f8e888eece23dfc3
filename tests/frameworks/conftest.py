"""These tests need packages that the project itself does not: `make test-frameworks` has them."""

from __future__ import annotations

from importlib.util import find_spec

TRIED = ("accelerate", "jax", "lightning", "mlflow", "transformers")
collect_ignore_glob = [] if all(map(find_spec, TRIED)) else ["test_*.py"]
