"""The operator's one Secret: a CA that agents trust, and the key that signs pods.

Layer: cluster. Invariants: the first replica creates it once; it is never replaced
while it is intact: running workers trust this CA and are recognized by this key. Serving
certificates are never stored. All are EC P-256, carry every extension that strict verifiers require
(Python 3.13 does by default), and are valid since a day ago, because nodes' clocks differ.
"""

from __future__ import annotations

import base64
import binascii
import ipaddress
import logging
import os
import secrets
import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from trainrun.contract.staged_parts import NodeCertificate
from trainrun.errors import TrainRunError
from trainrun_operator.kube.api import KubeApi, Object
from trainrun_operator.kube.errors import AlreadyExists, Conflict, NotFound
from trainrun_operator.worlds.kubernetes.names import MANAGED_BY, MANAGED_BY_LABEL

CA_LIFETIME = timedelta(days=20 * 365)
"""The CA is in the environment of running workers, so it must outlive all of them."""
SERVING_LIFETIME = timedelta(days=30)
BACKDATED = timedelta(days=1)

_NONE = {
    "digital_signature": False,
    "content_commitment": False,
    "key_encipherment": False,
    "data_encipherment": False,
    "key_agreement": False,
    "key_cert_sign": False,
    "crl_sign": False,
    "encipher_only": False,
    "decipher_only": False,
}
CERTIFICATE, KEY, SEAL = "ca.crt", "ca.key", "signing.key"
"""The keys of the Secret's data."""
REISSUE_AFTER = SERVING_LIFETIME / 2
SEAL_BYTES = 32

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyPair:
    """A certificate and its key, both PEM."""

    certificate: bytes
    key: bytes


def new_ca(*, common_name: str, now: datetime) -> KeyPair:
    """A self-signed CA."""
    return _signed(
        common_name,
        now=now,
        until=now + CA_LIFETIME,
        usage=("digital_signature", "key_cert_sign", "crl_sign"),
        constraints=x509.BasicConstraints(ca=True, path_length=0),
    )


def issue(ca: KeyPair, *, dns_names: Sequence[str], ips: Sequence[str], now: datetime) -> KeyPair:
    """A certificate for a server with these names. Raises ValueError if the CA is not ours."""
    ca_certificate = x509.load_pem_x509_certificate(ca.certificate)
    ca_key = serialization.load_pem_private_key(ca.key, password=None)
    if not isinstance(ca_key, ec.EllipticCurvePrivateKey):
        raise ValueError("the key of the CA is not an EC key")
    if ca_key.public_key() != ca_certificate.public_key():
        raise ValueError("the key of the CA does not belong to its certificate")
    names: list[x509.GeneralName] = [x509.DNSName(name) for name in dns_names]
    names += [x509.IPAddress(ipaddress.ip_address(ip)) for ip in ips]
    return _signed(
        "trainrun-operator",
        x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]),
        x509.SubjectAlternativeName(names),
        by=(ca_certificate.subject, ca_key),
        now=now,
        until=now + SERVING_LIFETIME,
        usage=("digital_signature",),
        constraints=x509.BasicConstraints(ca=False, path_length=None),
    )


def valid_until(certificate: bytes) -> datetime:
    """When a PEM certificate expires, in UTC. Raises ValueError if it is not a certificate."""
    return x509.load_pem_x509_certificate(certificate).not_valid_after_utc


def utc_now() -> datetime:
    """The current time, for certificates."""
    return datetime.now(UTC)


