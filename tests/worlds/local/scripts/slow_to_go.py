"""Rank 1 closes its connection to rank 0, as a process that ends does, and is gone a moment later,
as one with a GPU is: its exit code comes after rank 0 has died of it.
"""

from __future__ import annotations

import os
import socket
import time

import trainrun

here, found = trainrun.get_context(), trainrun.get_checkpoint()
place = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))


def connected() -> socket.socket:
    if here.rank == 0:
        with socket.create_server(place) as server:
            return server.accept()[0]
    while True:
        try:
            return socket.create_connection(place)
        except ConnectionRefusedError:
            time.sleep(0.05)


peer = connected()
trainrun.report(step=1)
if here.attempt == 1:
    if here.rank == 1:
        peer.close()
        time.sleep(0.8)
        os._exit(3)
    if not peer.recv(1):
        raise ConnectionResetError("connection closed by peer")
