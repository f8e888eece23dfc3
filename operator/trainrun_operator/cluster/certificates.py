"""Certificates: a small CA of our own, and what it issues.

Layer: cluster; no network. EC P-256 throughout. They carry every extension that strict
verifiers ask for (Python 3.13 does by default), and are valid from a day ago on, since nodes'
clocks differ.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

CA_LIFETIME = timedelta(days=20 * 365)
"""It stands in the environment of running workers: it has to outlive all of them."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyPair:
    """A certificate and its key, both PEM."""

    certificate: bytes
    key: bytes


def new_ca(*, common_name: str, now: datetime) -> KeyPair:
    """A CA that signs itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
    usage = {**_NONE, "digital_signature": True, "key_cert_sign": True, "crl_sign": True}
    certificate = (
        _builder(name, key.public_key(), issuer=name, now=now, lifetime=CA_LIFETIME)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(x509.KeyUsage(**usage), critical=True)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key()), critical=False
        )
        .sign(key, hashes.SHA256())
    )
    return _pair(certificate, key)


def issue(ca: KeyPair, *, dns_names: Sequence[str], ips: Sequence[str], now: datetime) -> KeyPair:
    """A certificate for a server of these names. Raises ValueError if the CA is no CA of ours."""
    ca_certificate = x509.load_pem_x509_certificate(ca.certificate)
    ca_key = serialization.load_pem_private_key(ca.key, password=None)
    if not isinstance(ca_key, ec.EllipticCurvePrivateKey):
        raise ValueError("the key of the CA is no EC key")
    if ca_key.public_key() != ca_certificate.public_key():
        raise ValueError("the key of the CA does not belong to its certificate")
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "trainrun-operator")])
    names: list[x509.GeneralName] = [x509.DNSName(name) for name in dns_names]
    names += [x509.IPAddress(ipaddress.ip_address(ip)) for ip in ips]
    certificate = (
        _builder(
            name,
            key.public_key(),
            issuer=ca_certificate.subject,
            now=now,
            lifetime=SERVING_LIFETIME,
        )
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.KeyUsage(**{**_NONE, "digital_signature": True}), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key()),
            critical=False,
        )
        .sign(ca_key, hashes.SHA256())
    )
    return _pair(certificate, key)


def valid_until(certificate: bytes) -> datetime:
    """When a PEM certificate ends, in UTC. Raises ValueError if it is none."""
    return x509.load_pem_x509_certificate(certificate).not_valid_after_utc


def utc_now() -> datetime:
    """The time, for certificates."""
    return datetime.now(UTC)


def _builder(
    subject: x509.Name,
    public_key: ec.EllipticCurvePublicKey,
    *,
    issuer: x509.Name,
    now: datetime,
    lifetime: timedelta,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACKDATED)
        .not_valid_after(now + lifetime)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public_key), critical=False)
    )


def _pair(certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> KeyPair:
    return KeyPair(
        certificate=certificate.public_bytes(serialization.Encoding.PEM),
        key=key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        ),
    )
