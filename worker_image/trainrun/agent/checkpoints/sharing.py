"""Serves checkpoint files to other workers: to those of this node, so the store is read once per
node, and by TLS to a buddy on another node, which copies what this worker has staged.

Layer: agent. A small HTTP/1.1 server: `GET /v1/checkpoints/<name>/<file>` (the name is that of
`FilesOnNode`: a checkpoint's, or one for initial weights) with our own identity as the bearer
token, which only agents of the run know. A missing file is downloaded on request; until it is
complete the answer is 202 with the bytes received, so that clients can distinguish a slow download
from a stalled one. Staged parts: see `STAGED_PATH`.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
import ssl
from collections.abc import Callable
from pathlib import Path
from urllib.parse import unquote

from trainrun.agent import background
from trainrun.agent.checkpoints.downloads import Downloads
from trainrun.agent.checkpoints.part_copying import list_part
from trainrun.agent.checkpoints.staged import Step
from trainrun.agent.exchange.http import RequestHead, answer_head, read_head
from trainrun.checkpoint.reader import check_file_name
from trainrun.contract import wire
from trainrun.contract.checkpoint_id import CheckpointId
from trainrun.contract.staged_parts import NodeCertificate
from trainrun.contract.wire import CHECKPOINTS_PATH, STAGED_PATH
from trainrun.errors import CheckpointDamaged, ObjectNotFound, TrainRunError

LOG = logging.getLogger("trainrun.agent")

HOLD = 2.0
"""Seconds that an answer waits for a file that is being downloaded."""
PIECE = 16 << 20
"""Bytes sent at a time."""
TLS_PIECE = 1 << 20
"""The same by TLS, where the event loop encrypts them."""
STALL = 60.0
"""Seconds for a piece, and between two requests."""
BACKLOG = 128


class Sharing:
    """The server of one agent."""

    def __init__(
        self,
        downloads: Downloads,
        secret: str,
        staged: Callable[[CheckpointId], Step | None] = lambda _: None,
    ) -> None:
        """`staged` returns this worker's part of a checkpoint, if it is complete."""
        self._downloads = downloads
        self._secret = secret
        self._staged = staged
        self._wanted: dict[tuple[str, str], asyncio.Task[Path]] = {}
        self._servers: list[asyncio.Server | socket.socket] = []
        self._certificate: NodeCertificate | None = None
        self._tls: ssl.SSLContext | None = None
        self.address = ""
        """`host:port`; empty: not serving."""
        self.tls_address = ""
        """The same for other nodes."""

    def open(self, host: str) -> None:
        """Start serving at an address of this worker; if that fails, the others read the store."""
        self.address = self._open(host)

    def open_tls(self, host: str, certificate: NodeCertificate) -> None:
        """Serve other nodes, too; a newer certificate is used from the next connection on."""
        if certificate == self._certificate:
            return
        self._certificate = certificate
        tls = self._tls or ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        try:
            _load(tls, certificate)
        except OSError as error:
            LOG.warning("cannot use the certificate for copies between nodes: %s", error)
            return
        if self._tls is None:
            self._tls = tls
            self.tls_address = self._open(host, tls)

    def _open(self, host: str, tls: ssl.SSLContext | None = None) -> str:
        v6 = ":" in host
        try:
            listener = socket.create_server(
                (host, 0), family=socket.AF_INET6 if v6 else socket.AF_INET, backlog=BACKLOG
            )
        except OSError as error:
            LOG.warning("cannot serve checkpoints to other workers at %s: %s", host, error)
            return ""
        self._servers.append(listener)
        background.run(self._listen(listener, tls))
        return f"{f'[{host}]' if v6 else host}:{listener.getsockname()[1]}"

    def close(self) -> None:
        """Stop serving."""
        for server in reversed(self._servers):
            server.close()
        for task in self._wanted.values():
            task.cancel()

    async def _listen(self, listener: socket.socket, tls: ssl.SSLContext | None) -> None:
        server = await asyncio.start_server(self._serve, sock=listener, ssl=tls)
        self._servers.append(server)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await asyncio.wait_for(read_head(reader), STALL)
                await self._answer(head, writer)
        except (OSError, EOFError, asyncio.LimitOverrunError, asyncio.TimeoutError):
            pass  # the client disconnected, or sent no valid request
        except Exception:  # it concerns one connection: the training goes on
            LOG.exception("a request of another worker was not answered")
        finally:
            writer.close()

    async def _answer(self, head: RequestHead, writer: asyncio.StreamWriter) -> None:
        if not head.has_token(self._secret):
            return await _reply(writer, 401, "the token is not that of this agent")
        if head.method == "GET" and head.path.startswith(STAGED_PATH):
            return await self._answer_staged(unquote(head.path[len(STAGED_PATH) :]), writer)
        asked = _parse(head)
        if asked is None:
            return await _reply(writer, 400, "expected GET /v1/checkpoints/<name>/<file>")
        try:
            path = await self._find(*asked)
        except (ObjectNotFound, CheckpointDamaged) as error:
            return await _reply(writer, 404, str(error))
        except TrainRunError as error:
            return await _reply(writer, 503, str(error))
        if path is None:
            have = self._downloads.received(asked[0])
            return await _reply(writer, 202, json.dumps({"received": have}))
        return await _send(writer, path)

    async def _answer_staged(self, asked: str, writer: asyncio.StreamWriter) -> None:
        name, _, rest = asked.partition("/")
        rank, _, file = rest.partition("/")
        checkpoint = CheckpointId.named(name)
        part = self._staged(checkpoint) if checkpoint is not None else None
        try:
            folders = {str(rank): top for rank, top in part.files.items()} if part else {}
            if part is None or (rest and rank not in folders):
                raise ObjectNotFound(f"this worker has nothing staged as {asked}")
            if not rest:
                listing = wire.encode(await asyncio.to_thread(list_part, part))
                return await _reply(writer, 200, json.dumps(listing))
            check_file_name(file, manifest=name)
            return await _send(writer, folders[rank] / file)
        except (CheckpointDamaged, ObjectNotFound, FileNotFoundError) as error:
            return await _reply(writer, 404, str(error))
        except TrainRunError as error:
            return await _reply(writer, 503, str(error))

    async def _find(self, name: str, source: str) -> Path | None:
        """The file; None while it is being downloaded."""
        key = (name, source)
        task = self._wanted.get(key)
        if task is None:
            task = asyncio.create_task(self._downloads.obtain(name, source))
            self._wanted[key] = task
            task.add_done_callback(lambda done: self._forget(key, done))
        # If this client leaves, the download continues for the others.
        await asyncio.wait([task], timeout=HOLD)
        return task.result() if task.done() else None

    def _forget(self, key: tuple[str, str], task: asyncio.Task[Path]) -> None:
        del self._wanted[key]
        if not task.cancelled():
            task.exception()  # mark it as retrieved, even if no client waits for it


