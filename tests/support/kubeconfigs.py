"""kubeconfigs for servers that tests have started themselves."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def written_kubeconfig(
    path: Path, server: str, *, token: str = "token", ca: bytes | None = None
) -> Path:
    """Write one for the server at this URL; `ca`: the certificate (PEM) that it is known by."""
    cluster = {"server": server}
    if ca is not None:
        cluster["certificate-authority-data"] = base64.b64encode(ca).decode()
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "test",
        "clusters": [{"name": "test", "cluster": cluster}],
        "users": [{"name": "user", "user": {"token": token}}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "user"}}],
    }
    path.write_text(json.dumps(config))
    return path
