"""The wire survives any chunking, any garbage and any size; and a wrong type is answered with the name of its field."""

from __future__ import annotations

from typing import Any

import msgpack
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.model.container import ContainerSpec, Limits
from penstock.model.resources import KindAmounts, ResourceKind
from penstock.model.work import MonotaskSpec, TaskRequest
from penstock.wire.agent_api import Submit
from penstock.wire.agent_methods import REQUESTS
from penstock.wire.connection import Closed, Malformed, RpcConnection, read_params
from penstock.wire.errors import ErrorBody, ErrorCode, RpcError
from penstock.wire.rpc import Message, Notification, Request, Response

plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=10,
)
maps = st.dictionaries(st.text(max_size=8), plain, max_size=4)
ids = st.integers(0, 2**32 - 1)
errors = st.builds(ErrorBody, st.sampled_from(list(ErrorCode)), st.text(), st.text(), st.text())


def raw(value: object) -> msgspec.Raw:
    return msgspec.Raw(msgpack.packb(value))


arrays = st.lists(plain, max_size=2).map(raw)
messages = (
    st.builds(Request, ids, st.text(), arrays)
    | st.builds(Notification, st.text(), arrays)
    | st.builds(Response, ids, st.none(), plain.map(raw))
    | st.builds(Response, ids, errors, st.just(raw(None)))
)


def packed(message: Message) -> bytes:
    return msgspec.msgpack.encode(message)


@st.composite
def chunked(draw: st.DrawFn, data: bytes) -> list[bytes]:
    cuts = sorted(draw(st.lists(st.integers(0, len(data)), max_size=12)))
    return [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)]


@given(st.lists(messages, max_size=6), st.data())
def test_any_messages_arrive_whole_in_any_chunking(sent: list[Any], data: st.DataObject) -> None:
    stream = b"".join(map(packed, sent))
    wire = RpcConnection()
    received = [message for chunk in data.draw(chunked(stream)) for message in wire.receive(chunk)]
    assert received == sent


@given(st.text(), maps, maps, ids, errors)
def test_one_end_reads_the_messages_that_the_other_sends(
    method: str, params: dict[str, Any], result: dict[str, Any], answer_to: int, error: ErrorBody
) -> None:
    sender, receiver = RpcConnection(), RpcConnection()
    request_id, data = sender.send_request(method, params)
    data += sender.send_notification(method)
    data += sender.send_response(answer_to, result)
    data += sender.send_error(answer_to, error)
    assert receiver.receive(data) == [
        Request(request_id, method, raw([params])),
        Notification(method, raw([])),
        Response(answer_to, None, raw(result)),
        Response(answer_to, error, raw(None)),
    ]


@given(st.lists(st.binary(max_size=200), max_size=8))
def test_garbage_never_raises_and_nothing_follows_a_closed_stream(chunks: list[bytes]) -> None:
    wire = RpcConnection(max_frame_bytes=100)
    received = [wire.receive(chunk) for chunk in chunks]
    flat = [message for part in received for message in part]
    assert all(isinstance(message, Request | Response | Notification | Malformed | Closed) for message in flat)
    closed = [index for index, message in enumerate(flat) if isinstance(message, Closed)]
    assert closed in ([], [len(flat) - 1])


@given(plain)
def test_a_sound_frame_that_is_no_message_never_closes_the_stream(value: Any) -> None:
    wire = RpcConnection()
    wire.receive(packed(Notification("first", raw([]))))
    [answer] = wire.receive(msgpack.packb(value))
    assert not isinstance(answer, Closed)
    still_here = Notification("still here", raw([]))
    assert wire.receive(packed(still_here)) == [still_here]


@given(st.integers(0, 300), st.integers(1, 64), st.lists(messages, max_size=2))
@settings(max_examples=100)
def test_the_frame_limit_holds_in_pieces_of_any_size(size: int, piece: int, before: list[Any]) -> None:
    limit = 150
    before = [message for message in before if len(packed(message)) <= limit]
    big = packed(Notification("n", raw([b"x" * size])))
    stream = b"".join(map(packed, before)) + big
    wire = RpcConnection(max_frame_bytes=limit)
    received = [m for at in range(0, len(stream), piece) for m in wire.receive(stream[at : at + piece])]
    assert received[: len(before)] == before
    [last] = received[len(before) :]
    if len(big) > limit:
        assert isinstance(last, Closed)
        assert last.error.field == "frame"
    else:
        assert last == Notification("n", raw([b"x" * size]))


monotasks = st.builds(
    MonotaskSpec,
    id=st.integers(0, 2**32) | st.text(min_size=1, max_size=128),
    kind=st.sampled_from(ResourceKind),
    input_bytes=st.integers(0, 2**62),
    stage=st.text(max_size=20),
    task=st.text(max_size=20),
    running=st.booleans(),
)
specs = st.builds(
    ContainerSpec,
    argv=st.lists(st.text(), min_size=1, max_size=3).map(tuple),
    env=st.dictionaries(st.text(), st.text(), max_size=3),
    limits=st.builds(
        Limits,
        cpu_cores=st.none() | st.floats(0.01, 65536),
        memory_max_bytes=st.none() | st.integers(1, 2**62),
        pids_max=st.none() | st.integers(1, 10**6),
    ),
    opportunistic=st.booleans(),
)
tasks = st.builds(
    TaskRequest,
    task=st.text(min_size=1, max_size=128),
    usage=st.builds(KindAmounts, *[st.floats(0, 1e18)] * 3),
    nodes=st.lists(st.text(), max_size=2).map(tuple),
    command=st.none() | specs,
    command_kind=st.sampled_from(ResourceKind),
)


@given(monotasks | specs | tasks)
def test_typed_values_survive_the_wire(value: Any) -> None:
    receiver = RpcConnection()
    [message] = receiver.receive(RpcConnection().send_notification("x", value))
    assert isinstance(message, Notification)
    assert read_params(message.params, type(value)) == value


@pytest.mark.parametrize("method", sorted(REQUESTS))
@given(params=st.lists(plain, max_size=2))
@settings(max_examples=17)
def test_wrong_parameters_are_the_callers_fault_and_name_a_field(method: str, params: list[Any]) -> None:
    try:
        read_params(raw(params), REQUESTS[method].params)
    except RpcError as error:
        assert error.code is ErrorCode.BAD_REQUEST
        assert error.body.field


@given(monotasks, st.sampled_from(["id", "kind", "input_bytes", "stage", "running"]))
def test_a_wrong_type_names_its_field(spec: MonotaskSpec, field: str) -> None:
    wrong = msgspec.to_builtins(spec) | {field: [1.5]}
    with pytest.raises(RpcError) as caught:
        read_params(raw([{"job": "j", "monotasks": [wrong]}]), Submit)
    assert caught.value.body.field.endswith(field)
