"""The bytes of MessagePack-RPC, and the errors on those that are none."""

from __future__ import annotations

import functools
import sys
import tracemalloc

import msgpack
import msgspec
import pytest

from penstock.wire.agent_api import Hello, SignalContainer, Submit
from penstock.wire.agent_methods import TYPED
from penstock.wire.connection import MAX_FRAME_BYTES, Closed, Malformed, RpcConnection, read_params
from penstock.wire.errors import ErrorBody, ErrorCode, RpcError, bad_request, refused, unavailable
from penstock.wire.rpc import Notification, Response


def raw(value: object) -> msgspec.Raw:
    return msgspec.Raw(msgpack.packb(value))


def test_a_request_follows_the_specification() -> None:
    request_id, data = RpcConnection().send_request("hello", Hello(protocol=1))
    assert (request_id, msgpack.unpackb(data)) == (0, [0, 0, "hello", [{"protocol": 1}]])


def test_no_parameters_are_an_empty_array() -> None:
    _, data = RpcConnection().send_request("status")
    assert msgpack.unpackb(data) == [0, 0, "status", []]


def test_request_ids_rise_and_wrap() -> None:
    wire = RpcConnection()
    assert [wire.send_request("x")[0] for _ in range(3)] == [0, 1, 2]
    wire._next_id = 0xFFFFFFFF
    assert [wire.send_request("x")[0] for _ in range(2)] == [0xFFFFFFFF, 0]


@pytest.mark.parametrize(("text", "shown"), [("caf\udce9", r"'caf\xe9'"), ("\ud800", r"'\ud800'")])
def test_text_that_is_not_utf8_is_an_error_of_its_sender(text: str, shown: str) -> None:
    wire = RpcConnection()
    for send in (wire.send_request, wire.send_notification):
        with pytest.raises(RpcError) as caught:
            send("hello", Hello(protocol=1, client=text))
        assert caught.value.body == ErrorBody(
            ErrorCode.BAD_REQUEST, f"{shown} is not UTF-8, as text in messages must be"
        )
    with pytest.raises(UnicodeEncodeError):
        wire.send_response(7, text)  # not the caller's fault


def test_a_number_of_more_than_64_bits_is_an_error_of_its_sender() -> None:
    wire = RpcConnection()
    for send in (wire.send_request, wire.send_notification):
        with pytest.raises(RpcError, match="a number exceeds the 64 bits that it has in messages") as caught:
            send("hello", Hello(protocol=2**64))
        assert caught.value.code is ErrorCode.BAD_REQUEST
    with pytest.raises(OverflowError):
        wire.send_response(7, 2**64)


def test_an_error_of_another_server_is_kept() -> None:
    [answer] = RpcConnection().receive(msgpack.packb([1, 7, "went wrong", None]))
    assert answer == Response(7, ErrorBody(ErrorCode.INTERNAL, "went wrong"), raw(None))


@pytest.mark.parametrize(
    ("frame", "reply_to"),
    [
        ([0, 5, "x", {}], 5),
        ([0, 5, "x"], 5),
        ([0, -1, "x", []], -1),
        ([0, "5", "x", []], None),
        ([0, True, "x", []], None),
        ([1, True, None, 5], None),
        ([False, 5, "x", []], None),
        ([3, 5, "x", []], None),
        ([2, "x", {}], None),
        ([], None),
        ({"method": "x"}, None),
        (7, None),
        ([0, 5, msgpack.ExtType(1, b"x"), []], 5),
        ([0, 5, "x", [{"deep": functools.reduce(lambda inner, _: [inner], range(500), 0)}], 7], 5),
    ],
)
def test_a_frame_that_is_no_message_is_answered_where_it_can_be(frame: object, reply_to: int | None) -> None:
    wire = RpcConnection()
    wire.receive(msgpack.packb([2, "x", []]))
    [malformed] = wire.receive(msgpack.packb(frame))
    assert isinstance(malformed, Malformed)
    assert malformed.reply_to == reply_to
    assert malformed.error.field == "frame"
    assert [type(message) for message in wire.receive(msgpack.packb([2, "y", []]))] == [Notification]


