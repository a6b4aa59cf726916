"""Every method of the agent's socket, called by users who may not: refused, and nothing has changed.

The methods and their callers are declared in penstock.wire: a new one is tried here as a stranger, with its example.
"""

from __future__ import annotations

import asyncio
import os
import pwd
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from penstock.client import AgentClient, AgentUnavailable
from penstock.wire import agent_methods, relayed_methods
from penstock.wire.connection import to_wire
from penstock.wire.errors import ErrorCode, RpcError
from penstock.wire.method import Caller
from tests.integration.conftest import Client, Daemon, agents_in, masters_in
from tests.integration.security_callers import (
    OWNER,
    STRANGER,
    Callers,
    callers,
    identity,
    needs_root,
    open_directory,
)

pytestmark = needs_root
LIMIT_S = 60
#: A group of every Debian that has no members.
OPERATORS, OPERATORS_GID = "staff", 50
CONNECTIONS = 10
METHODS = {**agent_methods.REQUESTS, **relayed_methods.REQUESTS}
#: The calls whose example names nothing of the owner, or nothing that exists here.
_SAID: dict[str, dict[str, Any]] = {
    "register_job": {"name": "x", "job": ""},
    "reservations": {"everybody": True},
    "jobs": {"everybody": True},
    "order_jobs": {"jobs": ["j-1"]},
    "drain": {"nodes": ["test"], "stop": True},
    "undrain": {"nodes": ["test"]},
}
#: The methods that refuse a stranger → the parameters of the call: the example's, in which `filled` names the owner's.
OF_OTHERS: dict[str, dict[str, Any]] = {
    name: _SAID.get(name) or to_wire(method.example)
    for name, method in METHODS.items()
    if method.caller is not Caller.EVERYBODY
}


@dataclass
class Owned:
    """The owner's objects, and their state as the owner would see it after a change."""

    daemon: Daemon
    owner: Client
    ids: dict[str, Any]

    def filled(self, params: dict[str, Any]) -> dict[str, Any]:
        """Return the parameters with the ids of the owner's job, container, process and reservation."""
        found = {
            name: self.ids[name] if isinstance(value, str | int) and name in self.ids else value
            for name, value in params.items()
        }
        return found | ({"jobs": [self.ids["job"]]} if "jobs" in params else {})

    async def looks(self) -> dict[str, Any]:
        status = await asyncio.to_thread(self.daemon.status)
        (job,) = (job for job in status["jobs"] if job["job"] == self.ids["job"])
        (container,) = (one for one in status["containers"] if one["container"] == self.ids["container"])
        reservations = await self.owner.call("reservations")
        kept = {key: container[key] for key in ("user", "class", "state", "pid", "limits", "follows", "ended")}
        return {"job": job, "container": kept, "reservations": reservations, "all": len(status["containers"])}


@pytest.fixture(scope="module")
def daemon() -> Iterator[Daemon]:
    """One agent with its master for all tests here."""
    with open_directory() as here, masters_in(here) as master, agents_in(here) as agent:
        yield agent(cores=4, master=master().addresses["listen"], operators=OPERATORS, user_max_connections=CONNECTIONS)


@pytest.fixture
async def known(daemon: Daemon) -> AsyncIterator[Callers]:
    async with callers(daemon.socket) as made:
        yield made


@pytest.fixture
async def mine(daemon: Daemon, known: Callers) -> Owned:
    """Return a job with monotasks, a container and a reservation in their original state."""
    owner = await known.call_as(OWNER)
    job = await owner.call("register_job", name="owned")
    await owner.recorder.wait_for("job_admitted")
    monotasks = [{"id": n, "kind": "network", "input_bytes": 10**6} for n in range(1, 5)]
    await owner.call("submit", job=job["job"], monotasks=monotasks)
    launched = await owner.call("launch", container={"argv": ["sleep", "1000"], "cpu_cores": 0.25})
    for former in (await owner.call("reservations"))["reservations"]:
        await owner.call("delete_reservation", reservation=former["reservation"])
    promised = await owner.call("reserve", rdl="window(atom(<1core>, 1, 1, 1min, 1min), +1h, +2h)")
    ids = {
        key: one[key]
        for one, key in ((launched, "container"), (launched, "pid"), (job, "job"), (promised, "reservation"))
    }
    return Owned(daemon, owner, ids)


async def test_a_stranger_is_refused_by_every_method_and_nothing_has_changed(mine: Owned, known: Callers) -> None:
    before = await mine.looks()
    assert before["container"]["user"] == OWNER
    stranger = await known.call_as(STRANGER)
    for method, template in OF_OTHERS.items():
        with pytest.raises(RpcError) as caught:
            await stranger.call(method, **mine.filled(template))
        if method == "adopt":  # the launcher checks the owner of the process
            assert f"does not belong to {STRANGER} alone" in str(caught.value)
        else:
            assert caught.value.code is ErrorCode.REFUSED, f"{method}: {caught.value}"
    after = await mine.looks()
    assert after["all"] == before["all"] + 1, "the attempt to adopt is remembered as one that failed"
    assert {**after, "all": 0} == {**before, "all": 0}


