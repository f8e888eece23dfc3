"""Certificates for servers on loopback, signed by an authority that is made for the test."""

from __future__ import annotations

import datetime
import ipaddress
import ssl
from dataclasses import dataclass, field
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
)
from cryptography.x509.oid import NameOID

from trainrun.contract.staged_parts import NodeCertificate


@dataclass
class TestAuthority:
    """Signs server certificates; `pem` is what clients trust."""

    __test__ = False
    name: str = "authority"
    key: ec.EllipticCurvePrivateKey = field(
        default_factory=lambda: ec.generate_private_key(ec.SECP256R1())
    )

    def __post_init__(self) -> None:
        usage = x509.KeyUsage(
            digital_signature=True, key_cert_sign=True, crl_sign=True, content_commitment=False,
            key_encipherment=False, data_encipherment=False, key_agreement=False,
            encipher_only=False, decipher_only=False,
        )  # fmt: skip
        self.certificate = (
            _builder(self.name, self.name, self.key.public_key(), self.key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(usage, critical=True)
            .sign(self.key, hashes.SHA256())
        )
        self.pem = self.certificate.public_bytes(Encoding.PEM).decode()

    def server(self, folder: Path, *, host: str = "127.0.0.1") -> ssl.SSLContext:
        """A server's side, with a certificate for `host` (an address or a name)."""
        file = folder / f"{self.name}-{host}.pem"
        file.write_bytes(b"".join(self._issue(host)))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(file)
        return context

    def node_certificate(self, name: str) -> NodeCertificate:
        """With which the agents of a run serve other nodes."""
        key, certificate = self._issue(name)
        return NodeCertificate(name=name, certificate=certificate.decode(), key=key.decode())

    def _issue(self, host: str) -> tuple[bytes, bytes]:
        """A key and its certificate, PEM."""
        key = ec.generate_private_key(ec.SECP256R1())
        try:
            name: x509.GeneralName = x509.IPAddress(ipaddress.ip_address(host))
        except ValueError:
            name = x509.DNSName(host)
        certificate = (
            _builder(host, self.name, key.public_key(), self.key.public_key())
            .add_extension(x509.SubjectAlternativeName([name]), critical=False)
            .sign(self.key, hashes.SHA256())
        )
        private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        return private, certificate.public_bytes(Encoding.PEM)


def _builder(
    subject: str,
    issuer: str,
    key: ec.EllipticCurvePublicKey,
    signer: ec.EllipticCurvePublicKey,
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, subject)]))
        .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, issuer)]))
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(hours=1))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer), critical=False)
    )
