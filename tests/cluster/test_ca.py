"""The Secret of the operator, and the TLS that it makes possible."""

from __future__ import annotations

import asyncio
import base64
import ssl
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from tests.kube.patching import patch
from trainrun_operator.cluster.ca import (
    CA_LIFETIME,
    SERVING_LIFETIME,
    Authority,
    AuthorityBroken,
    new_ca,
    valid_until,
)

if TYPE_CHECKING:
    from pathlib import Path

    from trainrun_operator.kube.api import KubeApi

HOST = "trainrun-agents.trainrun.svc"


def secret(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/secrets/trainrun-ca"


async def handshake(server: ssl.SSLContext, ca_pem: str, name: str = HOST) -> dict[str, Any]:
    """What a client that verifies strictly is shown."""
    client = ssl.create_default_context(cadata=ca_pem)
    # The default from Python 3.13 on.
    client.verify_flags |= ssl.VERIFY_X509_STRICT | ssl.VERIFY_X509_PARTIAL_CHAIN

    async def close(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    listening = await asyncio.start_server(close, "127.0.0.1", 0, ssl=server)
    port = listening.sockets[0].getsockname()[1]
    try:
        _, writer = await asyncio.open_connection(
            "127.0.0.1", port, ssl=client, server_hostname=name
        )
        shown: dict[str, Any] = writer.get_extra_info("peercert")
        writer.close()
        await writer.wait_closed()
    finally:
        listening.close()
        await listening.wait_closed()
    return shown


async def test_the_first_operator_makes_a_ca_and_the_next_one_finds_it(
    api: KubeApi, namespace: str
) -> None:
    first = await Authority.open(api, namespace=namespace)
    second = await Authority.open(api, namespace=namespace)

    assert first.ca_pem == second.ca_pem
    assert first.signing_key == second.signing_key
    assert len(first.signing_key) == 32
    stored = await api.get(secret(namespace))
    assert set(stored["data"]) == {"ca.crt", "ca.key", "signing.key"}
    assert stored["metadata"]["labels"] == {"app.kubernetes.io/managed-by": "trainrun"}


def look_together(api: KubeApi, monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    """Nobody goes on before everybody has seen what there is."""
    everybody, looks, real = asyncio.Barrier(count), iter(range(1000)), api.get

    async def get(path: str) -> dict[str, Any]:
        first = next(looks) < count
        try:
            return await real(path)
        finally:
            if first:
                await everybody.wait()

    monkeypatch.setattr(api, "get", get)


@pytest.mark.parametrize("in_advance", [False, True])
async def test_operators_that_start_together_agree(
    api: KubeApi, namespace: str, monkeypatch: pytest.MonkeyPatch, in_advance: bool
) -> None:
    if in_advance:
        path = f"/api/v1/namespaces/{namespace}/secrets"
        await api.post(path, {"metadata": {"name": "trainrun-ca"}})
    look_together(api, monkeypatch, 5)

    found = await asyncio.gather(*(Authority.open(api, namespace=namespace) for _ in range(5)))

    assert len({authority.ca_pem for authority in found}) == 1
    assert len({authority.signing_key for authority in found}) == 1


async def test_a_secret_that_was_made_in_advance_is_filled(api: KubeApi, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/secrets"
    await api.post(path, {"metadata": {"name": "trainrun-ca", "labels": {"a": "b"}}})

    opened = await Authority.open(api, namespace=namespace)

    assert (await Authority.open(api, namespace=namespace)).ca_pem == opened.ca_pem
    assert (await api.get(secret(namespace)))["metadata"]["labels"] == {"a": "b"}


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"signing.key": None}, "'signing.key' is missing"),
        ({"signing.key": "AAAA"}, "signing.key is shorter than 32 bytes"),
        ({"ca.crt": "AAAA"}, "Unable to load PEM file"),
    ],
)
async def test_a_secret_that_is_damaged_is_not_replaced_but_complained_about(
    api: KubeApi, namespace: str, change: dict[str, str | None], complaint: str
) -> None:
    await Authority.open(api, namespace=namespace)
    await patch(api, secret(namespace), {"data": change})

    with pytest.raises(AuthorityBroken, match=f"{namespace}/trainrun-ca cannot be used: .*") as e:
        await Authority.open(api, namespace=namespace)
    assert complaint in str(e.value)
    assert "Restore it, or delete it" in str(e.value)