@pytest.mark.parametrize("first", [*range(0x90), *range(0xA0, 0xDC), *range(0xDE, 0x100)])
def test_a_stream_that_does_not_begin_with_an_array_is_refused_at_its_first_byte(first: int) -> None:
    wire = RpcConnection(typed=TYPED)
    [closed] = wire.receive(bytes([first]))
    assert isinstance(closed, Closed)
    assert (closed.error.code, closed.error.field) == (ErrorCode.BAD_REQUEST, "frame")
    assert wire.receive(msgpack.packb([2, "y", []])) == []


@pytest.mark.parametrize("chunk", [1, 1000])
def test_nothing_is_heard_behind_a_request_of_http(chunk: int) -> None:
    stream = b"POST / HTTP/1.1\r\nHost: localhost\r\n\r\n" + msgpack.packb([2, "y", []])
    wire = RpcConnection(typed=TYPED)
    received = [message for at in range(0, len(stream), chunk) for message in wire.receive(stream[at : at + chunk])]
    assert [type(message) for message in received] == [Closed]


@pytest.mark.parametrize("method", ["x", "submit"])
def test_only_the_first_byte_of_a_stream_counts(method: str) -> None:
    """Whichever way the first frame is decoded, a later one that is no array is malformed, and no more."""
    wire = RpcConnection(typed=TYPED)
    [message] = wire.receive(msgpack.packb([2, method, [{"job": "j", "monotasks": []}]]))
    assert isinstance(message, Notification)
    assert isinstance(message.params, Submit if method == "submit" else msgspec.Raw)
    assert [type(message) for message in wire.receive(b"\x07")] == [Malformed]
    assert [type(message) for message in wire.receive(msgpack.packb([2, "y", []]))] == [Notification]


@pytest.mark.parametrize(
    ("garbage", "says"),
    [
        (b"\x92\xc1", "not MessagePack: a byte that begins no value"),
        (b"\x91" * 5000, "not MessagePack: nested too deeply"),
    ],
)
def test_garbage_closes_the_stream_with_an_error(garbage: bytes, says: str) -> None:
    wire = RpcConnection()
    [first, closed] = wire.receive(msgpack.packb([2, "y", []]) + garbage)
    assert first == Notification("y", raw([]))
    assert isinstance(closed, Closed)
    assert (closed.error.code, closed.error.message) == (ErrorCode.BAD_REQUEST, says)
    assert wire.receive(msgpack.packb([2, "y", []])) == []


def test_a_claim_of_a_huge_frame_is_not_waited_for() -> None:
    wire = RpcConnection()
    [closed] = wire.receive(b"\xdd\xff\xff\xff\xff")  # an array of 2³² − 1
    assert isinstance(closed, Closed)


def test_a_frame_that_outgrows_the_limit_is_refused_before_it_ends() -> None:
    wire = RpcConnection(max_frame_bytes=1000)
    half = msgpack.packb([2, "n", [b"x" * 100_000]])[:1000]
    assert wire.receive(half) == []
    [closed] = wire.receive(b"x")
    assert isinstance(closed, Closed)
    assert closed.error.message == "frame larger than 1000 bytes"


def test_a_frame_of_the_limit_passes_and_one_more_byte_does_not() -> None:
    def of(size: int) -> bytes:
        data: bytes = msgpack.packb([2, "n", [b"x" * size]])
        return data

    overhead = len(of(1 << 20)) - (1 << 20)
    [fits] = RpcConnection().receive(of(MAX_FRAME_BYTES - overhead))
    assert isinstance(fits, Notification)
    wire = RpcConnection()
    [closed] = wire.receive(of(MAX_FRAME_BYTES - overhead + 1))
    assert isinstance(closed, Closed)


