"""Plain requests to a cluster's API server, for what is asked often: a kubectl costs 0.1 s each."""

from __future__ import annotations

import base64
import http.client
import json
import ssl
import tempfile
import threading
import time
import urllib.parse
import weakref
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
        place = urllib.parse.urlsplit(self.url)
        # Kept open: a handshake with a client's certificate costs more than most requests.
        self._connection = http.client.HTTPSConnection(
            str(place.hostname), place.port, context=context, timeout=10
        )
        weakref.finalize(self, self._connection.close)
        self._one_at_a_time = threading.Lock()

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
        with self._one_at_a_time:
            status, answer = self._answer(method, path, data, headers)
        if status < 300:
            content: dict[str, Any] = json.loads(answer)
            return content
        words = answer.decode(errors="replace")
        try:
            words = json.loads(words)["message"]
        except (ValueError, KeyError, TypeError):
            pass
        raise ApiError(status, words)

    def _answer(
        self, method: str, path: str, data: bytes | None, headers: dict[str, str]
    ) -> tuple[int, bytes]:
        """Over the connection of before; one that an API server has closed since is made anew.

        Raises ConnectionError where nothing answers.
        """
        used = self._connection.sock is not None
        try:
            self._connection.request(method, path, data, headers)
            with self._connection.getresponse() as answer:
                return answer.status, answer.read()
        except (OSError, http.client.HTTPException) as error:
            self._connection.close()
            if used and isinstance(error, (ConnectionError, http.client.NotConnected)):
                return self._answer(method, path, data, headers)
            raise ConnectionError(str(error) or type(error).__name__) from error


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
        except (ApiError, OSError) as error:
            missing = f"{type(error).__name__}: {error}"
        if not missing:
            return
        if time.monotonic() > deadline:
            raise ClusterBroken(f"not within {timeout:.0f} s: {missing}\n{log()}")
        time.sleep(every)
