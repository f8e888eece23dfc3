"""Plain requests to a cluster's API server, for what is asked often: a kubectl costs 0.1 s each."""

from __future__ import annotations

import base64
import json
import ssl
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from testbed.errors import ClusterBroken

if TYPE_CHECKING:
    from collections.abc import Callable

JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"


class ApiError(Exception):
    """The API server refused; `status` is the HTTP status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status}: {message}")
        self.status = status


class Api:
    """The API server that a kubeconfig names, spoken to as the kubeconfig's client."""

    def __init__(self, kubeconfig: Path) -> None:
        config = yaml.safe_load(kubeconfig.read_text())
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        self.url: str = cluster["server"]
        context = ssl.create_default_context(
            cadata=base64.b64decode(cluster["certificate-authority-data"]).decode()
        )
        with tempfile.TemporaryDirectory() as folder:
            # The library takes certificates of clients from files alone.
            both = Path(folder) / "both.pem"
            parts = (user["client-certificate-data"], user["client-key-data"])
            both.touch(mode=0o600)
            both.write_bytes(b"\n".join(base64.b64decode(part) for part in parts))
            context.load_cert_chain(both)
        self._opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
        )

    def get(self, path: str) -> dict[str, Any]:
        """The object or list at a path such as `/api/v1/nodes`."""
        return self._ask("GET", path)

    def post(self, path: str, body: object) -> dict[str, Any]:
        """Create."""
        return self._ask("POST", path, body)

    def patch(self, path: str, body: object, kind: str = MERGE_PATCH) -> dict[str, Any]:
        """Change parts."""
        return self._ask("PATCH", path, body, kind)

    def delete(self, path: str, body: object | None = None) -> dict[str, Any]:
        """Delete; `body` holds DeleteOptions."""
        return self._ask("DELETE", path, body)

    def _ask(
        self, method: str, path: str, body: object = None, kind: str = "application/json"
    ) -> dict[str, Any]:
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": kind, "Accept": "application/json"}
        request = urllib.request.Request(self.url + path, data=data, method=method, headers=headers)
        try:
            with self._opener.open(request, timeout=10) as answer:
                content: dict[str, Any] = json.load(answer)
                return content
        except urllib.error.HTTPError as error:
            with error:
                words = error.read().decode(errors="replace")
            try:
                words = json.loads(words)["message"]
            except (ValueError, KeyError, TypeError):
                pass
            raise ApiError(error.code, words) from None


def wait_until(
    condition: Callable[[], str], *, timeout: float, every: float = 0.05, log: Callable[[], str]
) -> None:
    """Return once `condition` returns an empty string; until then it says what is missing.

    Raises ClusterBroken with what is missing and the log after `timeout` seconds. An API server
    that does not answer is one more thing that is missing.
    """
    deadline = time.monotonic() + timeout
    while True:
        try:
            missing = condition()
        except (ApiError, urllib.error.URLError, OSError) as error:
            missing = f"{type(error).__name__}: {error}"
        if not missing:
            return
        if time.monotonic() > deadline:
            raise ClusterBroken(f"not within {timeout:.0f} s: {missing}\n{log()}")
        time.sleep(every)
