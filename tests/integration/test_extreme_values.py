"""Every number of the wire at its extremes, and wrong types in every place: bad input is never the daemon's failure."""

from __future__ import annotations

import dataclasses
import enum
import math
import os
import socket
from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import msgpack
import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from docs.make_protocol import REQUESTS
from penstock.model.container import Limits, Notice
from penstock.model.executor import Executor
from penstock.model.profile import Profile
from penstock.wire.agent_api import Completion, Leased
from tests.integration.conftest import Daemon, agents_in, masters_in
from tests.integration.security_callers import OWNER, identity, needs_root, open_directory

pytestmark = needs_root
NUMBERS = [
    0, 1, -1, 2**31 - 1, 2**31, 2**32, 2**53 + 1, 2**62, 2**63 - 1, 2**63, 2**64 - 1, -(2**31) - 1, -(2**63),
    0.0, -0.0, 0.5, -1.0, 5e-324, 1e300, 1.7976931348623157e308, math.nan, math.inf, -math.inf,
]  # fmt: skip
OTHERS = [
    None, True, False, "", "x", "1", "nan", "\0", "é" * 100, "../..", b"", b"\xff\0", [], [1], [[]], {}, {"x": 1},
    {1: 2},
]  # fmt: skip
#: Fields that the examples leave out.
MORE: dict[str, Any] = {
    "launch": {"container": {"limits": Limits(
        cpu_cores=0.5, cpu_burst_s=0.01, cpu_weight=10, memory_high_bytes=1 << 28, memory_max_bytes=1 << 28,
        disk_read_bytes_per_s=1 << 20, disk_write_bytes_per_s=1 << 20, disk_read_ops_per_s=100, disk_write_ops_per_s=9,
        network_egress_bytes_per_s=1 << 20, network_ingress_bytes_per_s=1 << 20, pids_max=10,
    ), "notice": Notice()}},
    "follow": {"profile": Profile(
        cpu_cores=(1.0, 2.0), memory_bytes=(1 << 28,), disk_bytes_per_s=(1 << 20,), network_bytes_per_s=(1 << 20,),
        stages=(1, 2),
    )},
    "complete": {"monotasks": [Completion(
        id=1, execution_s=0.1, leased=Leased(monotasks=2, failed=1, input_bytes=5, execution_s=0.1, began_s=0.1),
    )]},
    "reservations": {"at": 1795000000.0},
}  # fmt: skip
Path = tuple[str | int, ...]


def whole(value: Any) -> Any:
    """A value as it travels, with all defaults."""
    if isinstance(value, msgspec.Struct):
        return {name: whole(getattr(value, name)) for name in value.__struct_fields__}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: whole(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, list | tuple):
        return [whole(each) for each in value]
    if isinstance(value, dict):
        return {key: whole(each) for key, each in value.items()}
    return value.value if isinstance(value, enum.Enum) else value


def places(value: Any, at: Path = ()) -> Iterator[Path]:
    """Everything in a value that can be replaced."""
    yield at
    if isinstance(value, dict):
        for key, each in value.items():
            yield from places(each, (*at, key))
    elif isinstance(value, list):
        for index, each in enumerate(value):
            yield from places(each, (*at, index))


def merged(value: Any, more: Any) -> Any:
    """Merge maps within maps; of other values take those of the second."""
    if isinstance(value, dict) and isinstance(more, dict):
        return {key: merged(value.get(key), more[key]) if key in more else value[key] for key in {**value, **more}}
    return more


def replaced(value: Any, at: Path, by: Any) -> Any:
    if not at:
        return by
    changed = deepcopy(value)
    within = changed
    for step in at[:-1]:
        within = within[step]
    within[at[-1]] = by
    return changed


class Caller:
    """A connection as a user without privileges, which is made anew when the agent closed it."""

    def __init__(self, daemon: Daemon) -> None:
        self.daemon = daemon
        self.ids = {"job": "", "container": "", "reservation": ""}
        self.count = 0
        self.connect()

    def connect(self) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(60)
        with identity(OWNER):
            self.socket.connect(str(self.daemon.socket))
        self.unpacker = msgpack.Unpacker(max_buffer_size=1 << 26, strict_map_key=False)
        self.number = 0
        assert self.call("hello", {"protocol": 1})[0] is None
        self.ids["job"] = self.call("register_job", {"name": "j"})[1]["job"]
        launched = {"argv": ["/bin/true"], "cwd": "/", "detach": True}
        self.ids["container"] = self.call("launch", {"container": launched})[1]["container"]

    def fresh(self) -> str:
        self.count += 1
        return f"n{self.count}"

    def call(self, method: str, params: Any) -> tuple[Any, Any]:
        """Error and result."""
        self.number += 1
        self.socket.sendall(msgpack.packb([0, self.number, method, [params]]))
        while True:
            for message in self.unpacker:
                if message[0] == 1 and message[1] == self.number:
                    return message[2], message[3]
            data = self.socket.recv(1 << 18)
            if not data:
                raise ConnectionResetError
            self.unpacker.feed(data)

    def example(self, method: str) -> Any:
        """Parameters that make sense, of things that there are, and that do no harm."""
        params = merged(whole(REQUESTS[method].example), whole(MORE.get(method, {})))
        if method == "place":
            task = params["tasks"][0]
            task["task"] = self.fresh()
            task["command"]["notice"] = whole(Notice())
            task["executor"] = whole(Executor(application="a", input_bytes=5))
        if method == "submit":
            for monotask in params["monotasks"]:
                monotask["id"] = self.fresh()
        for name, one in self.ids.items():
            if name in params and one:
                params[name] = one
        if isinstance(container := params.get("container"), dict):
            container |= {"argv": ["/bin/true"], "cwd": "/", "detach": False}
        if method == "adopt":
            params["pid"] = os.getpid()  # of another user
        return params


