"""A number or name that a caller of the client gets wrong: one line names it, what is expected, and the remedy."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pytest

from penstock.client import AgentClient
from penstock.client.executor import MonotaskExecutor
from penstock.client.gate import Gate
from penstock.model.container import ContainerSpec
from penstock.wire.errors import RpcError
from tests.fakes.agent import FakeAgent
from tests.fakes.agent_thread import AgentThread
from tests.unit.penstock.client.conftest import TIMEOUT_S, Make

#: No size, and why.
_SIZES = [
    ("1GiB", "a number of bytes expected, not '1GiB'; write 1073741824"),
    ("much\nmore", r"a number of bytes expected, not 'much\\nmore'; write for example 64"),
    (None, "a number of bytes expected, not None; write for example 64"),
    (True, "a number of bytes expected, not True"),
    (Decimal(5), "a number of bytes expected, not Decimal"),
    (np.zeros((9, 9)), r"a number of bytes expected, not array\("),
    (math.nan, "nan is not from 0 to 2⁶³ − 1"),
    (math.inf, "inf is not from 0 to 2⁶³ − 1"),
    (-1, "-1 is not from 0 to 2⁶³ − 1"),
    (-0.5, "-0.5 is not from 0 to 2⁶³ − 1"),
    (1e19, r"1e\+19 is not from 0 to 2⁶³ − 1"),
    (10**30, "1000000000000000000000000000000 is not from 0 to 2⁶³ − 1"),
]
_NUMBERS = [
    ("memory_bytes", 2**63, "9223372036854775808 is not from 0 to 2⁶³ − 1"),
    ("patience_s", "250ms", "a number of seconds expected, not '250ms'; write 0.25"),
    ("patience_s", None, "a number of seconds expected, not None; write for example 0.5"),
    ("patience_s", math.nan, "a number of seconds from 0 on expected, not nan"),
    ("patience_s", -1.0, "a number of seconds from 0 on expected, not -1.0"),
    ("patience_s", False, "a number of seconds expected, not False"),
    ("priority", "high", "a number expected, not 'high'; write for example 1.0"),
    ("priority", math.nan, "a number from -1e18 to 1e18 expected, not nan"),
    ("priority", math.inf, "a number from -1e18 to 1e18 expected, not inf"),
    ("priority", None, "a number expected, not None"),
    ("process", "1", "a whole number expected, not '1'; write its id, or 0 for this one"),
    ("process", 1.0, "a whole number expected, not 1.0"),
    ("process", True, "a whole number expected, not True"),
    ("process", -1, "a whole number from 0 on expected, not -1"),
]


def refused(what: Callable[[], object], name: str, says: str) -> None:
    with pytest.raises((TypeError, ValueError), match=f"^{name}: .*{says}") as caught:
        what()
    assert str(caught.value).isprintable(), "one line"


@pytest.mark.parametrize(("size", "says"), _SIZES)
def test_a_size_of_a_gate(make: Make, size: Any, says: str) -> None:
    refused(lambda: make(memory_bytes=size), "memory_bytes", says)
    gate = make(patience_s=0.0)
    refused(lambda: gate.acquire("cpu", size), "input_bytes", says)
    refused(lambda: gate.submit("cpu", size, lambda slot: None), "input_bytes", says)
    with MonotaskExecutor(gate, 1) as executor:
        refused(lambda: executor.submit_monotask("cpu", size, int), "input_bytes", says)
    assert gate.counts()["waiting"] == 0


@pytest.mark.parametrize(("name", "value", "says"), _NUMBERS)
def test_other_numbers_of_a_gate(make: Make, name: str, value: Any, says: str) -> None:
    refused(lambda: make(**{name: value}), name, says)


@pytest.mark.parametrize(
    ("value", "says"),
    [(5, "text expected, not 5; write '5'"), (0, "write '0'"), (None, "text expected, not None"), (b"x", "not b'x'")],
)
def test_the_names_of_a_gate(make: Make, value: Any, says: str) -> None:
    refused(lambda: Gate(value), "name", says)
    gate = make(patience_s=0.0)
    for argument in ("stage", "task"):
        refused(lambda argument=argument: gate.acquire("cpu", 1, **{argument: value}), argument, says)
        refused(lambda argument=argument: gate.submit("cpu", 1, print, **{argument: value}), argument, says)
    with MonotaskExecutor(gate, 1, stage=value) as executor:
        refused(lambda: executor.submit(int), "stage", says)
    assert gate.counts()["waiting"] == 0


@pytest.mark.parametrize("value", ["1s", None, math.nan, True])
def test_the_timeout_of_a_wait(make: Make, value: Any) -> None:
    gate = make(patience_s=0.0)
    refused(lambda: gate.wait_connected(value), "timeout_s", "a number of seconds")
    gate.close()
    refused(lambda: gate.wait_closed(value), "timeout_s", "a number of seconds")
    assert gate.wait_closed(math.inf)
    assert gate.wait_closed(-1.0), "a timeout that is over already"


@pytest.mark.parametrize("value", ["2", 1.5, math.nan, True, 0, -1])
def test_the_threads_of_an_executor(make: Make, value: Any) -> None:
    gate = make(patience_s=0.0)
    refused(lambda: MonotaskExecutor(gate, value), "max_workers", "a whole number")


def test_an_executor_of_a_name_in_place_of_a_gate() -> None:
    name: Any = "squares"
    refused(lambda: MonotaskExecutor(name), "gate", "a Gate expected, not 'squares'")


@pytest.mark.parametrize(("size", "says"), _SIZES)
async def test_a_size_of_a_client(fake: FakeAgent, client: AgentClient, size: Any, says: str) -> None:
    with pytest.raises((TypeError, ValueError), match=f"^memory_bytes: .*{says}"):
        await client.register_job("a", memory_bytes=size)
    job = await client.register_job("b")
    refused(lambda: job.submit("cpu", size), "input_bytes", says)
    assert fake.called("submit") == []


async def test_other_numbers_of_a_client(fake: FakeAgent, client: AgentClient) -> None:
    with pytest.raises(ValueError, match=r"^priority: a number from -1e18 to 1e18 expected, not nan$"):
        await client.register_job("a", priority=math.nan)
    with pytest.raises(TypeError, match=r"^reconnect_s: a number of seconds expected, not '30s'; write 30"):
        await AgentClient.connect(fake.socket, reconnect_s="30s")  # type: ignore[arg-type]


async def test_what_no_message_can_carry(client: AgentClient) -> None:
    with pytest.raises(RpcError, match=r"numpy\.int64 is unsupported; convert it to a plain number or text first$"):
        await client.launch(ContainerSpec(argv=("x",), memory_bytes=np.int64(5)))  # type: ignore[arg-type]


def test_numbers_of_other_types_are_numbers(agent: AgentThread, make: Make) -> None:
    make(patience_s=10**400)
    gate: Gate = make(memory_bytes=np.int64(7), priority=np.float32(2), patience_s=np.float32(TIMEOUT_S))
    assert gate.wait_connected(TIMEOUT_S)
    for size in (np.int64(3), np.float32(3.5), 3.9):
        gate.acquire("cpu", size).release()  # type: ignore[arg-type]
    asked = [(each.memory_bytes, each.priority) for each in agent.agent.called("register_job")]
    assert (7, 2.0) in asked, "that of the first gate may come later"
    sizes = [each.input_bytes for call in agent.agent.called("submit") for each in call.monotasks]
    assert set(sizes) == {3} and all(type(each) is int for each in sizes)