async def test_without_asking_for_an_answer_nobody_gets_further(mine: Owned, known: Callers) -> None:
    """The hot path takes notifications on a way of its own."""
    before = await mine.looks()
    stranger = await known.call_as(STRANGER)
    told = {method: template for method, template in OF_OTHERS.items() if method in agent_methods.REQUESTS}
    for method, template in told.items():
        stranger.peer.notify(method, mine.filled(template))
    await stranger.call("status")
    answers = [(method, params) for method, params in stranger.recorder.received if method in {"error", "rejected"}]
    assert len(answers) == len(told)
    assert set(dict(answers)) == {"error", "rejected"}
    assert await mine.looks() == before


async def test_before_hello_nothing_is_answered(mine: Owned, known: Callers) -> None:
    silent = await known.call_as(OWNER, hello=False)
    for method in METHODS.keys() - {"hello"}:
        with pytest.raises(RpcError, match="the first message must be hello"):
            await silent.call(method, **mine.filled(OF_OTHERS.get(method, {})))


async def test_an_operator_may_act_on_what_is_others_and_a_former_one_may_not(mine: Owned, known: Callers) -> None:
    nearly = await known.call_as(STRANGER, [OPERATORS_GID + 1])
    with pytest.raises(RpcError, match=f"belongs to {OWNER}"):
        await nearly.call("output", container=mine.ids["container"])
    operator = await known.call_as(STRANGER, [7, OPERATORS_GID])
    await operator.call("register_job", name="x", job=mine.ids["job"])
    await operator.call("resize", container=mine.ids["container"], limits={"pids_max": 50})
    assert [one["user"] for one in (await operator.call("reservations", everybody=True))["reservations"]] == [OWNER]
    await operator.call("delete_reservation", reservation=mine.ids["reservation"])
    await operator.call("kill", container=mine.ids["container"])
    await operator.call("end_job", job=mine.ids["job"])
    async with asyncio.timeout(LIMIT_S):
        (ended,) = await mine.owner.recorder.wait_for("container_ended")
    assert ended["ended"]["reason"] == f"cancelled by {STRANGER}"


async def test_work_is_the_caller_s_own_with_nothing_of_ours(mine: Owned, known: Callers) -> None:
    """Its user and groups, no other environment, no way to more rights, no descriptor of ours, none of our limits."""
    caller = await known.call_as(STRANGER, [OPERATORS_GID])  # an operator's work is no other's
    shows = "id -u; id -g; id -G; env | cut -d= -f1 | sort | tr '\\n' ' '; echo; grep -E 'NoNewPrivs|CapEff|CapAmb' "
    shows += "/proc/self/status | tr -d '\\t'; ls -l /proc/self/fd | grep -c -E ' [0-9]+ ->'; umask; id -un"
    launched = await caller.call("launch", container={"argv": ["sh", "-c", shows]})
    await caller.recorder.wait_for("container_ended")
    said = (await caller.call("output", container=launched["container"]))["data"].decode().splitlines()
    uid, gid, groups, environment, *status, descriptors, umask, name = said
    entry = pwd.getpwnam(STRANGER)
    assert (uid, gid, name) == (str(entry.pw_uid), str(entry.pw_gid), STRANGER)
    assert {int(one) for one in groups.split()} == set(os.getgrouplist(STRANGER, entry.pw_gid)), "of the user database"
    assert set(environment.split()) <= {"PATH", "HOME", "USER", "LOGNAME", "SHELL", "PWD", "SHLVL", "_", "OLDPWD"}
    assert status == ["CapEff:0000000000000000", "CapAmb:0000000000000000", "NoNewPrivs:1"]
    assert int(descriptors) <= 4, "its own three, and the directory that ls reads"
    assert umask == "0022"


async def test_one_user_cannot_take_all_connections(mine: Owned, known: Callers) -> None:
    for _ in range(CONNECTIONS - 1):  # and the owner's first
        await known.call_as(OWNER)
    refused = await known.call_as(OWNER, hello=False)  # a connection counts from its beginning
    (said,) = await refused.recorder.wait_for("error")
    assert said["message"] == f"{OWNER} has {CONNECTIONS + 1} connections; user_max_connections is {CONNECTIONS}"
    assert said["code"] == ErrorCode.REFUSED
    await refused.recorder.gone.wait()
    with identity(OWNER), pytest.raises(AgentUnavailable, match=r"refuses this client: .*user_max_connections"):
        await AgentClient.connect(known.path)
    await known.call_as(STRANGER)
    for client in known.clients[-4:-1]:
        client.peer.close()
        await client.recorder.gone.wait()
    await mine.owner.call("status")
    await known.call_as(OWNER)


def test_the_agent_s_own_notifications_are_no_requests() -> None:
    assert not agent_methods.NOTIFICATIONS.keys() & METHODS.keys()
