"""Where a stream of MessagePack-RPC ends for us: at the frame limit, and with the first thing that closes it."""

from __future__ import annotations

import msgpack
import msgspec
import pytest

from penstock.wire.agent_api import Hello, Submit
from penstock.wire.agent_methods import TYPED
from penstock.wire.connection import MAX_FRAME_BYTES, Closed, Malformed, RpcConnection, read_params
from penstock.wire.rpc import Notification, Request

LIMIT = 200
SOUND: bytes = msgpack.packb([2, "y", []])
GARBAGE = b"\x93\x02\xc1"  # a byte that MessagePack never uses


def submit(stage: str = "") -> bytes:
    monotasks = [{"id": 1, "kind": "cpu", "input_bytes": 1, "stage": stage}]
    data: bytes = msgpack.packb([2, "submit", [{"job": "j", "monotasks": monotasks}]])
    return data


def submit_of(size: int) -> bytes:
    return submit("s" * (size - len(submit("s" * 40)) + 40))


def test_the_frame_limit_is_the_same_for_typed_methods() -> None:
    assert len(submit_of(LIMIT)) == LIMIT
    [fits] = RpcConnection(LIMIT, TYPED).receive(submit_of(LIMIT))
    assert isinstance(fits, Notification) and isinstance(fits.params, Submit)
    [closed] = RpcConnection(LIMIT, TYPED).receive(submit_of(LIMIT + 1))
    assert isinstance(closed, Closed)
    assert closed.error.message == f"frame larger than {LIMIT} bytes"


@pytest.mark.parametrize("after", [submit(), SOUND])
def test_nothing_is_read_after_the_stream_was_closed(after: bytes) -> None:
    wire = RpcConnection(typed=TYPED)
    [closed] = wire.receive(b"\x93\xc1")
    assert isinstance(closed, Closed)
    assert wire.unfinished_bytes == 0
    assert wire.receive(after) == []


def test_nothing_is_read_behind_the_frame_that_closes_the_stream() -> None:
    received = RpcConnection().receive(SOUND + GARBAGE + 3 * SOUND)
    assert [type(message) for message in received] == [Notification, Closed]
    many = RpcConnection().receive(GARBAGE + SOUND * (3 * 1024 * 1024 // len(SOUND)))
    assert [type(message) for message in many] == [Closed]


def test_bytes_within_a_frame_are_no_message_of_their_own() -> None:
    inner = submit()
    frame = msgpack.packb([2, "n", [b"before" + inner]])
    wire = RpcConnection(typed=TYPED)
    assert wire.receive(frame[: -len(inner)]) == []
    assert wire.receive(inner) == [Notification("n", msgspec.Raw(msgpack.packb([b"before" + inner])))]


@pytest.mark.parametrize("claim", [b"\xdd", b"\xdf", b"\xdb", b"\xc6"])
def test_a_huge_claim_of_any_kind_is_not_waited_for(claim: bytes) -> None:
    wire = RpcConnection()
    wire.receive(SOUND)
    [closed] = wire.receive(claim + b"\xff\xff\xff\xff")
    assert isinstance(closed, Closed)


def test_a_read_may_bring_more_than_a_frame_may_have() -> None:
    frame = msgpack.packb([2, "n", [b"x" * (MAX_FRAME_BYTES // 2)]])
    assert len(RpcConnection().receive(4 * frame)) == 4


def test_a_message_of_exactly_the_limit_is_sent() -> None:
    size = len(RpcConnection().send_notification("n", {"x": "y" * 50}))
    assert len(RpcConnection(size).send_notification("n", {"x": "y" * 50})) == size


def test_ids_have_32_bits() -> None:
    [largest] = RpcConnection().receive(msgpack.packb([0, 2**32 - 1, "x", []]))
    assert isinstance(largest, Request) and largest.id == 2**32 - 1
    [beyond] = RpcConnection().receive(msgpack.packb([0, 2**32, "x", []]))
    assert isinstance(beyond, Malformed) and beyond.reply_to == 2**32


@pytest.mark.parametrize("head", [b"\x91", b"\xdc\x00\x01", b"\xdd\x00\x00\x00\x01"])
def test_parameters_are_read_however_their_array_states_its_length(head: bytes) -> None:
    assert read_params(msgspec.Raw(head + msgpack.packb({"protocol": 1})), Hello) == Hello(protocol=1)
