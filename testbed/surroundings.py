"""What the examples name, in a cluster for people: a bucket, a Secret with its keys, a Service."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import yaml

if TYPE_CHECKING:
    from testbed.cluster import Cluster

BUCKET = "my-bucket"
SECRET = "s3-credentials"
SERVICE = "s3"
"""In the namespace `default`: `http://s3.default:9000` is the S3 server, wherever it runs."""
_PORT = 9000


def furnish(cluster: Cluster) -> None:
    """Make them, or bring them up to date."""
    cluster.s3.make_bucket(BUCKET)
    cluster.kubectl("apply", "--filename", "-", text=yaml.safe_dump_all(_objects(cluster)))


def _objects(cluster: Cluster) -> list[dict[str, Any]]:
    s3 = cluster.s3
    server = urlsplit(s3.endpoint)
    keys = {"AWS_ACCESS_KEY_ID": s3.access_key, "AWS_SECRET_ACCESS_KEY": s3.secret_key}
    return [
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": SECRET, "namespace": "default"},
            "stringData": keys,
        },
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": SERVICE, "namespace": "default"},
            # Without a selector: the server is no pod.
            "spec": {"ports": [{"name": "http", "port": _PORT, "targetPort": server.port}]},
        },
        {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {
                "name": SERVICE,
                "namespace": "default",
                "labels": {"kubernetes.io/service-name": SERVICE},
            },
            "addressType": "IPv4",
            "endpoints": [{"addresses": [server.hostname]}],
            "ports": [{"name": "http", "port": server.port}],
        },
    ]
