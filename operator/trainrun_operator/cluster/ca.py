"""The one Secret of the operator: a CA that agents trust, and the key that seals pods.

Layer: cluster. Invariants: it is made once, whoever starts first, and never replaced
while it is whole: workers that run trust this CA and are known by this key. Serving certificates
are never stored.
"""

from __future__ import annotations

import base64
import binascii
import logging
import os
import secrets
import ssl
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

from trainrun.errors import TrainRunError
from trainrun_operator.cluster.certificates import (
    SERVING_LIFETIME,
    KeyPair,
    issue,
    new_ca,
    utc_now,
    valid_until,
)
from trainrun_operator.kube.api import KubeApi, Object
from trainrun_operator.kube.errors import AlreadyExists, Conflict, NotFound
from trainrun_operator.worlds.kubernetes.names import MANAGED_BY, MANAGED_BY_LABEL

CERTIFICATE, KEY, SEAL = "ca.crt", "ca.key", "seal.key"
"""What the Secret holds."""

REISSUE_AFTER = SERVING_LIFETIME / 2

SEAL_BYTES = 32

_log = logging.getLogger(__name__)


class AuthorityBroken(TrainRunError):
    """The Secret holds something that we cannot work with; the message says what to do."""


class Authority:
    """The CA and the key, as they stand in the Secret."""

    def __init__(
        self, pair: KeyPair, seal_key: bytes, *, now: Callable[[], datetime] = utc_now
    ) -> None:
        """`now` in UTC. Raises ValueError if the pair is no CA that is still valid."""
        issue(pair, dns_names=["localhost"], ips=[], now=now())
        if valid_until(pair.certificate) <= now():
            raise ValueError(f"the CA was valid until {valid_until(pair.certificate)}")
        self._pair = pair
        self._now = now
        self.seal_key = seal_key
        self.ca_pem = pair.certificate.decode()

    @classmethod
    async def open(cls, api: KubeApi, *, namespace: str, name: str = "trainrun-ca") -> Authority:
        """Read the Secret; make it if it is not there. Raises KubeError, AuthorityBroken."""
        path = f"/api/v1/namespaces/{namespace}/secrets"
        while True:
            try:
                there = await api.get(f"{path}/{name}")
            except NotFound:
                there = None
            if there is not None and there.get("data"):
                return _read(there)
            try:
                made = await _make(api, path, name, there)
            except (AlreadyExists, Conflict):
                continue  # another replica was faster
            _log.info("made a CA for the agents in secret %s/%s", namespace, name)
            return _read(made)

    def server_context(self, dns_names: Sequence[str], ips: Sequence[str]) -> ssl.SSLContext:
        """TLS for a server of these names; its certificate renews itself for ever."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        issued = self._issue_into(context, dns_names, ips)

        def look_at_age(
            _socket: ssl.SSLObject | ssl.SSLSocket, _name: str | None, _context: ssl.SSLContext
        ) -> None:
            nonlocal issued
            # Connections that come later get the new one; the old one is still good for this one.
            if not issued <= self._now() < issued + REISSUE_AFTER:
                issued = self._issue_into(context, dns_names, ips)

        # Called in every handshake: no task of its own has to be kept alive for it.
        context.sni_callback = look_at_age
        return context

    def _issue_into(
        self, context: ssl.SSLContext, dns_names: Sequence[str], ips: Sequence[str]
    ) -> datetime:
        now = self._now()
        pair = issue(self._pair, dns_names=dns_names, ips=ips, now=now)
        # OpenSSL takes files only, and the operator's file system is read-only: a file in memory.
        descriptor = os.memfd_create("serving-certificate")
        try:
            with os.fdopen(descriptor, "wb", closefd=False) as file:
                file.write(pair.certificate + pair.key)
            context.load_cert_chain(f"/proc/self/fd/{descriptor}")
        finally:
            os.close(descriptor)
        return now


async def _make(api: KubeApi, path: str, name: str, empty: Object | None) -> Object:
    """Create the Secret, or fill one that somebody made in advance."""
    pair = new_ca(common_name="TrainRun agents", now=utc_now())
    data = {CERTIFICATE: pair.certificate, KEY: pair.key, SEAL: secrets.token_bytes(SEAL_BYTES)}
    encoded = {key: base64.b64encode(value).decode() for key, value in data.items()}
    if empty is not None:
        return await api.put(f"{path}/{name}", {**empty, "data": encoded})
    return await api.post(
        path,
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": name, "labels": {MANAGED_BY_LABEL: MANAGED_BY}},
            "type": "Opaque",
            "data": encoded,
        },
    )


def _read(secret: Object) -> Authority:
    metadata: dict[str, Any] = secret["metadata"]
    try:
        data = {
            key: base64.b64decode(secret["data"][key], validate=True)
            for key in (CERTIFICATE, KEY, SEAL)
        }
        if len(data[SEAL]) < SEAL_BYTES:
            raise ValueError(f"{SEAL} is shorter than {SEAL_BYTES} bytes")
        return Authority(KeyPair(certificate=data[CERTIFICATE], key=data[KEY]), data[SEAL])
    except (ValueError, TypeError, KeyError, binascii.Error) as error:
        what = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        raise AuthorityBroken(
            f"secret {metadata['namespace']}/{metadata['name']} cannot be used: {what}; restore "
            "it, or delete it: then a new one is made, and the workers of all runs are replaced"
        ) from error
