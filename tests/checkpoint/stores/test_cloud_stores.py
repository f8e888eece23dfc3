"""Google Cloud Storage and Azure: runs, sweeps and tasks there; what a user reads on a mistake."""

from __future__ import annotations

import base64
import contextlib
import subprocess
import sys
import zlib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.checkpoints import Bench, materialize
from tests.support.cloud_servers import LOST_ANSWER
from tests.support.s3_server import free_port
from tests.support.sweeps import a_search, begun
from trainrun.checkpoint.run_store import RunStore, open_store
from trainrun.checkpoint.stores.cloud_errors import explain
from trainrun.checkpoint.stores.store import ObjectStore
from trainrun.checkpoint.sweep_log import SweepLog
from trainrun.checkpoint.task_folder import TaskFolder
from trainrun.errors import (
    CheckpointDamaged,
    ObjectNotFound,
    StoreDenied,
    StoreError,
    StoreFull,
    StoreMisconfigured,
    StoreUnavailable,
)
from trainrun.sweep.records import Targets

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def cloud(cloud_uri: str) -> Iterator[ObjectStore]:
    with contextlib.closing(open_store(cloud_uri)) as store:
        yield store


def refusal(uri: str, *, endpoint_url: str | None = None) -> StoreError:
    """What the store at this address raises when it is probed."""
    with contextlib.closing(open_store(uri, endpoint_url=endpoint_url)) as store:
        with pytest.raises(StoreError) as caught:
            store.probe()
    return caught.value


def test_a_run_commits_and_its_next_attempt_resumes(cloud: ObjectStore, tmp_path: Path) -> None:
    bench = Bench(run=RunStore(cloud, "digits"), scratch=tmp_path / "scratch")
    assert bench.resolve(1).outcome == "Resolved"
    committed = bench.commit(step=10)

    found = bench.resolve(2)
    assert (found.outcome, found.resume) == ("Resolved", committed.id)
    folder = materialize(bench.run, committed.id, cache_dir=tmp_path / "cache")
    assert len(list(folder.iterdir())) == 3
    assert bench.resolve(1, uid="uid-2").outcome == "InUse"


def test_sweeps_and_tasks_find_their_logs(cloud: ObjectStore) -> None:
    log = SweepLog(RunStore(cloud, "search"))
    log.settle(Targets(session=begun(), asked=2), a_search())
    assert SweepLog(RunStore(cloud, "search")).read_on() == log.view

    tasks = TaskFolder(RunStore(cloud, "shards"), patience=0.0)
    assert tasks.append(1, b'{"session": "a"}')
    assert TaskFolder(RunStore(cloud, "shards"), patience=0.0).read(0) == [b'{"session": "a"}']


def test_a_file_that_was_overwritten_after_it_was_listed_is_not_read(
    cloud: ObjectStore, tmp_path: Path
) -> None:
    cloud.put("a", b"one")
    (listed,) = cloud.list("")
    cloud.get_file("a", tmp_path / "a", size=3, crc32=zlib.crc32(b"one"), tag=listed.tag)
    cloud.put("a", b"two")
    with pytest.raises(StoreUnavailable, match="was overwritten after it was listed"):
        cloud.get_file("a", tmp_path / "a", size=3, crc32=None, tag=listed.tag)


def test_an_object_that_is_empty_now_is_damage(cloud: ObjectStore, tmp_path: Path) -> None:
    cloud.put("a", b"")
    with pytest.raises(CheckpointDamaged, match=r"/a: .*(shorter than|should be 3)"):
        cloud.get_file("a", tmp_path / "a", size=3, crc32=0)


def test_a_name_that_the_library_would_change_is_refused(cloud: ObjectStore) -> None:
    for name in ("a\\b", "a\nb"):
        with pytest.raises(StoreMisconfigured, match=r"characters in names; rename the file$"):
            cloud.put(name, b"x")


def test_a_missing_bucket_is_named(cloud_uri: str, tmp_path: Path) -> None:
    scheme = cloud_uri.partition("://")[0]
    error = refusal(f"{scheme}://no-such-bucket/team")
    assert isinstance(error, StoreMisconfigured)
    assert f"cannot write {scheme}://no-such-bucket/team/.probe-" in str(error)
    assert str(error).endswith("; create 'no-such-bucket' or correct storage.uri")


def test_a_server_that_is_away_says_what_to_check(cloud_uri: str) -> None:
    error = refusal(cloud_uri, endpoint_url=f"http://127.0.0.1:{free_port()}/account")
    assert isinstance(error, StoreUnavailable)
    assert str(error).startswith(f"cannot write {cloud_uri}/.probe-")
    assert str(error).endswith(
        ": Connection refused; check the network, storage.endpointURL and whether the server is "
        "running"
    )


