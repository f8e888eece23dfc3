from __future__ import annotations

import socket
from pathlib import Path

import pytest

from trainrun.contract.local_files import LONGEST_SOCKET_NAME, reachable_socket


def test_a_socket_in_a_deep_folder_is_bound_and_reached_there(tmp_path: Path) -> None:
    deep = tmp_path / ("x" * 90) / ("y" * 90)
    deep.mkdir(parents=True)
    path = deep / "1.sock"
    with socket.socket(socket.AF_UNIX) as server, socket.socket(socket.AF_UNIX) as client:
        with reachable_socket(path) as name:
            server.bind(name)
        server.listen()
        assert path.is_socket()
        with reachable_socket(path) as name:
            client.connect(name)


def test_a_path_that_fits_is_used_as_it_is() -> None:
    path = Path("/" + "x" * (LONGEST_SOCKET_NAME - 1))
    with reachable_socket(path) as name:
        assert name == str(path)


def test_a_folder_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), reachable_socket(tmp_path / ("x" * 90) / "1.sock"):
        pass
