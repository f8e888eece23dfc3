"""The API server and object storage: away, slow, and hostile."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError, EndpointConnectionError, ReadTimeoutError

from testbed.errors import ClusterBroken
from testbed.faults import nodes, servers
from tests.e2e_cluster.pods import pod, start_pod

if TYPE_CHECKING:
    from collections.abc import Iterator

    from testbed.cluster import Cluster


@pytest.fixture
def bucket(cluster: Cluster) -> Iterator[str]:
    """A bucket, on a server that is well again after the test."""
    name = cluster.s3.make_bucket("faults")
    yield name
    cluster.s3.stop()
    cluster.s3.start()


def client(cluster: Cluster, endpoint: str | None = None) -> Any:
    impatient = Config(connect_timeout=2, read_timeout=2, retries={"total_max_attempts": 1})
    return boto3.client(
        "s3",
        endpoint_url=endpoint or cluster.s3.endpoint,
        aws_access_key_id=cluster.s3.access_key,
        aws_secret_access_key=cluster.s3.secret_key,
        region_name="us-east-1",
        config=impatient,
    )


def test_objects_survive_a_server_that_was_away(cluster: Cluster, bucket: str) -> None:
    client(cluster).put_object(Bucket=bucket, Key="kept", Body=b"1")
    servers.stop_s3(cluster)
    with pytest.raises(EndpointConnectionError):
        client(cluster).get_object(Bucket=bucket, Key="kept")
    servers.start_s3(cluster)
    assert client(cluster).get_object(Bucket=bucket, Key="kept")["Body"].read() == b"1"


def test_a_frozen_server_does_not_answer(cluster: Cluster, bucket: str) -> None:
    servers.freeze_s3(cluster)
    with pytest.raises(ReadTimeoutError):
        client(cluster).list_objects_v2(Bucket=bucket)
    servers.thaw_s3(cluster)
    client(cluster).list_objects_v2(Bucket=bucket)


def test_rejected_keys_are_refused_as_aws_does(cluster: Cluster, bucket: str) -> None:
    servers.reject_s3_keys(cluster)
    with pytest.raises(ClientError, match="SignatureDoesNotMatch"):
        client(cluster).list_objects_v2(Bucket=bucket)
    servers.accept_s3_keys(cluster)
    client(cluster).list_objects_v2(Bucket=bucket)


def test_the_slow_way_to_the_server_takes_its_time(cluster: Cluster, bucket: str) -> None:
    with servers.slow_s3(cluster, delay=0.7) as proxy:
        started = time.monotonic()
        client(cluster, proxy.endpoint).list_objects_v2(Bucket=bucket)
        assert time.monotonic() - started > 0.7


def test_pods_run_on_while_the_api_server_is_away(cluster: Cluster) -> None:
    start_pod(cluster, "inside", "sleep", "infinity")
    servers.stop_api_server(cluster)
    with pytest.raises(ClusterBroken, match="refused"):
        cluster.kubectl("get", "pods")
    servers.start_api_server(cluster)
    for node in cluster.nodes:
        nodes.wait_until_ready(cluster, node.name)
    assert pod(cluster, "inside")["status"]["containerStatuses"][0]["restartCount"] == 0
