"""What happens to the servers that everything leans on: the API server and object storage."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from testbed.tcp_proxy import tcp_proxy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from testbed.cluster import Cluster
    from testbed.tcp_proxy import TcpProxy


def stop_api_server(cluster: Cluster) -> None:
    """Kill the API server: connections break, and new ones are refused. What runs runs on.

    Nodes flap NotReady for a second after an outage longer than 5 s, the grace they are given.
    """
    cluster.provider.stop_api_server()


@contextlib.contextmanager
def about_to_stop_api_server(cluster: Cluster) -> Iterator[Callable[[], None]]:
    """Yield a function that kills it within milliseconds, to hit a moment."""
    with cluster.provider.about_to_stop_api_server() as stop:
        yield stop


def start_api_server(cluster: Cluster) -> None:
    """Start it again; return once it is ready."""
    cluster.provider.start_api_server()


def stop_s3(cluster: Cluster) -> None:
    """Kill the S3 server: connections are refused."""
    cluster.s3.stop()


def start_s3(cluster: Cluster) -> None:
    """Start it again with its data; return once it answers."""
    cluster.s3.start()


def freeze_s3(cluster: Cluster) -> None:
    """Let the S3 server hang: connections are taken, and nothing is answered."""
    cluster.s3.freeze()


def thaw_s3(cluster: Cluster) -> None:
    """Let it go on."""
    cluster.s3.thaw()


def reject_s3_keys(cluster: Cluster) -> None:
    """Change the server's secret: everybody's credentials are wrong (403)."""
    cluster.s3.change_secret("no longer the one that clients have")


def accept_s3_keys(cluster: Cluster) -> None:
    """Change it back."""
    cluster.s3.change_secret(cluster.s3.secret_key)


@contextlib.contextmanager
def slow_s3(cluster: Cluster, *, delay: float = 0.5) -> Iterator[TcpProxy]:
    """A second way to the S3 server, for pods too, that holds back each piece of an answer.

    Give its `endpoint` to the run that should suffer; `delay` (seconds) and the other faults of
    the proxy may be changed at any time. It ends with the block.
    """
    upstream = urlsplit(cluster.s3.endpoint)
    assert upstream.hostname is not None
    assert upstream.port is not None
    with tcp_proxy(
        upstream.port, upstream_host=upstream.hostname, host=cluster.provider.host_address
    ) as proxy:
        proxy.delay = delay
        yield proxy