def _parse(head: RequestHead) -> tuple[str, str] | None:
    path = unquote(head.path)
    if head.method != "GET" or not path.startswith(CHECKPOINTS_PATH):
        return None
    name, _, source = path[len(CHECKPOINTS_PATH) :].partition("/")
    return (name, source) if name and source else None


def _load(tls: ssl.SSLContext, certificate: NodeCertificate) -> None:
    # OpenSSL only reads files: use one in memory.
    descriptor = os.memfd_create("node-certificate")
    try:
        with os.fdopen(descriptor, "w", closefd=False) as file:
            file.write(certificate.certificate + certificate.key)
        tls.load_cert_chain(f"/proc/self/fd/{descriptor}")
    finally:
        os.close(descriptor)


async def _reply(writer: asyncio.StreamWriter, status: int, text: str) -> None:
    data = text.encode()
    writer.write(answer_head(status, len(data)) + data)
    await asyncio.wait_for(writer.drain(), STALL)


async def _send(writer: asyncio.StreamWriter, path: Path) -> None:
    loop, secure = asyncio.get_running_loop(), writer.get_extra_info("sslcontext") is not None
    with path.open("rb") as file:
        size = path.stat().st_size
        writer.write(answer_head(200, size))
        await asyncio.wait_for(writer.drain(), STALL)
        piece = TLS_PIECE if secure else PIECE
        for start in range(0, size, piece):
            count = min(piece, size - start)
            if secure:  # without `sendfile`: in Python 3.10 it fails if the client disconnects
                data = await asyncio.to_thread(file.read, count)
                if len(data) < count:
                    raise EOFError(f"{path} became shorter")
                writer.write(data)
                await asyncio.wait_for(writer.drain(), STALL)
                continue
            await asyncio.wait_for(loop.sendfile(writer.transport, file, start, count), STALL)
