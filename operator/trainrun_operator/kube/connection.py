"""Where the API server is, and who we are to it.

Layer: kube; the one module that imports the client library. Invariant: credentials are
read anew, so a rotated service account token never ends the operator.
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
"""Watches (one for pods and one for runs per namespace, if not of all), writes, and reads."""


class Transport(RESTClientObject):  # type: ignore[misc]  # the library is not typed
    """HTTP over connections that notice within half a minute when the other side lost power.

    A watch is silent for long; without probes it would wait for a server that is gone.
    """

    def _create_connector(self) -> aiohttp.TCPConnector:
        return aiohttp.TCPConnector(
            limit=CONNECTIONS, ssl=self.ssl_context, socket_factory=_probed_socket
        )


def _probed_socket(address: aiohttp.AddrInfoType) -> socket.socket:
    family, kind, protocol, _, _ = address
    made = socket.socket(family=family, type=kind, proto=protocol)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    # Seconds: probes after 10 of silence, every 5, three unanswered ones are the end...
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 10)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 5)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3)
    # ... and so are 25 in which something that we sent was not acknowledged (milliseconds).
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 25_000)
    return made


async def load_configuration() -> Configuration:
    """KUBECONFIG if it is set, else the cluster whose pod we are in, else ~/.kube/config.

    Raises NoCluster.
    """
    configuration = Configuration()
    # Proxies of the environment are for the internet; a proxy for the cluster stands in its
    # kubeconfig. Looking for them (and for a .netrc) would cost a thread per request.
    configuration.client_session_kwargs = {"trust_env": False}
    # Python 3.13 refuses certificates without key identifiers, which many a cluster's CA lacks.
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
            f"no cluster: {error}; run inside of one, or set KUBECONFIG to a file that names one"
        ) from error
    return configuration


def _kubeconfig() -> str:
    """The path, or several with colons between them. Raises FileNotFoundError where none is there:
    the client library warns of each, and then speaks of a file that is not valid."""
    paths = os.environ.get("KUBECONFIG") or str(Path.home() / ".kube" / "config")
    if not any(Path(path).exists() for path in paths.split(os.pathsep)):
        raise FileNotFoundError(f"{paths} does not exist")
    return paths


def usual_namespace() -> str:
    """That of the kubeconfig's current context, as kubectl takes it; `default` where none says."""
    try:
        _, current = list_kube_config_contexts(config_file=_kubeconfig())
    except (ConfigException, OSError):
        return "default"
    return str(current["context"].get("namespace") or "default")


async def reload_token(configuration: Configuration) -> bool:
    """Read the credentials again; says whether the token is another one now."""
    before = configuration.api_key.get("BearerToken")
    try:
        fresh = await load_configuration()
    except NoCluster:
        return False
    configuration.api_key = fresh.api_key
    configuration.refresh_api_key_hook = fresh.refresh_api_key_hook
    return bool(fresh.api_key.get("BearerToken") != before)


async def bearer(configuration: Configuration) -> str | None:
    """The value of the Authorization header; None: we are known by a client certificate.

    In a cluster the token file is read again once a minute. Raises OSError while it is missing.
    """
    try:
        token: str | None = await configuration.get_api_key_with_prefix("BearerToken")
    except ConfigException as error:
        raise OSError(str(error)) from error
    return token and token.strip()
