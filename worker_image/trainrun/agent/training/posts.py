"""Takes the posts of a framework that says by itself how far it is, in Kubeflow Trainer's protocol.

Layer: agent. A small server on the loopback address, for one attempt of slot 0, with a token that
rank 0 finds in a file. The poster waits for the answer in its training loop, so that every
connection is answered at once or closed. What is posted is shown and decides nothing.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import socket
import time
from collections.abc import Callable
from pathlib import Path

from trainrun.agent import background
from trainrun.agent.exchange.requests import RequestHead, answer_head, read_head
from trainrun.agent.training.posting import NoPost, Posting
from trainrun.contract.evidence import Posted

LOG = logging.getLogger("trainrun.agent")

LOOPBACK = "127.0.0.1"
LARGEST_HEAD, LARGEST_BODY = 8 * 1024, 64 * 1024
"""Bytes of a post."""
LONGEST_NUMBER = 9
"""Digits of a length that is read."""
PATIENCE = 4.0
"""Seconds for a post to arrive; a Trainer waits five for its answer."""
MOST = 8
"""Connections at a time: one process posts, at most every five seconds."""


class Posts:
    """The server of one attempt."""

    def __init__(self, token_file: Path, *, news: Callable[[], None]) -> None:
        """`news` is called after each post that was taken."""
        self._token_file = token_file
        self._token = secrets.token_hex(16)
        self._news = news
        self._posting = Posting()
        self._open: set[asyncio.StreamWriter] = set()
        self._listener: socket.socket | None = None
        self._server: asyncio.Server | None = None
        self.url = ""
        """Where it takes posts; empty: nowhere."""

    @property
    def posted(self) -> Posted | None:
        """What was posted up to now."""
        return self._posting.posted

    def open(self) -> None:
        """Begin to serve; where that is not possible nothing can be posted, and that is all."""
        try:
            file = os.open(self._token_file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(file, "w") as out:
                out.write(self._token)
            self._listener = socket.create_server((LOOPBACK, 0))
        except OSError as error:
            LOG.info("steps that nobody reports cannot be shown: %s", error)
            return
        self.url = f"http://{LOOPBACK}:{self._listener.getsockname()[1]}/"
        background.run(self._listen(self._listener))

    def close(self) -> None:
        """Take no more posts."""
        if self._server is not None:
            self._server.close()
        if self._listener is not None:
            self._listener.close()
        for writer in self._open:
            writer.close()

    async def _listen(self, listener: socket.socket) -> None:
        if listener.fileno() >= 0:
            self._server = await asyncio.start_server(
                self._serve, sock=listener, limit=LARGEST_HEAD
            )

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if len(self._open) < MOST:
                self._open.add(writer)
                status = await asyncio.wait_for(self._answer(reader), PATIENCE)
                writer.write(answer_head(status, 0))
        except (OSError, EOFError, asyncio.LimitOverrunError, asyncio.TimeoutError):
            pass  # they have gone, or what they say is no request
        finally:
            self._open.discard(writer)
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader) -> int:
        """Take one post; returns the status of the answer."""
        head = await read_head(reader)
        if not head.shows(self._token):
            return 401
        length = _length(head)
        if length is None:
            return 400
        if length > LARGEST_BODY:
            return 413
        try:
            self._posting.take(await reader.readexactly(length), time.monotonic())
        except NoPost as error:
            LOG.info("a post that cannot be read: %s", error)
            return 400
        self._news()
        return 200


def _length(head: RequestHead) -> int | None:
    length = head.fields.get("content-length", "")
    sound = head.method == "POST" and length.isdecimal() and len(length) <= LONGEST_NUMBER
    return int(length) if sound else None