def _signed(
    common_name: str,
    *more: x509.ExtensionType,
    by: tuple[x509.Name, ec.EllipticCurvePrivateKey] | None = None,
    now: datetime,
    until: datetime,
    usage: Sequence[str],
    constraints: x509.BasicConstraints,
) -> KeyPair:
    """A new key with its certificate; `by` is the signer's name and key, None: self-signed."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
    issuer, signer = by or (name, key)
    authority = x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key())
    usages = x509.KeyUsage(**{**_NONE, **dict.fromkeys(usage, True)})
    builder = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACKDATED)
        .not_valid_after(until)
        .add_extension(constraints, critical=True)
        .add_extension(usages, critical=True)
    )
    own = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    for extension in (own, authority, *more):
        builder = builder.add_extension(extension, critical=False)
    return KeyPair(
        certificate=builder.sign(signer, hashes.SHA256()).public_bytes(serialization.Encoding.PEM),
        key=key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        ),
    )


class AuthorityBroken(TrainRunError):
    """The Secret holds unusable data; the message says what to do."""


class Authority:
    """The CA and the key from the Secret."""

    def __init__(
        self, pair: KeyPair, signing_key: bytes, *, now: Callable[[], datetime] = utc_now
    ) -> None:
        """`now` in UTC. Raises ValueError if the pair is not a valid CA, or has expired."""
        issue(pair, dns_names=["localhost"], ips=[], now=now())
        if valid_until(pair.certificate) <= now():
            raise ValueError(f"the CA was valid until {valid_until(pair.certificate)}")
        self._pair = pair
        self._now = now
        self._nodes: dict[str, tuple[datetime, NodeCertificate]] = {}
        """Those of runs, with the time of issue."""
        self.signing_key = signing_key
        self.ca_pem = pair.certificate.decode()

    @classmethod
    async def open(cls, api: KubeApi, *, namespace: str, name: str = "trainrun-ca") -> Authority:
        """Read the Secret; create it if it is missing. Raises KubeError, AuthorityBroken."""
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
            _log.info("created a CA for the agents in secret %s/%s", namespace, name)
            return _read(made)

    def server_context(self, dns_names: Sequence[str], ips: Sequence[str]) -> ssl.SSLContext:
        """TLS for a server with these names; its certificate renews itself."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        issued = self._issue_into(context, dns_names, ips)

        def look_at_age(
            _socket: ssl.SSLObject | ssl.SSLSocket, _name: str | None, _context: ssl.SSLContext
        ) -> None:
            nonlocal issued
            # Later connections get the new one; the old one is still valid for this connection.
            if not issued <= self._now() < issued + REISSUE_AFTER:
                issued = self._issue_into(context, dns_names, ips)

        # Called in every handshake, so renewal needs no task.
        context.sni_callback = look_at_age
        return context

    def node_certificate(self, run_uid: str) -> NodeCertificate:
        """With what the agents of a run serve each other on other nodes. Renewed after 15 days;
        agents then get the new one, and trust any that the CA has signed for their run."""
        now = self._now()
        issued, certificate = self._nodes.get(run_uid, (now - SERVING_LIFETIME, None))
        if certificate is None or not issued <= now < issued + REISSUE_AFTER:
            name = f"{run_uid}.workers.trainrun.dev"
            pair = issue(self._pair, dns_names=[name], ips=[], now=now)
            certificate = NodeCertificate(
                name=name, certificate=pair.certificate.decode(), key=pair.key.decode()
            )
            fresh = {u: it for u, it in self._nodes.items() if now < it[0] + REISSUE_AFTER}
            self._nodes = {**fresh, run_uid: (now, certificate)}
        return certificate

    def _issue_into(
        self, context: ssl.SSLContext, dns_names: Sequence[str], ips: Sequence[str]
    ) -> datetime:
        now = self._now()
        pair = issue(self._pair, dns_names=dns_names, ips=ips, now=now)
        # OpenSSL only reads files, and the operator's file system is read-only: use one in memory.
        descriptor = os.memfd_create("serving-certificate")
        try:
            with os.fdopen(descriptor, "wb", closefd=False) as file:
                file.write(pair.certificate + pair.key)
            context.load_cert_chain(f"/proc/self/fd/{descriptor}")
        finally:
            os.close(descriptor)
        return now


async def _make(api: KubeApi, path: str, name: str, empty: Object | None) -> Object:
    """Create the Secret, or fill an empty one that a user created in advance."""
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
            f"secret {metadata['namespace']}/{metadata['name']} cannot be used: {what}. Restore "
            "it, or delete it: the operator then creates a new one and replaces all workers"
        ) from error
