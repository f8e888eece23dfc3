"""Meets its peers at the master port for a moment, as a short script of torch.distributed does."""

from __future__ import annotations

import os
import socket
import time

place = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
if os.environ["RANK"] == "0":
    with socket.create_server(place) as server:
        server.accept()[0].close()
else:
    for _ in range(3000):
        try:
            socket.create_connection(place).close()
            break
        except OSError:
            time.sleep(0.01)
