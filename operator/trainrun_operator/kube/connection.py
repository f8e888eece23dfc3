"""The API server's address, and our credentials.

Layer: kube; the one module that imports the client library. Invariant: credentials are
read again, so a rotated service account token never ends the operator.
"""

from __future__ import annotations

import os
import socket
from pathlib import Path

import aiohttp
from kubernetes.aio.client.configuration import Configuration
from kubernetes.aio.client.rest import RESTClientObject
from kubernetes.aio.config.config_exception import ConfigException
from kubernetes.aio.config.incluster_config import (
    SERVICE_HOST_ENV_NAME,
    load_incluster_config,
)
from kubernetes.aio.config.kube_config import list_kube_config_contexts, load_kube_config

from trainrun_operator.kube.errors import NoCluster

CONNECTIONS = 200
"""Watches (one for pods and one for runs per namespace, unless all are watched), writes, reads."""


class Transport(RESTClientObject):  # type: ignore[misc]  # the library is not typed
    """HTTP over connections that notice within half a minute when the server lost power.

    A watch can be silent for a long time; without probes it would wait for a dead server.
    """

    def _create_connector(self) -> aiohttp.TCPConnector:
        return aiohttp.TCPConnector(
            limit=CONNECTIONS, ssl=self.ssl_context, socket_factory=_probed_socket
        )


def _probed_socket(address: aiohttp.AddrInfoType) -> socket.socket:
    family, kind, protocol, _, _ = address
    made = socket.socket(family=family, type=kind, proto=protocol)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    # Seconds: probe after 10 of silence, then every 5; three unanswered probes end it ...
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 10)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 5)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3)
    # ... and so do 25 seconds (here in milliseconds) without an acknowledgement of sent data.
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 25_000)
    return made


async def load_configuration() -> Configuration:
    """KUBECONFIG if it is set, else the cluster whose pod we are in, else ~/.kube/config.

    Raises NoCluster.
    """
    configuration = Configuration()
    # The environment's proxies are for the internet; a cluster's proxy is in its kubeconfig.
    # Looking for them (and for a .netrc) would cost a thread per request.
    configuration.client_session_kwargs = {"trust_env": False}
    # Python 3.13 refuses certificates without key identifiers; many clusters' CAs lack them.
    configuration.disable_strict_ssl_verification = True
    try:
        if "KUBECONFIG" not in os.environ and SERVICE_HOST_ENV_NAME in os.environ:
            load_incluster_config(configuration)
        else:
            await load_kube_config(
                config_file=_kubeconfig(), client_configuration=configuration, persist_config=False
            )
    except (ConfigException, OSError) as error:
        raise NoCluster(
            f"no cluster: {error}; run inside a cluster, or set KUBECONFIG to a file that names one"
        ) from error
    return configuration


def _kubeconfig() -> str:
    """The path, or several separated by colons. Raises FileNotFoundError if none exists: the
    client library would warn of each and then report an invalid file."""
    paths = os.environ.get("KUBECONFIG") or str(Path.home() / ".kube" / "config")
    if not any(Path(path).exists() for path in paths.split(os.pathsep)):
        raise FileNotFoundError(f"{paths} does not exist")
    return paths


def usual_namespace() -> str:
    """The namespace of the kubeconfig's current context, as for kubectl; else `default`."""
    try:
        _, current = list_kube_config_contexts(config_file=_kubeconfig())
    except (ConfigException, OSError):
        return "default"
    return str(current["context"].get("namespace") or "default")


async def reload_token(configuration: Configuration) -> bool:
    """Read the credentials again; returns whether the token changed."""
    before = configuration.api_key.get("BearerToken")
    try:
        fresh = await load_configuration()
    except NoCluster:
        return False
    configuration.api_key = fresh.api_key
    configuration.refresh_api_key_hook = fresh.refresh_api_key_hook
    return bool(fresh.api_key.get("BearerToken") != before)


async def bearer(configuration: Configuration) -> str | None:
    """The value of the Authorization header; None: we use a client certificate.

    In a cluster the token file is read once a minute. Raises OSError while it is missing.
    """
    try:
        token: str | None = await configuration.get_api_key_with_prefix("BearerToken")
    except ConfigException as error:
        raise OSError(str(error)) from error
    return token and token.strip()
