"""From three bare machines to a cluster: one inventory, one command."""

from __future__ import annotations

import json

from tests.cluster.machines import MASTER, NAMES, Cluster


def test_a_dry_run_shows_the_changes(cluster: Cluster, bare: dict[str, list[str]]) -> None:
    # One machine will do, the one that everything is for: master and node.
    recap = cluster.play("site.yml", "--check", "--diff", "--limit", MASTER)
    assert recap.keys() == {MASTER} and recap[MASTER]["changed"] > 0
    assert cluster.survey(MASTER)[MASTER] == bare[MASTER]
    assert not (cluster.directory / "ca").exists()


def test_one_command_makes_a_cluster_of_bare_machines(cluster: Cluster) -> None:
    cluster.play("site.yml", "-e", "penstock_serial=100%")
    assert {name: node["state"] for name, node in cluster.nodes().items()} == dict.fromkeys(NAMES, "connected")
    for said in cluster.everywhere("penstock status --json").values():
        assert json.loads(said)["master"] == {"address": f"{MASTER}:7420", "linked": True}


def test_keys_are_readable_only_by_their_daemons(cluster: Cluster) -> None:
    for name, said in cluster.everywhere("cd /etc/penstock/tls && stat -c '%n %U:%G %a' *").items():
        expected = {"ca.pem root:root 644", "crl.pem root:root 644", "node.pem root:root 644", "node.key root:root 600"}
        if name == MASTER:
            expected |= {"master.pem root:root 644", "master.key root:penstock-tls 640"}
        assert set(said.splitlines()) == expected


def test_the_master_s_page_is_open_to_those_with_a_token(cluster: Cluster) -> None:
    said = cluster.ssh(MASTER, "stat -c '%n %U:%G %a' /etc/penstock/*.token").splitlines()
    assert set(said) == {
        "/etc/penstock/master-http.token root:penstock-tls 640",
        "/etc/penstock/master-http-read.token root:penstock-tls 640",
    }
    assert cluster.page(NAMES[2], "/status", "none") == "401"
    assert cluster.page(NAMES[2], "/healthz") == "ok"
