"""What a cluster offers once `up` has returned."""

from __future__ import annotations

import json
import time
import urllib.request
from typing import TYPE_CHECKING

import boto3
import pytest
from botocore.config import Config

from testbed.embedded import Embedded
from testbed.readiness import GPU
from tests.e2e_cluster.pods import SERVE, condition, pod, run_in, start_pod
from tests.support.eventually import eventually

if TYPE_CHECKING:
    from testbed.cluster import Cluster

FETCH = "import urllib.request as u; print(u.urlopen({url!r}, timeout=5).read().decode())"


def test_three_nodes_are_ready_and_offer_eight_gpus_each(cluster: Cluster) -> None:
    # kind has a fourth, for the control plane.
    workers = "/api/v1/nodes?labelSelector=!node-role.kubernetes.io/control-plane"
    nodes = cluster.api.get(workers)["items"]
    assert [node["metadata"]["name"] for node in nodes] == [node.name for node in cluster.nodes]
    assert [node["status"]["allocatable"][GPU] for node in nodes] == ["8", "8", "8"]
    ready = [each for node in nodes for each in node["status"]["conditions"]]
    assert [each["status"] for each in ready if each["type"] == "Ready"] == ["True"] * 3


def test_pods_on_all_nodes_reach_each_other_and_a_service_by_its_name(cluster: Cluster) -> None:
    names = [f"web-{node.name}" for node in cluster.nodes]
    for name, node in zip(names, cluster.nodes, strict=True):
        start_pod(cluster, name, *SERVE, node=node.name, labels={"app": "web"}, wait=False)
    cluster.kubectl("wait", "--for=condition=Ready", "pod", "-l", "app=web", "--timeout=60s")
    cluster.kubectl("create", "service", "clusterip", "web", "--tcp=80:8080")
    cluster.kubectl("label", "service", "web", "test=yes")
    addresses = [pod(cluster, name)["status"]["podIP"] for name in names]
    for name in names:
        for address in addresses:
            assert "Directory listing" in run_in(
                cluster, name, FETCH.format(url=f"http://{address}:8080/")
            )
    lookup = "import socket; print(socket.gethostbyname('web.default.svc'))"
    service = cluster.api.get("/api/v1/namespaces/default/services/web")["spec"]["clusterIP"]
    assert run_in(cluster, names[0], lookup) == service
    # kube-proxy follows a second behind.
    retrying = """
import time, urllib.request as u
for _ in range(50):
    try:
        print(u.urlopen("http://web/", timeout=5).status); break
    except OSError: time.sleep(0.1)
"""
    assert run_in(cluster, names[0], retrying) == "200"


def test_the_pods_of_a_node_are_reached_from_this_machine(cluster: Cluster) -> None:
    if not isinstance(cluster.provider, Embedded):
        pytest.skip("this machine has no way to the pods of kind, as on any cluster")
    start_pod(cluster, "web", *SERVE)
    address = pod(cluster, "web")["status"]["podIP"]
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def answers() -> bool:
        try:
            with opener.open(f"http://{address}:8080/", timeout=2) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    eventually(answers, timeout=20)


def test_a_pod_that_wants_more_gpus_than_are_left_waits(cluster: Cluster) -> None:
    for number in range(3):
        start_pod(cluster, f"gang-{number}", "sleep", "infinity", limits={GPU: "8"}, wait=False)
    cluster.kubectl("wait", "--for=condition=Ready", "pod", "-l", "test=yes", "--timeout=60s")
    start_pod(cluster, "gang-3", "sleep", "infinity", limits={GPU: "1"}, wait=False)
    eventually(lambda: condition(cluster, "gang-3", "PodScheduled"))
    scheduled = condition(cluster, "gang-3", "PodScheduled")
    assert scheduled["reason"] == "Unschedulable"
    assert f"3 Insufficient {GPU}" in scheduled["message"]


def test_a_pod_reads_from_the_s3_server_what_this_machine_has_put_there(cluster: Cluster) -> None:
    bucket = cluster.s3.make_bucket("shared")
    client = boto3.client(
        "s3",
        endpoint_url=cluster.s3.endpoint,
        aws_access_key_id=cluster.s3.access_key,
        aws_secret_access_key=cluster.s3.secret_key,
        region_name="us-east-1",
        config=Config(signature_version="s3v4"),
    )
    client.put_object(Bucket=bucket, Key="greeting", Body=b"hello from outside")
    where = {"Bucket": bucket, "Key": "greeting"}
    url = client.generate_presigned_url("get_object", Params=where)
    start_pod(cluster, "reader", "sleep", "infinity")
    assert run_in(cluster, "reader", FETCH.format(url=url)) == "hello from outside"


def test_the_audit_log_tells_who_asked_for_what(cluster: Cluster) -> None:
    cluster.kubectl("get", "configmaps", "-n", "kube-public")

    def logged() -> bool:
        return any(
            entry["verb"] == "list"
            and entry["user"]["username"] in {"admin", "kubernetes-admin"}
            and entry["objectRef"].get("resource") == "configmaps"
            and entry["objectRef"].get("namespace") == "kube-public"
            for entry in map(json.loads, cluster.audit_log.read_text().splitlines())
            if "objectRef" in entry
        )

    eventually(logged)


def test_up_on_a_running_cluster_leaves_it_as_it_is(cluster: Cluster) -> None:
    start_pod(cluster, "stays", "sleep", "infinity")
    before = pod(cluster, "stays")["metadata"]["uid"]
    started = time.monotonic()
    cluster.up()
    assert time.monotonic() - started < 5
    assert pod(cluster, "stays")["metadata"]["uid"] == before