@pytest.fixture(scope="module")
def caller() -> Iterator[Caller]:
    with open_directory() as here:
        with masters_in(here) as master, agents_in(here) as agent:
            listen = master().addresses["listen"]
            yield Caller(agent(cores=4, master=listen, user_max_jobs=0, user_max_containers=0))
        for name in ("agent", "master"):
            for line in (here / f"{name}.log").read_text().splitlines():
                assert "Traceback" not in line and "failed" not in line, line


METHODS = sorted(REQUESTS.keys() - {"hello"})


@pytest.mark.parametrize("method", METHODS)
def test_no_value_is_the_daemon_s_failure(caller: Caller, method: str) -> None:
    @settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
    @given(data=st.data())
    def tried(data: st.DataObject) -> None:
        params = caller.example(method)
        for _ in range(data.draw(st.integers(1, 2))):
            at = data.draw(st.sampled_from(list(places(params))))
            if at[-1:] not in [("argv",), ("env",)] and "argv" not in at:  # a command's words are no numbers
                params = replaced(params, at, data.draw(st.sampled_from(NUMBERS + OTHERS)))
        try:
            error, _ = caller.call(method, params)
        except (ConnectionResetError, BrokenPipeError):
            caller.connect()
            raise AssertionError(f"the agent hung up on {method}({params})") from None
        if error is not None:
            assert error["code"] != "internal", (method, params, error)
            assert "\n" not in error["message"]

    tried()


@pytest.mark.parametrize("number", NUMBERS)
def test_every_number_of_every_method_at_every_extreme(caller: Caller, number: float) -> None:
    """Each place of a number, one after the other."""
    for method in METHODS:
        example = caller.example(method)
        for at in places(example):
            value = example
            for step in at:
                value = value[step]
            if isinstance(value, int | float) and not isinstance(value, bool):
                fresh = example if method not in ("submit", "place") else caller.example(method)
                error, _ = caller.call(method, replaced(fresh, at, number))
                assert error is None or error["code"] != "internal", (method, at, number, error)
    for method in ("status", "cluster_status", "jobs"):  # accepted values can be shown
        assert caller.call(method, {})[0] is None
    assert caller.daemon.status()["node"] == "test"


@pytest.mark.parametrize("offset", [2**63 - 1, 2**63, 2**63 - 4096, 2**64 - 1, -1])
def test_an_offset_that_no_file_has_is_one_line_that_names_it(caller: Caller, offset: int) -> None:
    error, output = caller.call("output", {"container": caller.ids["container"], "offset": offset})
    if error is not None:
        assert (error["code"], error["field"]) == ("bad_request", "offset")
    else:
        assert (output["data"], output["offset"]) == (b"", offset)


def test_sums_beyond_the_range_of_an_integer_are_shown(caller: Caller) -> None:
    job = caller.call("register_job", {"name": "large"})[1]["job"]
    large = [{"id": one, "kind": "network", "input_bytes": 2**63 - 1} for one in range(5)]
    assert caller.call("submit", {"job": job, "monotasks": large})[0] is None
    assert caller.call("status", {})[1]["status"]["kinds"]["network"]["pending_bytes"] == 2**63 - 1
    assert caller.daemon.status()["kinds"]["network"]["pending_bytes"] == 2**63 - 1
    assert caller.call("end_job", {"job": job})[0] is None


@pytest.mark.parametrize("amount", [math.nan, math.inf, -1.0])
def test_work_that_is_no_number_is_refused_before_it_is_sent_to_the_master(caller: Caller, amount: float) -> None:
    """A registration that carries it would be refused as a whole, and the node with it."""
    job = caller.call("register_job", {"name": "numbers"})[1]["job"]  # random calls before may have ended the other
    task = {"task": caller.fresh(), "usage": {"cpu": 1.0, "disk": amount}}
    error, _ = caller.call("place", {"job": job, "stage": "s", "tasks": [task]})
    assert (error["code"], error["field"]) == ("bad_request", "tasks[0].usage")
    assert caller.call("end_job", {"job": job})[0] is None
