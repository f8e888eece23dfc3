"""The page as users meet it: installed by the chart, through its Service, with their own tokens."""

from __future__ import annotations

import html
import http.cookiejar
import json
import re
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from testbed.binaries import binary
from tests.e2e.support.bed import a_bed
from tests.e2e.support.incidents import succeeded, training
from tests.e2e.support.installation import NAMESPACE
from tests.support.eventually import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.e2e.support.bed import Bed
    from tests.e2e.support.installation import Installation

pytestmark = pytest.mark.cluster

KEYS = "page-keys"
ENDLESS: dict[str, Any] = {"replicas": 1, "args": ["--attempts", 2]}
REVOKED_WITHIN = 60.0
"""Seconds until nothing more is sent to whom a right was taken, as docs/page.md says."""


@dataclass(frozen=True)
class Reader:
    """A browser of somebody who has signed in with the token of a service account."""

    bed: Bed
    root: str
    jar: http.cookiejar.CookieJar = field(default_factory=http.cookiejar.CookieJar)

    def sign_in(self) -> None:
        self.bed.kubectl("create", "serviceaccount", "reader")
        account = f"--serviceaccount={self.bed.namespace}:reader"
        self.bed.kubectl("create", "rolebinding", "reader", "--clusterrole=view", account)
        token = self.bed.kubectl("create", "token", "reader").strip()
        form = urllib.parse.urlencode({"token": token}).encode()
        with self._opened("sign-in", form) as answer:
            assert "Runs" in answer.read().decode()

    def text(self, path: str = "") -> str:
        with self._opened(path) as answer:
            return str(answer.read().decode())

    def shows(self, words: str, path: str = "") -> str:
        """The page, once it has these words."""
        text = ""

        def there() -> bool:
            nonlocal text
            text = self.text(path)
            return words in text

        eventually(there, timeout=60, what=words)
        return text

    def link_to(self, name: str) -> str:
        found = re.search(rf'href="(run\?[^"]*)">{name}</a>', self.shows(f">{name}</a>"))
        assert found is not None
        return html.unescape(found[1])

    def status_of(self, path: str) -> int:
        try:
            with self._opened(path) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code

    def news_ends_after(self, path: str, change: list[str]) -> float:
        """Seconds from this change, by kubectl, until the stream of the page ends."""
        with self._opened(f"events/{path}") as news:
            assert news.readline().startswith(b"data: ")
            self.bed.kubectl(*change)
            begun = time.monotonic()
            while news.readline():
                assert time.monotonic() - begun < 2 * REVOKED_WITHIN
        return time.monotonic() - begun

    def _opened(self, path: str, form: bytes | None = None) -> Any:
        opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPCookieProcessor(self.jar)
        )
        return opener.open(urllib.request.Request(self.root + path, form), timeout=60)


@contextmanager
def the_page(installation: Installation, bed: Bed) -> Iterator[str]:
    """The address of the page that the chart installs, with the bucket of `bed` as its store."""
    literals = [f"--from-literal={name}={value}" for name, value in bed.credentials.items()]
    installation.kubectl("create", "secret", "generic", KEYS, *literals)
    store = {
        "uri": f"s3://{bed.bucket}",
        "namespace": bed.namespace,
        "secret": KEYS,
        "endpointURL": bed.store.endpoint,
        "region": "us-east-1",
    }
    values = json.dumps({"enabled": True, "stores": [store]})
    try:
        installation.install("--set-json", f"page={values}")
        with forwarded(installation) as port:
            yield f"http://127.0.0.1:{port}/"
    finally:
        installation.install()
        installation.make_whole()
        installation.kubectl("delete", "secret", KEYS)


@contextmanager
def forwarded(installation: Installation) -> Iterator[int]:
    """A port of this machine that leads to the page's Service."""
    command = [str(binary("kubectl")), "--namespace", NAMESPACE, "port-forward"]
    options = {"env": installation.cluster.environment(), "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([*command, "service/trainrun-page", ":80"], **options) as process:
        try:
            found = re.search(r"127\.0\.0\.1:(\d+)", process.stdout.readline())
            assert found is not None
            yield int(found[1])
        finally:
            process.kill()


@pytest.mark.rare("tests/cli/viewing/test_tenants.py")
def test_who_signs_in_with_a_token_sees_runs_of_a_namespace_live_and_past_until_it_is_revoked(
    installation: Installation, bed: Bed
) -> None:
    past, live = bed.run("past", args=["--steps", 10], replicas=1), bed.run("live", **ENDLESS)
    with a_bed(installation.cluster, "somebody-elses") as other:
        other.run("foreign", **ENDLESS)
        succeeded(past)
        past.delete()
        training(live)
        with the_page(installation, bed) as root:
            us, them = Reader(bed, root), Reader(other, root)
            assert us.status_of("") == 401
            us.sign_in()
            them.sign_in()
            page = us.link_to("live")
            them.shows(">foreign</a>")
            assert "foreign" not in us.text()
            assert ">live</a>" not in them.text()
            assert them.status_of(page) == 404
            us.shows("Output of rank 0", page)
            assert "Workers, 1 pod" in us.text(page)
            # The store of the namespace holds its runs in a folder.
            us.shows("Run past succeeded", us.link_to("past"))
            assert ">past</a>" not in them.text()
            revoked = us.news_ends_after(page, ["delete", "rolebinding", "reader"])
            assert revoked < REVOKED_WITHIN
            us.shows("There are none yet.")
            gone = them.news_ends_after("", ["delete", "serviceaccount", "reader"])
            assert gone < REVOKED_WITHIN
            assert them.status_of("") == 401
