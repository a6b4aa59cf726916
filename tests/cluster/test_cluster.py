"""From three bare machines to a cluster and back: the playbooks over ssh, with the machines' real systemd and kernels.

One cluster for all tests here; they build on each other, in this order.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator

import pytest

from tests.cluster.machines import MASTER, NAMES, Cluster, bare_cluster, build_wheel
from tests.vm.host import say

pytestmark = pytest.mark.timeout(3600)
_WIDTH = 12
#: Where jobs are submitted from: a node that is drained and restarted with the others.
_FRONT = NAMES[1]
_RAN = "/home/tester/ran"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three bare machines; what was there before is in ``bare``."""
    directory = tmp_path_factory.mktemp("cluster")
    wheel = build_wheel(directory, "0.1.0+old")
    with bare_cluster(directory) as cluster:
        cluster.variables = {
            "penstock_venv_wheel": str(wheel),
            "penstock_venv_wheelhouse": "/opt/wheelhouse",
            "penstock_ca_directory": str(directory / "ca"),
            "penstock_master_http": "0.0.0.0:7422",
        }
        yield cluster


@pytest.fixture(scope="module")
def bare(cluster: Cluster) -> dict[str, list[str]]:
    """What there was before anything was installed."""
    return cluster.survey()


def test_it_can_be_asked_what_would_be_done(cluster: Cluster, bare: dict[str, list[str]]) -> None:
    # One machine will do, the one that everything is for: master and node.
    recap = cluster.play("site.yml", "--check", "--diff", "--limit", MASTER)
    assert recap.keys() == {MASTER} and recap[MASTER]["changed"] > 0
    assert cluster.survey() == bare
    assert not (cluster.directory / "ca").exists()


def test_one_command_makes_a_cluster_of_bare_machines(cluster: Cluster) -> None:
    cluster.play("site.yml", "-e", "penstock_serial=100%")
    assert {name: node["state"] for name, node in cluster.nodes().items()} == dict.fromkeys(NAMES, "connected")
    for said in cluster.everywhere("penstock status --json").values():
        assert json.loads(said)["master"] == {"address": f"{MASTER}:7420", "linked": True}


def test_keys_are_for_those_who_need_them(cluster: Cluster) -> None:
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


@pytest.mark.parametrize(
    ("options", "names"), [(("--check", "--diff", "--limit", MASTER), (MASTER,)), ((), NAMES)], ids=["asked", "done"]
)
def test_the_second_run_changes_nothing(cluster: Cluster, options: tuple[str, ...], names: tuple[str, ...]) -> None:
    pids = _pids(cluster)
    recap = cluster.play("site.yml", "-e", "penstock_serial=100%", *options)
    assert {name: counts["changed"] for name, counts in recap.items()} == dict.fromkeys(names, 0)
    assert _pids(cluster) == pids


def test_a_job_runs_across_them(cluster: Cluster) -> None:
    _prepare(cluster)
    cluster.ssh(_FRONT, "cd /home/tester && runuser -u tester -- /usr/local/bin/penstock submit job.toml")
    ran = _ran(cluster)
    assert Counter(task for task, _ in ran) == {f"task{number}": 1 for number in range(_WIDTH)}
    assert {node for _, node in ran} == set(NAMES)


def test_an_upgrade_goes_on_under_load_and_no_work_is_lost_or_done_twice(cluster: Cluster) -> None:
    _prepare(cluster)
    # An agent that is being restarted cannot be asked for a moment; who asks then asks again. Had a job that failed run
    # anything before, that would be counted twice.
    cluster.ssh(
        _FRONT,
        "cd /home/tester && (runuser -u tester -- nohup sh -c '"
        "until [ -e enough ]; do until /usr/local/bin/penstock submit job.toml; do sleep 1; done; echo >>jobs; done; "
        "touch over' >log 2>&1 </dev/null &)",
    )
    _until(cluster, "[ -s jobs ]")
    wheel = build_wheel(cluster.directory, "0.1.1")
    before = _pids(cluster)
    cluster.variables["penstock_venv_wheel"] = str(wheel)
    # One node first, then both others at once: there is always one that goes on.
    cluster.play("site.yml", "-e", json.dumps({"penstock_serial": [1, 2], "penstock_agent_drain_timeout": "10min"}))
    during = int(cluster.ssh(_FRONT, "wc -l </home/tester/jobs"))
    cluster.ssh(_FRONT, "touch /home/tester/enough")
    _until(cluster, "[ -e over ]")
    jobs = int(cluster.ssh(_FRONT, "wc -l </home/tester/jobs"))
    say(f"upgrade under load: {during} jobs of {_WIDTH} commands ended before its end, {jobs} in all")
    print(cluster.ssh(_FRONT, "tail -n 100 /home/tester/log"))
    assert Counter(task for task, _ in _ran(cluster)) == {f"task{number}": jobs for number in range(_WIDTH)}
    assert during > 1
    after = _pids(cluster)
    assert all(after[key] not in {"0", before[key]} for key in before), "everything is of the new wheel"
    nodes = cluster.nodes()
    assert {name: (node["state"], node["version"]) for name, node in nodes.items()} == dict.fromkeys(
        NAMES, ("connected", "0.1.1")
    )
    for said in cluster.everywhere("ls /opt/penstock/venvs").values():
        assert len(said.split()) == 1, "the former one is gone"


