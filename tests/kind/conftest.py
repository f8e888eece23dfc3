"""kind beside the cluster that all others share: only with CLUSTER=kind (`make test-kind`)."""

from __future__ import annotations

import os

collect_ignore_glob = [] if os.environ.get("CLUSTER") == "kind" else ["test_*.py"]
