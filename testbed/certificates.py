"""A certificate authority and the certificates of a cluster, by openssl.

Python 3.13 and newer, in pods, verify strictly: the authority needs its key usages, and every
certificate the key identifiers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from testbed.shell import output

if TYPE_CHECKING:
    from pathlib import Path

    from testbed.addresses import Addresses

_DAYS = "3650"
_NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
_AUTHORITY = """
[req]
distinguished_name = name
[name]
[extensions]
basicConstraints = critical, CA:true
keyUsage = critical, keyCertSign, cRLSign, digitalSignature
subjectKeyIdentifier = hash
"""
_LEAF = """
[extensions]
basicConstraints = critical, CA:false
keyUsage = critical, digitalSignature
extendedKeyUsage = clientAuth, serverAuth
subjectKeyIdentifier = hash
authorityKeyIdentifier = keyid
"""


def identities(addresses: Addresses) -> dict[str, str]:
    """File name -> subject of every client of the API server."""
    return {
        "admin": "/O=system:masters/CN=admin",
        "controller-manager": "/CN=system:kube-controller-manager",
        "scheduler": "/CN=system:kube-scheduler",
        "proxy": "/CN=system:kube-proxy",
        **{
            node.name: f"/O=system:nodes/CN=system:node:{node.name}"
            for node in addresses.all_nodes()
        },
    }


def make_certificates(folder: Path, addresses: Addresses) -> None:
    """Write `ca`, `apiserver` and every client's `NAME.crt`/`NAME.key`, and `sa.key`/`sa.pub`."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "ca.cnf").write_text(_AUTHORITY)
    authority = ("-keyout", folder / "ca.key", "-out", folder / "ca.crt", "-days", _DAYS)
    settings = ("-config", folder / "ca.cnf", "-extensions", "extensions")
    output("openssl", "req", "-x509", *_NEW_KEY, "-subj", "/CN=trainrun-ca", *authority, *settings)
    names = ["kubernetes", "kubernetes.default", "kubernetes.default.svc", "localhost"]
    names.append("kubernetes.default.svc.cluster.local")
    alternatives = [f"DNS:{name}" for name in names]
    alternatives += [f"IP:{ip}" for ip in (addresses.host, addresses.api_service, "127.0.0.1")]
    _issue(folder, "apiserver", "/CN=kube-apiserver", alternatives)
    for name, subject in identities(addresses).items():
        _issue(folder, name, subject, [])
    output(
        "openssl", "ecparam", "-genkey", "-name", "prime256v1", "-noout", "-out", folder / "sa.key"
    )
    output("openssl", "ec", "-in", folder / "sa.key", "-pubout", "-out", folder / "sa.pub")


def _issue(folder: Path, name: str, subject: str, alternatives: list[str]) -> None:
    extensions = _LEAF
    if alternatives:
        extensions += f"subjectAltName = {', '.join(alternatives)}\n"
    (folder / f"{name}.cnf").write_text(extensions)
    request = folder / f"{name}.csr"
    names = ("-config", folder / "ca.cnf", "-subj", subject)
    output("openssl", "req", *_NEW_KEY, *names, "-keyout", folder / f"{name}.key", "-out", request)
    signer = ("-CA", folder / "ca.crt", "-CAkey", folder / "ca.key", "-CAcreateserial")
    ending = ("-days", _DAYS, "-extfile", folder / f"{name}.cnf", "-extensions", "extensions")
    output(
        "openssl", "x509", "-req", "-in", request, *signer, *ending, "-out", folder / f"{name}.crt"
    )
