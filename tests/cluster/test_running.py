"""The installed files at work: the units, their daemons, and the containers after a daemon is killed.

With machines of user-mode Linux; the additional tests with Debian's own kernel are in tests/kernel/test_units.py.
"""

from __future__ import annotations

import json
import re

import pytest

from tests.cluster.machines import MASTER, NAMES, PENSTOCK, Cluster

#: A node that is not the master's host.
_NODE = NAMES[2]
_WHERE = {"penstock-master": MASTER, "penstock-agent": _NODE, "penstock-containers": _NODE}


@pytest.mark.parametrize("unit", _WHERE)
def test_every_unit_runs_and_starts_at_boot(cluster: Cluster, unit: str) -> None:
    assert cluster.ssh(_WHERE[unit], f"systemctl is-active {unit}", check=False).strip() == "active"
    assert cluster.ssh(_WHERE[unit], f"systemctl is-enabled {unit}", check=False).strip() == "enabled"


@pytest.mark.parametrize(("unit", "most"), [("penstock-master", 2.0), ("penstock-agent", 4.0)])
def test_a_daemon_has_no_access_that_it_does_not_need(cluster: Cluster, unit: str, most: float) -> None:
    said = cluster.ssh(_WHERE[unit], f"systemd-analyze --no-pager security {unit}.service")
    found = re.search(r"Overall exposure level for .*: ([0-9.]+) ", said)
    assert found is not None and float(found[1]) <= most, said


@pytest.mark.parametrize("daemon", ["agent", "master"])
def test_the_journal_has_a_daemon_s_messages_as_fields(cluster: Cluster, daemon: str) -> None:
    asked = f"journalctl --unit penstock-{daemon} --output json --lines 1 'PENSTOCK_EVENT={daemon} started'"
    entry = json.loads(cluster.ssh(_WHERE[f"penstock-{daemon}"], asked))
    assert entry["PRIORITY"] == "6" and ":" in entry["PENSTOCK_HTTP"], entry


@pytest.mark.parametrize(("daemon", "line"), [("agent", "t_alloc = 0.75"), ("master", 'ordering = "fair"')])
def test_a_reload_applies_the_present_file(cluster: Cluster, daemon: str, line: str) -> None:
    file, unit = f"/etc/penstock/{daemon}.toml", f"penstock-{daemon}"
    where = _WHERE[unit]
    before = cluster.pid(where, unit)
    heard = f"until journalctl -q -u {unit} --since @$(stat -c %Y {file}) | grep 'configuration reloaded'; do :; done"
    said = cluster.ssh(
        where,
        f"cp -p {file} {file}.before && echo '{line}' >>{file} && {PENSTOCK} config check {daemon} {file} && "
        f'systemctl reload {unit} && timeout 120 sh -c "{heard}"; mv {file}.before {file}; systemctl reload {unit}',
    )
    assert line.rsplit(maxsplit=1)[-1].strip('"') in said
    assert cluster.pid(where, unit) == before


def test_a_command_runs_as_the_user_that_requested_it(cluster: Cluster) -> None:
    said = cluster.penstock(_NODE, "run -- sh -c 'echo hello from $(id -un)'", user="tester")
    assert said == "hello from tester\n"


def test_a_container_lives_on_when_the_agent_is_killed(cluster: Cluster) -> None:
    before = cluster.pid(_NODE, "penstock-agent")
    cluster.penstock(_NODE, "run --detach -- sleep 1000", user="tester")
    container = _sleeps(cluster)
    cluster.ssh(_NODE, f"kill -KILL {before}")
    assert container and _restarted(cluster, before) != before
    assert _sleeps(cluster) == container
    assert "sleep" in cluster.penstock(_NODE, "status --json", user="tester"), "the new agent knows the container"


@pytest.mark.parametrize(
    ("options", "names"),
    [(("--check", "--diff", "--limit", MASTER), (MASTER,)), (("--limit", f"{MASTER},{NAMES[1]}"), NAMES[:2])],
    ids=["asked", "done"],
)
def test_the_second_run_changes_nothing_and_ends_nothing(
    cluster: Cluster, options: tuple[str, ...], names: tuple[str, ...]
) -> None:
    pids, container = cluster.pids(), _sleeps(cluster)
    plain = "--check" not in options  # as an operator with Ansible alone: once, where it costs least
    recap = cluster.play("site.yml", "-e", "penstock_serial=100%", *options, persistent=not plain)
    assert {name: counts["changed"] for name, counts in recap.items()} == dict.fromkeys(names, 0)
    assert (cluster.pids(), _sleeps(cluster)) == (pids, container)


def test_a_restart_of_the_agent_ends_nothing(cluster: Cluster) -> None:
    """A client that waits goes on waiting, too."""
    cluster.ssh(
        _NODE, f"cd / && (runuser -u tester -- nohup {PENSTOCK} run -- sleep 2000 >/dev/null 2>&1 </dev/null &)"
    )
    cluster.ssh(_NODE, "timeout 120 sh -c 'until pgrep -x -u tester -f \"sleep 2000\"; do sleep 0.2; done'")
    before, waits = _sleeps(cluster), f"pgrep -u tester -f '{PENSTOCK} run'"
    waiting = cluster.ssh(_NODE, waits)
    cluster.ssh(_NODE, "systemctl restart penstock-agent")
    assert len(before) == 2 and _sleeps(cluster) == before
    assert cluster.ssh(_NODE, waits) == waiting


def test_all_comes_back_when_the_owner_of_the_containers_is_killed(cluster: Cluster) -> None:
    agent, owner = (cluster.pid(_NODE, unit) for unit in ("penstock-agent", "penstock-containers"))
    cluster.ssh(_NODE, f"kill -KILL {owner}")
    _restarted(cluster, agent)
    assert cluster.pid(_NODE, "penstock-containers") not in {0, owner}
    assert _sleeps(cluster) == [], "its containers end with it"
    assert cluster.penstock(_NODE, "run --memory 64M -- echo again", user="tester") == "again\n"


def _sleeps(cluster: Cluster) -> list[str]:
    """The processes of the container."""
    return cluster.ssh(_NODE, "pgrep -x -u tester sleep", check=False).split()


def _restarted(cluster: Cluster, before: int) -> int:
    """The agent's process once systemd calls its successor active: the machine itself waits for that."""
    cluster.ssh(
        _NODE,
        "timeout 120 sh -c 'until systemctl is-active -q penstock-agent && "
        f'[ "$(systemctl show --property MainPID --value penstock-agent)" != {before} ]; do :; done\'',
    )
    return cluster.pid(_NODE, "penstock-agent")