def test_a_node_is_drained_and_undrained(cluster: Cluster) -> None:
    cluster.play("drain.yml", "--limit", NAMES[2])
    assert cluster.nodes()[NAMES[2]]["state"] == "drained"
    _prepare(cluster)
    cluster.ssh(_FRONT, "cd /home/tester && runuser -u tester -- /usr/local/bin/penstock submit job.toml")
    assert NAMES[2] not in {node for _, node in _ran(cluster)}
    cluster.play("undrain.yml", "--limit", NAMES[2])
    assert cluster.nodes()[NAMES[2]]["state"] == "connected"


@pytest.mark.parametrize("options", [(), ("-e", "penstock_uninstall=yes")], ids=["not meant", "something runs"])
def test_nothing_is_removed_unless_that_is_meant(cluster: Cluster, options: tuple[str, ...]) -> None:
    if options:
        cluster.penstock(NAMES[1], "run --detach --net 80Mbit/s --net-in 80Mbit/s -- sleep 10000", user="tester")
    cluster.play("uninstall.yml", *options, expect=2)
    assert {node["state"] for node in cluster.nodes().values()} == {"connected"}


def test_nothing_is_left_of_it(cluster: Cluster, bare: dict[str, list[str]]) -> None:
    added = set(cluster.survey()[NAMES[1]]) - set(bare[NAMES[1]])
    seen = {line.split()[0] for line in added}
    assert {"file", "directory", "unit", "cgroup", "qdisc", "bpf"} <= seen, "the comparison sees what there is"
    cluster.play("uninstall.yml", "-e", "penstock_uninstall=yes", "-e", "penstock_agent_kill=yes")
    after = cluster.survey()
    for name in NAMES:
        assert (sorted(set(after[name]) - set(bare[name])), sorted(set(bare[name]) - set(after[name]))) == ([], [])
    recap = cluster.play("uninstall.yml", "-e", "penstock_uninstall=yes", "--limit", MASTER)
    assert recap[MASTER]["changed"] == 0


def _prepare(cluster: Cluster) -> None:
    """The job's file, and no trace of former ones. Each command says once that it ran, and where."""
    tasks = "".join(
        f'[[task]]\nname = "task{number}"\nstage = "all"\ninput_bytes = "50MB"\nmemory = "32M"\n'
        f'command = "echo task{number} $(hostname) >>{_RAN}; sleep 1"\n'
        for number in range(_WIDTH)
    )
    cluster.everywhere(f"cd /home/tester && rm -f {_RAN} jobs log enough over")
    text = f'name = "load"\n{tasks}'
    cluster.ssh(_FRONT, f"cat >/home/tester/job.toml <<'END'\n{text}END")


def _ran(cluster: Cluster) -> list[tuple[str, str]]:
    """Each run of a command on any machine: its name, and the machine's."""
    said = "".join(cluster.everywhere(f"cat {_RAN}", check=False).values())
    return [(task, node) for task, _, node in (line.partition(" ") for line in said.splitlines())]


def _until(cluster: Cluster, condition: str) -> None:
    cluster.ssh(_FRONT, f"cd /home/tester && timeout 600 sh -c 'until {condition}; do sleep 0.2; done'")


def _pids(cluster: Cluster) -> dict[tuple[str, str], str]:
    """Of every unit's process."""
    units = ("penstock-agent", "penstock-containers", "penstock-master")
    said = cluster.everywhere(
        f"for unit in {' '.join(units)}; do systemctl show --property MainPID --value $unit; done"
    )
    pids = {(name, unit): pid for name in NAMES for unit, pid in zip(units, said[name].split(), strict=True)}
    return {key: pid for key, pid in pids.items() if key[1] != "penstock-master" or key[0] == MASTER}
