"""Attempt 1 finds its master port taken; the next one does not."""

from __future__ import annotations

import socket

import trainrun

context = trainrun.get_context()
if context.rank == 0:
    squatter = socket.socket()
    if context.attempt == 1:
        squatter.bind(("127.0.0.1", context.master_port))
        squatter.listen()
    with socket.socket() as server:
        server.bind(("127.0.0.1", context.master_port))
trainrun.report(step=1)
