"""Declarations of methods: a server must answer all of them, and each that users call has an example."""

from __future__ import annotations

from collections import Counter

import pytest

from penstock.wire import agent_methods, master_api, relayed_methods
from penstock.wire.agent_api import Cancel, Grants, Notice
from penstock.wire.agent_methods import CANCEL, KILL, STATUS
from penstock.wire.connection import read, to_wire
from penstock.wire.errors import RpcError
from penstock.wire.jobs_api import SlotTakenBack
from penstock.wire.method import USERS, Caller, Method, handlers, methods_of
from penstock.wire.relayed_methods import OF_JOBS, RELAYS, USE_RESERVATION
from penstock.wire.reservation_api import OnBehalf

OF_USERS = {**agent_methods.REQUESTS, **relayed_methods.REQUESTS}


def test_a_server_has_a_handler_for_every_declared_method() -> None:
    served = [CANCEL.served_by(lambda server, asked: (server, asked.ids)), STATUS.served_by(lambda server, _: server)]
    method, handler = handlers([CANCEL, STATUS], served)["cancel"]
    assert (method, handler("here", Cancel(job="j", ids=[1]))) == (CANCEL, ("here", [1]))
    with pytest.raises(TypeError, match="not both declared and served: kill"):
        handlers([CANCEL, STATUS, KILL], served)
    with pytest.raises(TypeError, match="not both declared and served: status"):
        handlers([CANCEL], served)


def test_methods_are_found_by_their_callers() -> None:
    module = {"A": CANCEL, "B": STATUS, "C": 3, "D": master_api.HEARTBEAT}
    assert methods_of(module, Caller.EVERYBODY, Caller.AGENT) == {"status": STATUS, "heartbeat": master_api.HEARTBEAT}
    assert len(agent_methods.REQUESTS) + len(relayed_methods.REQUESTS) == len(OF_USERS)


@pytest.mark.parametrize("method", OF_USERS.values(), ids=lambda method: method.name)
def test_every_method_of_users_has_an_example(method: Method) -> None:
    assert method.caller in USERS
    assert None not in (method.example, method.answer)


def test_every_relayed_method_has_one_relay() -> None:
    calls = Counter(call for relay in RELAYS for call in relay.calls)
    assert calls == Counter([*relayed_methods.REQUESTS.values(), USE_RESERVATION])


def test_a_relay_reads_its_own_calls_only() -> None:
    asked = OnBehalf(user="eve", operator=False, call="cancel_job", params={"job": "j-1"})
    assert OF_JOBS.read(asked).job == "j-1"
    with pytest.raises(RpcError, match=r"no call 'drain' \(one of jobs, cancel_job, order_jobs, explain_job\)"):
        OF_JOBS.read(OnBehalf(user="eve", operator=False, call="drain"))
    with pytest.raises(RpcError, match="job"):
        OF_JOBS.read(OnBehalf(user="eve", operator=False, call="cancel_job", params={"job": 1}))


def test_the_type_of_a_notification_names_it() -> None:
    assert {Grants.METHOD, SlotTakenBack.METHOD} == {"grant", "slot_taken_back"}
    assert set(agent_methods.NOTIFICATIONS.values()) == set(Notice.__subclasses__())
    assert len(agent_methods.NOTIFICATIONS) == len(agent_methods.NOTICES), "two have one name"
    assert "METHOD" not in to_wire(Grants(job="j", ids=[1]))


def test_the_type_of_a_message_to_the_master_names_its_method() -> None:
    assert len({method.params for method in master_api.REQUESTS.values()}) == len(master_api.REQUESTS)


def test_what_an_older_agent_reports_in_a_load_is_read_without_the_fields_that_are_no_longer_used() -> None:
    load = {"rates": {}, "pending": {}, "idle": {}, "used_cores": 1.5}
    older = {"decided": 3, "load": load | {"opportunistic_memory_bytes": 1 << 30}}
    heartbeat = read(older, master_api.Heartbeat)
    assert heartbeat == read({"decided": 3, "load": load}, master_api.Heartbeat)
    assert heartbeat.load.used_cores == 1.5
