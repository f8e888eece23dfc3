"""The kubeconfig files of a cluster's clients, each complete in itself."""

from __future__ import annotations

import base64
import os
from typing import TYPE_CHECKING

import yaml

if TYPE_CHECKING:
    from pathlib import Path


def write_kubeconfig(path: Path, *, certificates: Path, user: str, server: str, name: str) -> None:
    """Write the kubeconfig of the client whose certificate is `certificates/USER.crt`."""

    def data(file: str) -> str:
        return base64.b64encode((certificates / file).read_bytes()).decode()

    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": name,
        "clusters": [
            {
                "name": name,
                "cluster": {"server": server, "certificate-authority-data": data("ca.crt")},
            }
        ],
        "users": [
            {
                "name": user,
                "user": {
                    "client-certificate-data": data(f"{user}.crt"),
                    "client-key-data": data(f"{user}.key"),
                },
            }
        ],
        "contexts": [{"name": name, "context": {"cluster": name, "user": user}}],
    }
    partial = path.with_name(f".{path.name}")
    partial.write_text(yaml.safe_dump(config))
    # It holds a key; and helm warns of files that others may read.
    os.chmod(partial, 0o600)
    partial.replace(path)