async def test_a_key_of_another_ca_is_noticed(api: KubeApi, namespace: str) -> None:
    await Authority.open(api, namespace=namespace)
    other = new_ca(common_name="other", now=datetime.now(UTC))
    key = base64.b64encode(other.key).decode()
    await patch(api, secret(namespace), {"data": {"ca.key": key}})

    with pytest.raises(AuthorityBroken, match="does not belong to its certificate"):
        await Authority.open(api, namespace=namespace)


def authority(*, made: datetime | None = None, **more: Any) -> Authority:
    pair = new_ca(common_name="test", now=made or datetime.now(UTC))
    return Authority(pair, b"k" * 32, **more)


async def test_a_client_that_verifies_strictly_trusts_the_server() -> None:
    ours = authority()

    shown = await handshake(ours.server_context([HOST], ["10.0.0.7"]), ours.ca_pem)

    assert ("DNS", HOST) in shown["subjectAltName"]
    assert ("IP Address", "10.0.0.7") in shown["subjectAltName"]


async def test_a_client_refuses_another_name_and_another_ca() -> None:
    ours, other = authority(), authority()
    server = ours.server_context([HOST], [])

    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        await handshake(server, ours.ca_pem, name="elsewhere.svc")
    with pytest.raises(ssl.SSLCertVerificationError):
        await handshake(server, other.ca_pem)


async def test_a_serving_certificate_is_issued_again_before_it_ends() -> None:
    # In the past, since the client goes by the real time.
    now = datetime.now(UTC) - SERVING_LIFETIME * 0.6
    ours = authority(made=now, now=lambda: now)
    server = ours.server_context([HOST], [])
    first = await handshake(server, ours.ca_pem)
    same = await handshake(server, ours.ca_pem)

    now += SERVING_LIFETIME / 2
    await handshake(server, ours.ca_pem)
    renewed = await handshake(server, ours.ca_pem)

    assert first["serialNumber"] == same["serialNumber"] != renewed["serialNumber"]
    until = datetime.strptime(renewed["notAfter"], "%b %d %H:%M:%S %Y GMT").replace(tzinfo=UTC)
    assert until > now + SERVING_LIFETIME - timedelta(days=1)


def test_a_ca_that_has_ended_is_refused() -> None:
    with pytest.raises(ValueError, match="the CA was valid until"):
        authority(made=datetime.now(UTC) - CA_LIFETIME - timedelta(days=1))


def test_a_ca_outlives_the_workers_that_trust_it() -> None:
    assert valid_until(authority().ca_pem.encode()) > datetime.now(UTC) + timedelta(days=19 * 365)


async def test_agents_of_a_run_trust_each_other_and_nobody_else(tmp_path: Path) -> None:
    now = [datetime.now(UTC)]
    pair = new_ca(common_name="agents", now=now[0])
    authority = Authority(pair, b"s" * 32, now=lambda: now[0])
    first = authority.node_certificate("uid-1")
    assert authority.node_certificate("uid-1") is first
    assert authority.node_certificate("uid-2").name == "uid-2.workers.trainrun.dev"

    file = tmp_path / "node.pem"
    file.write_text(first.certificate + first.key)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(file)
    await handshake(server, authority.ca_pem, "uid-1.workers.trainrun.dev")
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        await handshake(server, authority.ca_pem, "uid-2.workers.trainrun.dev")

    now[0] += SERVING_LIFETIME / 2
    renewed = authority.node_certificate("uid-1")
    assert valid_until(renewed.certificate.encode()) > valid_until(first.certificate.encode())
