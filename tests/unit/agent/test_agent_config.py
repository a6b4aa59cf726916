"""The agent's configuration: its effect on the node, and the keys that can change while the node runs."""

from __future__ import annotations

from typing import Any

import pytest

from agent.config import AgentConfig
from agent.core.settings import NodeSettings, VictimOrder
from penstock.config.settings import SettingsError, live_keys

#: Of each kind of value, another one that is allowed.
_OTHER = {"preempt_order": VictimOrder.LARGEST, "disk_scheduler": "bfq", "t_alloc_least": 0.4, "grace_max_s": 7.0}
#: Keys that the agent reads where it uses them, and not through the node.
_OF_THE_DAEMON = {
    "user_max_connections",
    "container_pids_max",
    "sample_interval_s",
    "memory_look_interval_s",
    "repair_interval_s",
    "output_max_bytes",
}


def settings_of(**keys: Any) -> NodeSettings:
    return AgentConfig(**keys).node_settings(instance="x", disks=1)


def other(key: str) -> Any:
    """Another value than the default."""
    default = getattr(AgentConfig(), key)
    if key in _OTHER:
        return _OTHER[key]
    return not default if isinstance(default, bool) else default + "x" if isinstance(default, str) else default / 2 or 1


@pytest.mark.parametrize("key", sorted(live_keys(AgentConfig) - _OF_THE_DAEMON))
def test_a_key_that_is_read_again_reaches_the_running_node(key: str) -> None:
    around = {"t_alloc_tuned": True} if key == "t_alloc_least" else {}
    before, after = settings_of(**around), settings_of(**{key: other(key), **around})
    assert before.changed(after) != before


@pytest.mark.parametrize("key", sorted(set(AgentConfig.__struct_fields__) - live_keys(AgentConfig)))
def test_a_key_that_needs_a_restart_does_not(key: str) -> None:
    before = settings_of(memory_bytes=1000, cores=2.0)
    after = settings_of(**{"memory_bytes": 1000, "cores": 2.0, key: other(key)})
    assert before.changed(after) == before


def test_no_opportunistic_work_is_a_t_alloc_of_nothing() -> None:
    settings = settings_of(opportunistic=False, t_alloc=0.7, t_alloc_tuned=True)
    assert (settings.t_alloc, settings.t_alloc_tuning) == (0.0, None)


def test_samples_before_preemption_by_resource() -> None:
    preemption = settings_of(preempt_after=4, preempt_after_disk=1).preemption
    assert [preemption.samples(resource) for resource in ("cpu", "disk", "network")] == [4, 1, 4]


def test_contradictory_settings() -> None:
    with pytest.raises(SettingsError) as caught:
        AgentConfig(http="", master="head", t_alloc_tuned=True, t_alloc=0.3).check()
    assert [fault.split(":")[0] for fault in caught.value.faults] == ["http", "master", "t_alloc_least"]
    AgentConfig().check()


@pytest.mark.parametrize("name", ["a\nb", "a\r", "a\x1b[31m", "\x7f", "a\u2028b"])
def test_a_node_s_name_is_one_printable_line(name: str) -> None:
    with pytest.raises(SettingsError) as caught:
        AgentConfig(node=name).check()
    [fault] = caught.value.faults
    assert fault.startswith("node: ") and fault.isprintable()
    AgentConfig(node="α host-1").check()