@pytest.mark.parametrize("cloud_uri", ["gs"], indirect=True)
def test_a_claim_whose_answer_was_lost_is_still_ours(cloud: ObjectStore) -> None:
    with contextlib.suppress(StoreUnavailable):
        assert cloud.put_if_absent(LOST_ANSWER, b"mine")
    assert cloud.put_if_absent(LOST_ANSWER, b"mine")
    assert not cloud.put_if_absent(LOST_ANSWER, b"yours")


@pytest.mark.parametrize("cloud_uri", ["az"], indirect=True)
def test_wrong_keys_of_azure_are_told_from_missing_ones(
    cloud_uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", base64.b64encode(bytes(64)).decode())
    error = refusal(cloud_uri)
    assert isinstance(error, StoreDenied)
    assert "AuthorizationFailure: Server failed to authenticate the request" in str(error)
    assert str(error).endswith(
        "; check AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY or "
        "AZURE_STORAGE_SAS_TOKEN, and whether they have the role Storage Blob Data Contributor on "
        "container 'bucket'"
    )
    with contextlib.closing(open_store(cloud_uri)) as store:
        answer = Bench(run=RunStore(store, "digits"), scratch=Path("/")).resolve(1)
    assert answer.outcome == "Misconfigured"

    monkeypatch.delenv("AZURE_STORAGE_ACCOUNT_NAME")
    error = refusal(cloud_uri)
    assert isinstance(error, StoreMisconfigured)
    assert "Account must be specified; check AZURE_STORAGE_ACCOUNT_NAME and " in str(error)


def test_a_key_of_google_that_is_no_json_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOOGLE_SERVICE_ACCOUNT_KEY", "nonsense")
    error = refusal("gs://bucket/x")
    assert isinstance(error, StoreMisconfigured)
    assert str(error).endswith("; check GOOGLE_SERVICE_ACCOUNT_KEY and storage.endpointURL")


def test_a_python_without_the_library_is_told_what_to_install() -> None:
    script = (
        "import sys; sys.modules['obstore'] = None\n"
        "from trainrun.checkpoint.run_store import open_store\n"
        "open_store('gs://bucket/x')"
    )
    told = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True).stderr
    assert "StoreMisconfigured: gs://bucket/x: gs:// needs the package obstore" in told
    assert told.endswith(
        "Install it in the image or on this machine: pip install 'trainrun[stores]'\n"
    )


def answer_of(status: str, code: str, message: str = "") -> str:
    return (
        "Generic GCS error: Error performing PUT https://storage.googleapis.com/bucket/key in 1s - "
        f"Server returned non-2xx status code: {status}: <Error><Code>{code}</Code>"
        f"<Message>{message}</Message></Error>\n\nDebug source:\nGeneric {{}}"
    )


@pytest.mark.parametrize(
    ("text", "kind", "ending"),
    [
        (answer_of("404 Not Found", "NoSuchKey", "It is gone."), ObjectNotFound, "It is gone"),
        (answer_of("429 Too Many Requests", "SlowDown", "Later."), StoreUnavailable, "Later"),
        (answer_of("503 Unavailable", "ServerBusy", "Busy."), StoreUnavailable, "ServerBusy: Busy"),
        (
            answer_of("403 Forbidden", "AccessDenied", "Access denied."),
            StoreDenied,
            "AccessDenied: Access denied; check GOOGLE_SERVICE_ACCOUNT_KEY, and whether they have "
            "the role Storage Object User on bucket 'bucket'",
        ),
        (
            answer_of("403 Forbidden", "ContainerQuotaExceeded"),
            StoreFull,
            "ContainerQuotaExceeded; make room in 'bucket' or raise its limit",
        ),
        (answer_of("400 Bad Request", "InvalidURI", "No."), StoreMisconfigured, "InvalidURI: No"),
        (
            "Generic GCS error: Error performing token request: Error performing GET "
            "http://metadata.google/ in 8.5ms, after 2 retries, max_retries: 2 - HTTP error",
            StoreDenied,
            "Error performing GET http://metadata.google/ - HTTP error; "
            "set GOOGLE_SERVICE_ACCOUNT_KEY, or give this machine or pod an identity",
        ),
        (
            "Generic GCS error: HTTP error: error sending request\n\nDebug source:\n"
            "error: InvalidCertificate(UnknownIssuer)",
            StoreMisconfigured,
            "the server's certificate is not trusted; SSL_CERT_FILE must name a file with its CA "
            "certificates",
        ),
    ],
)
def test_each_answer_of_a_service_has_its_remedy(
    text: str, kind: type[StoreError], ending: str
) -> None:
    error = explain("cannot write gs://bucket/key", text, scheme="gs", bucket="bucket")
    assert type(error) is kind
    assert str(error).startswith("cannot write gs://bucket/key: ")
    assert str(error).endswith(ending)
