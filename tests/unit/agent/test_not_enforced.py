"""The log's warnings of limits that the host does not enforce: one for each cause, with all that lack it."""

from __future__ import annotations

from typing import Any

from structlog.testing import capture_logs

from agent import not_enforced
from agent.cgroups.reason import UNIFIED, Reason

V1 = {name: Reason(f"the {name} controller is bound to cgroup v1", UNIFIED) for name in ("cpu", "io", "memory")}
ONE = "some limits are not enforced"


def warned(missing: dict[str, Reason], capped: dict[str, str]) -> list[dict[str, Any]]:
    with capture_logs() as logged:
        not_enforced.warn(missing, capped)
    assert {each.pop("log_level") for each in logged} <= {"warning"}
    return [dict(each) for each in logged]


def test_all_that_the_same_cause_prevents_is_one_warning() -> None:
    why = f"each is bound to cgroup v1; remedy: {UNIFIED}"
    assert warned(V1, {"memory_max_bytes": str(V1["memory"]), "cpu_cores": str(V1["cpu"])}) == [
        {
            "event": ONE, "controllers": "cpu, io, memory", "of_all_containers": "memory_max_bytes, cpu_cores",
            "why": why, "details": "penstock check",
        }
    ]  # fmt: skip


def test_another_cause_is_another_warning() -> None:
    gone = Reason("this kernel has no pids controller", "use a kernel that is built with it")
    first, second = warned({**V1, "pids": gone}, {"pids_max": str(gone)})
    assert (first["controllers"], "of_all_containers" in first) == ("cpu, io, memory", False)
    assert second == {
        "event": ONE, "controllers": "pids", "of_all_containers": "pids_max", "why": str(gone),
        "details": "penstock check",
    }  # fmt: skip


def test_a_limit_of_all_containers_that_lacks_no_controller_has_a_warning_of_its_own() -> None:
    why = "memory.low: Permission denied"
    assert warned({}, {"memory_low_bytes": why}) == [
        {"event": "containers together are not limited", "what": "memory_low_bytes", "why": why}
    ]


def test_where_all_is_enforced_nothing_is_logged() -> None:
    assert warned({}, {}) == []