def test_we_do_not_send_messages_that_the_other_side_would_refuse() -> None:
    with pytest.raises(RpcError, match=r"frame limit of 100 \(ask for less in one command or request\)$"):
        RpcConnection(max_frame_bytes=100).send_notification("n", {"x": b"y" * 100})


def test_a_deeply_nested_frame_does_no_harm() -> None:
    wire = RpcConnection()
    received = wire.receive(b"\x91" * 100_000)
    assert [type(message) for message in received] in ([], [Closed])


@pytest.mark.parametrize(
    ("params", "field"),
    [
        ([], "protocol"),
        ([{"protocol": "1"}], "protocol"),
        ([{"protocol": 1, "kleint": ""}], "kleint"),
        ([{"protocol": 1}, 2], "params"),
        ([7], "params"),
    ],
)
def test_wrong_parameters_name_the_field(params: list[object], field: str) -> None:
    with pytest.raises(RpcError) as caught:
        read_params(raw(params), Hello)
    assert caught.value.body.field == field
    assert caught.value.code is ErrorCode.BAD_REQUEST


def test_a_wrong_item_is_named_by_its_place() -> None:
    monotask = {"id": 1, "kind": "cpu", "input_bytes": -1}
    with pytest.raises(RpcError) as caught:
        read_params(raw([{"job": "j", "monotasks": [monotask | {"input_bytes": 1}, monotask]}]), Submit)
    assert caught.value.body.field == "monotasks[1].input_bytes"


def test_bounds_are_checked() -> None:
    with pytest.raises(RpcError, match="at most 64"):
        read_params(raw([{"container": "c", "signal": 65}]), SignalContainer)


def test_errors_read_as_one_line() -> None:
    assert str(bad_request("expected int", field="id")) == "id: expected int"
    assert str(refused("no room", remedy="wait")) == "no room (wait)"
    assert unavailable("no cgroups").code is ErrorCode.UNAVAILABLE


def _kept_bytes(data: bytes, connections: int) -> float:
    """Return the bytes that each of so many connections keeps allocated once it has read ``data``."""
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        kept = [RpcConnection(typed=TYPED) for _ in range(connections)]
        for wire in kept:
            assert len(wire.receive(data)) == 1
        return (tracemalloc.get_traced_memory()[0] - before) / connections
    finally:
        tracemalloc.stop()


def test_a_connection_between_two_frames_keeps_no_buffer() -> None:
    """Buffers of idle connections would be pages that the allocator spreads over a heap of gigabytes."""
    RpcConnection(typed=TYPED)  # objects that are made once
    hello = msgpack.packb([0, 0, "hello", [{"protocol": 1}]])
    assert _kept_bytes(hello, 200) < 4096
    assert _kept_bytes(msgpack.packb([2, "x", [b"x" * 1_000_000]]), 5) < 4096


def test_messages_are_parsed_as_they_are_asked_for() -> None:
    wire = RpcConnection()
    stream = msgpack.packb([2, "x", []]) * 3
    coming = wire.messages(stream + stream[:3])
    message = Notification("x", raw([]))
    assert next(coming) == message
    assert wire.unfinished_bytes == len(stream) - 5 + 3  # fed, and not taken yet
    assert list(coming) == [message] * 2
    assert wire.unfinished_bytes == 3
    assert wire.receive(stream[3:]) == [message] * 3
    assert wire.unfinished_bytes == 0


@pytest.mark.parametrize("count", [2, 3])
def test_a_few_messages_in_one_read_need_no_msgpack(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    monkeypatch.setitem(sys.modules, "msgpack", None)  # an import of it fails
    wire = RpcConnection()
    sent = [Response(1, None, raw({"job": "j"})), *(Notification(f"n{number}", raw([])) for number in range(count - 1))]
    assert wire.receive(b"".join(map(msgspec.msgpack.encode, sent))) == sent
