"""The shuffle over TCP: every blob once, in order, and only for a client that knows the token."""

from __future__ import annotations

import os
import socket
import struct
import threading

import pytest

from demo.exchange import Blob, Outputs, listen, pull, serve

TOKEN = b"0123456789abcdef"


def producer(held: dict[int, list[Blob]]) -> int:
    listener = listen()
    outputs = Outputs(4)
    for partition, blobs in held.items():
        for task, blob in blobs:
            outputs.add(partition, task, blob)
    leash, _ = os.pipe()
    threading.Thread(target=serve, args=(listener, TOKEN, outputs, leash), daemon=True).start()
    return int(listener.getsockname()[1])


def test_pulls_from_all_producers_in_the_order_of_tasks() -> None:
    large = bytes(range(256)) * 40_000
    ports = [producer({3: [(0, b"a"), (4, large)]}), producer({3: [(2, b""), (1, b"b")]}), producer({})]
    assert pull(ports, TOKEN, 3) == [b"a", b"b", b"", large]
    assert pull(ports, TOKEN, 3) == []


def test_a_wrong_token_gets_nothing_and_affects_no_other() -> None:
    held: dict[int, list[Blob]] = {0: [(0, b"secret")]}
    port = producer(held)
    with pytest.raises(OSError, match="closed in the middle"):
        pull([port], b"x" * 16, 0)
    assert pull([port], TOKEN, 0) == [b"secret"]


def test_a_producer_that_is_gone_is_an_error() -> None:
    listener = listen()
    port = listener.getsockname()[1]
    listener.close()
    with pytest.raises(ConnectionRefusedError):
        pull([producer({}), port], TOKEN, 0)


def test_a_producer_that_dies_in_the_middle_is_an_error() -> None:
    listener = listen()

    def half() -> None:
        connection, _ = listener.accept()
        with connection:
            connection.recv(20, socket.MSG_WAITALL)
            connection.sendall(struct.pack("!QIQ", 112, 0, 100) + b"only this")

    threading.Thread(target=half, daemon=True).start()
    with listener, pytest.raises(ConnectionResetError, match="middle of a partition"):
        pull([listener.getsockname()[1]], TOKEN, 0)


def test_a_puller_that_goes_away_does_not_stop_the_server() -> None:
    port = producer({0: [(0, b"kept")]})
    socket.create_connection(("127.0.0.1", port)).close()
    assert pull([port], TOKEN, 0) == [b"kept"]


def test_the_server_ends_with_its_worker() -> None:
    leash, held = os.pipe()
    os.close(held)
    with listen() as listener:
        serve(listener, TOKEN, Outputs(1), leash)
    os.close(leash)
