"""And back: nothing is left."""

from __future__ import annotations

import pytest

from tests.cluster.machines import MASTER, NAMES, Cluster


@pytest.mark.parametrize("options", [(), ("-e", "penstock_uninstall=yes")], ids=["not meant", "something runs"])
def test_nothing_is_removed_unless_that_is_meant(cluster: Cluster, options: tuple[str, ...]) -> None:
    if options:
        cluster.penstock(NAMES[1], "run --detach --net 80Mbit/s --net-in 80Mbit/s -- sleep 10000", user="tester")
    cluster.play("uninstall.yml", *options, expect=2)
    assert {node["state"] for node in cluster.nodes().values()} == {"connected"}


def test_nothing_is_left_of_it(cluster: Cluster, bare: dict[str, list[str]]) -> None:
    added = set(cluster.survey(NAMES[1])[NAMES[1]]) - set(bare[NAMES[1]])
    seen = {line.split()[0] for line in added}
    assert {"file", "directory", "unit", "cgroup", "qdisc", "bpf"} <= seen, "the comparison covers all kinds"
    cluster.play("uninstall.yml", "-e", "penstock_uninstall=yes", "-e", "penstock_agent_kill=yes")
    after = cluster.survey()
    for name in NAMES:
        assert (sorted(set(after[name]) - set(bare[name])), sorted(set(bare[name]) - set(after[name]))) == ([], [])
    recap = cluster.play("uninstall.yml", "-e", "penstock_uninstall=yes", "--limit", MASTER)
    assert recap[MASTER]["changed"] == 0
