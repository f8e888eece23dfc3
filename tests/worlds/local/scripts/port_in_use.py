"""Attempt 1 finds its master port taken; the next one does not."""

from __future__ import annotations

import socket
import time

import trainrun

context = trainrun.get_context()
address = ("127.0.0.1", context.master_port)
if context.rank == 0:
    squatter = socket.socket()
    if context.attempt == 1:
        squatter.bind(address)
        squatter.listen()
    with socket.socket() as server:
        server.bind(address)
elif context.attempt == 1:
    time.sleep(600)  # waits for rank 0, as a rendezvous does
trainrun.report(step=1)
