"""A real agent on its socket: the protocol's rules, grants, and the release of slots by a lost connection."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import Awaitable, Callable
from typing import Any

import msgpack
import pytest

from penstock.wire.errors import ErrorCode, RpcError
from tests import warm_commands

Connect = Callable[..., Awaitable[Any]]
Start = Callable[..., Any]


async def test_hello_comes_first_and_names_the_version(start_agent: Start, connect: Connect) -> None:
    agent = start_agent()
    client = await connect(agent, hello=False)
    with pytest.raises(RpcError, match="first message must be hello"):
        await client.call("status")
    with pytest.raises(RpcError) as caught:
        await client.call("hello", protocol=99)
    assert caught.value.body.field == "protocol"
    welcome = await client.call("hello", protocol=1)
    assert welcome["node"] == "test" and welcome["capacity"]["cores"] == 2
    with pytest.raises(RpcError, match="this connection has sent hello already") as caught:
        await client.call("hello", protocol=1)
    assert caught.value.code is ErrorCode.BAD_REQUEST and caught.value.body.remedy
    with pytest.raises(RpcError) as caught:
        await client.call("launhc")
    assert caught.value.code is ErrorCode.BAD_REQUEST and caught.value.body.field == "method"


async def test_bad_input_is_answered_by_field_and_harms_nobody_else(start_agent: Start, connect: Connect) -> None:
    agent = start_agent()
    healthy, other = await connect(agent), await connect(agent)
    job = (await healthy.call("register_job", name="j"))["job"]
    for params, field in (
        ({"job": job, "monotasks": [{"id": 1, "kind": "gpu", "input_bytes": 1}]}, "monotasks[0].kind"),
        ({"job": job, "monotasks": [{"id": 1, "kind": "cpu", "input_bytes": -1}]}, "monotasks[0].input_bytes"),
        ({"job": job, "monotasks": 7}, "monotasks"),
        ({"job": job, "monotask": []}, "monotask"),
        ({"job": job}, "monotasks"),
    ):
        with pytest.raises(RpcError) as caught:
            await healthy.call("submit", **params)
        assert (caught.value.code, caught.value.body.field) == (ErrorCode.BAD_REQUEST, field)
    for junk in (b"\xc1 this is not MessagePack", b"POST / HTTP/1.1\r\n\r\n" + msgpack.packb([0, 1, "hello", []])):
        reader, writer = await asyncio.open_unix_connection(str(agent.socket))
        writer.write(junk)
        unpacker = msgpack.Unpacker()
        unpacker.feed(await asyncio.wait_for(reader.read(), 10))  # the agent answers and closes
        [(kind, method, params)] = unpacker
        assert (kind, method, params[0]["code"], params[0]["field"]) == (2, "error", "bad_request", "frame")
        writer.close()
    with pytest.raises(RpcError, match="has not joined"):
        await other.call("submit", job=job, monotasks=[])
    assert (await healthy.call("submit", job=job, monotasks=[{"id": 1, "kind": "cpu", "input_bytes": 1}]))["accepted"]


async def test_a_freed_slot_goes_to_the_next_in_ursas_order(start_agent: Start, connect: Connect) -> None:
    client = await connect(start_agent(cores=1))
    job = (await client.call("register_job", name="j"))["job"]
    sizes = {"a": 10, "b": 500, "c": 90}
    await client.call("submit", job=job, monotasks=[{"id": "first", "kind": "cpu", "input_bytes": 1}])
    await client.call(
        "submit", job=job, monotasks=[{"id": n, "kind": "cpu", "input_bytes": b} for n, b in sizes.items()]
    )
    order = []
    for count in range(1, 5):
        grants = await client.recorder.wait_for("grant", count)
        (granted,) = grants[-1]["ids"]
        order.append(granted)
        await client.call("complete", job=job, monotasks=[{"id": granted}])
    assert order == ["first", "b", "c", "a"]


async def test_the_slots_of_a_lost_connection_go_to_the_next_client(start_agent: Start, connect: Connect) -> None:
    agent = start_agent(cores=1)
    dying, waiting = await connect(agent), await connect(agent)
    first = (await dying.call("register_job", name="dying"))["job"]
    second = (await waiting.call("register_job", name="waiting"))["job"]
    await dying.call("submit", job=first, monotasks=[{"id": 1, "kind": "cpu", "input_bytes": 1}])
    await waiting.call("submit", job=second, monotasks=[{"id": 2, "kind": "cpu", "input_bytes": 1}])
    assert not waiting.recorder.received
    dying.peer.close()
    (grant,) = await waiting.recorder.wait_for("grant")
    assert (grant["job"], grant["ids"]) == (second, [2])
    jobs = (await waiting.call("status"))["status"]["jobs"]
    assert [job["job"] for job in jobs] == [second]


async def test_status_metrics_and_health_over_http(start_agent: Start, connect: Connect) -> None:
    agent = start_agent()
    client = await connect(agent)
    await client.call("register_job", name="seen")
    paths = ("/status", "/metrics", "/healthz")
    status, metrics, health = [await asyncio.to_thread(agent.get, path) for path in paths]
    document = json.loads(status)
    assert document["jobs"][0]["name"] == "seen" and set(document["kinds"]) == {"cpu", "disk", "network"}
    assert b'penstock_slots{kind="cpu"} 2.0' in metrics and health == b"ok\n"
    rpc = (await client.call("status"))["status"]
    assert set(rpc) == set(document)


async def test_a_second_agent_on_the_same_socket_is_refused_in_one_line(start_agent: Start, connect: Connect) -> None:
    agent = start_agent()
    command = [warm_commands.python(), "-I", "-m", "agent", *agent.arguments]
    done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert done.stderr.strip().splitlines()[-1].startswith("penstock agent: an agent is running already at")
    assert (await (await connect(agent)).call("status"))["status"]["node"] == "test"


async def test_a_refused_submission_names_its_monotasks_also_where_it_is_not_understood(
    start_agent: Start, connect: Connect
) -> None:
    """A client with several monotasks under way could not know which of them it waits for in vain."""
    client = await connect(start_agent())
    job = (await client.call("register_job", name="j"))["job"]
    for params, field, ids in (
        ({"job": job, "monotasks": [{"id": 7, "kind": "gpu", "input_bytes": 1}]}, "monotasks[0].kind", [7]),
        ({"job": job, "monotasks": [{"id": "a", "kind": "cpu", "input_bytes": 2**64 - 1}, {"id": 8}]},
         "monotasks[0].input_bytes", ["a", 8]),
        ({"job": job, "monotasks": [{"id": 9, "kind": "cpu", "input_bytes": 1}], "extra": 1}, "extra", [9]),
        ({"job": job, "monotasks": [{"id": {}}, 7, {"id": None}, {"id": True}]}, "monotasks[0].id", []),
        ({"job": "nobody's", "monotasks": [{"id": 1, "kind": "cpu", "input_bytes": 1}]}, "job", [1]),
        ({"job": job, "monotasks": 7}, "monotasks", []),
    ):  # fmt: skip
        before = len([one for one in client.recorder.received if one[0] == "rejected"])
        client.peer.notify("submit", params)
        said = (await client.recorder.wait_for("rejected", before + 1))[-1]
        assert (said["job"], said["ids"]) == (params["job"], ids)
        assert (said["error"]["code"], said["error"]["field"]) == (ErrorCode.BAD_REQUEST, field)
    client.peer.notify("submit", {"job": 5, "monotasks": []})
    (said,) = await client.recorder.wait_for("error")
    assert said["field"] == "job"
