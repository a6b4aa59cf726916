"""The effort of a server on a message that is nothing but a claim to be one."""

from __future__ import annotations

import tracemalloc
from typing import Any

import msgpack
import msgspec
import pytest

from penstock.model import KindAmounts, ResourceKind
from penstock.model.container import MOST_AT_ONCE, ContainerSpec
from penstock.model.work import MonotaskSpec, TaskRequest
from penstock.wire import agent_methods, master_api, relayed_methods
from penstock.wire.agent_api import Hello, Place, Rejected, Submit
from penstock.wire.agent_methods import TYPED
from penstock.wire.connection import LINK_FRAME_BYTES, MAX_FRAME_BYTES, RpcConnection, read, read_params
from penstock.wire.errors import RpcError, bad_request
from penstock.wire.rejections import rejection_of_raw
from penstock.wire.rpc import Notification, Request, Response

MIB = 1024 * 1024
REQUESTS = {**agent_methods.REQUESTS, **relayed_methods.REQUESTS}


def arrays(count: int) -> bytes:
    """An array of so many empty arrays."""
    return b"\xdd" + count.to_bytes(4, "big") + b"\x90" * count


def request(method: str, params: bytes) -> bytes:
    return b"\x94\x00\x07" + msgpack.packb(method) + params


def spent_bytes(frame: bytes, of: type[Any]) -> int:
    """The most memory at one time while the message is received and refused."""
    tracemalloc.start()
    try:
        [message] = RpcConnection(typed=TYPED).receive(frame)
        if isinstance(message, Request):
            with pytest.raises(RpcError) as caught:
                read_params(message.params, of)
            assert caught.value.body.field
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("method", sorted(REQUESTS))
def test_no_method_parses_parameters_that_its_type_refuses(method: str) -> None:
    of = REQUESTS[method].params
    junk = arrays(MIB)
    frames = [request(method, b"\x91" + junk), request(method, junk)]
    for field in of.__struct_fields__:
        frames.append(request(method, b"\x91\x81" + msgpack.packb(field) + junk))
        frames.append(request(method, b"\x91\x81" + msgpack.packb(field) + b"\x81\xa1x" + junk))
    for frame in frames:
        assert spent_bytes(frame, of) < 8 * len(frame)


@pytest.mark.parametrize("head", [b"\x94\x00\x01\xa1x", b"\x94\x05", b"\x93", b""])
def test_an_invalid_message_is_not_parsed(head: bytes) -> None:
    rest = {b"\x94\x00\x01\xa1x": b"\x91", b"\x94\x05": b"\x01\x02", b"\x93": b"\x02\x07", b"": b""}[head]
    assert spent_bytes(head + rest + arrays(MAX_FRAME_BYTES - 100), Hello) < 8 * MAX_FRAME_BYTES


def test_a_registration_of_junk_is_not_parsed() -> None:
    of = master_api.REGISTER.params
    for field in of.__struct_fields__:
        frame = request("register", b"\x91\x81" + msgpack.packb(field) + arrays(MAX_FRAME_BYTES - 100))
        assert spent_bytes(frame, of) < 8 * len(frame)


def test_an_answer_of_junk_is_not_parsed() -> None:
    tracemalloc.start()
    for rest in (b"\xc0" + arrays(4 * MIB), arrays(4 * MIB) + b"\xc0"):
        [answer] = RpcConnection().receive(b"\x94\x01\x07" + rest)
        assert isinstance(answer, Response) and answer.id == 7
        if answer.error is None:
            with pytest.raises(RpcError):
                read(answer.result, master_api.Decided)
    assert tracemalloc.get_traced_memory()[1] < 32 * MIB
    tracemalloc.stop()


@pytest.mark.parametrize("request_id", [0, 127, 128, 255, 256, 65535, 65536, 2**32 - 1])
@pytest.mark.parametrize("method", ["x", "y" * 31, "z" * 32, "ü" * 100])
def test_parameters_and_results_stay_bytes(request_id: int, method: str) -> None:
    for params in ([], [{"protocol": 1}, 2], [{"kleint": b"\xff"}]):
        data = msgspec.Raw(msgpack.packb(params))
        for frame, message in (
            ([0, request_id, method, params], Request(request_id, method, data)),
            ([2, method, params], Notification(method, data)),
            ([1, request_id, None, params], Response(request_id, None, data)),
        ):
            assert RpcConnection().receive(msgpack.packb(frame)) == [message]


def test_invalid_text_and_too_deep_nesting_are_a_bad_request() -> None:
    for params in (b"\x91\x81\xa8protocol\xa1\xff", b"\x91\x81\xa3rdl\x81\xa1x" + b"\x91" * 1000 + b"\x90"):
        of = REQUESTS["reserve"].params if b"rdl" in params else Hello
        received = RpcConnection().receive(request("m", params))
        if received and isinstance(received[0], Request):
            with pytest.raises(RpcError) as caught:
                read_params(received[0].params, of)
            assert caught.value.body.code == "bad_request" and caught.value.body.field


def test_the_largest_messages_of_frameworks_are_read() -> None:
    tasks = [TaskRequest(task=str(number), usage=KindAmounts(cpu=1.0)) for number in range(100_000)]
    monotasks = [
        MonotaskSpec(id=number, kind=ResourceKind.CPU, input_bytes=2**30, stage="s") for number in range(MOST_AT_ONCE)
    ]
    for method, params in (
        ("place", Place(job="j", stage="s", tasks=tasks)),
        ("submit", Submit(job="j", monotasks=monotasks)),
    ):
        _, data = RpcConnection().send_request(method, params)
        [message] = RpcConnection(typed=TYPED).receive(data)
        assert isinstance(message, Request)
        assert read_params(message.params, type(params)) == params


def test_the_ids_of_a_submission_that_is_not_understood_are_read_from_its_bytes() -> None:
    error = bad_request("no")
    monotasks = [{"id": 1, "kind": "gpu"}, {"id": "two"}, 7, {"id": None}]
    for params, expected in (
        ([{"job": "j", "monotasks": monotasks}], Rejected(job="j", ids=[1, "two"], error=error.body)),
        ([{"job": "j", "monotasks": 7}], Rejected(job="j", ids=[], error=error.body)),
        ([{"monotasks": monotasks}], None),
        ([], None),
    ):
        [message] = RpcConnection().receive(msgpack.packb([2, "submit", params]))
        assert isinstance(message, Notification)
        assert rejection_of_raw(message.params, error) == expected


def test_between_agent_and_master_a_message_may_be_larger_than_one_of_a_client() -> None:
    """A client's request within its limit is longer where it is passed on."""
    request = TaskRequest(task="t", usage=KindAmounts(), command=ContainerSpec(argv=("x" * MAX_FRAME_BYTES,)))
    sent = master_api.ReadyTasks(job="j", stage="s", tasks=[request])
    frame = RpcConnection(LINK_FRAME_BYTES).send_notification("tasks_ready", sent)
    [message] = RpcConnection(LINK_FRAME_BYTES).receive(frame)
    assert isinstance(message, Notification)
    assert read_params(message.params, master_api.ReadyTasks) == sent
