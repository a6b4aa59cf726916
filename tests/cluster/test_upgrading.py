"""Jobs across the nodes, an upgrade under them, a node that is drained."""

from __future__ import annotations

import json
from collections import Counter

from tests.cluster.jobs import FRONT, WIDTH, prepare, ran, submit, until
from tests.cluster.machines import NAMES, Cluster, build_wheel
from tests.vm.host import say


def test_a_job_runs_across_them(cluster: Cluster) -> None:
    prepare(cluster)
    submit(cluster)
    runs = ran(cluster)
    assert Counter(task for task, _ in runs) == {f"task{number}": 1 for number in range(WIDTH)}
    assert {node for _, node in runs} == set(NAMES)


def test_an_upgrade_goes_on_under_load_and_no_work_is_lost_or_done_twice(cluster: Cluster) -> None:
    prepare(cluster)
    # An agent that is being restarted cannot be reached for a moment; a client then asks again. Had a job that failed
    # run anything before, that would be counted twice.
    cluster.ssh(
        FRONT,
        "cd /home/tester/work && (runuser -u tester -- nohup sh -c '"
        "until [ -e enough ]; do until /usr/local/bin/penstock submit job.toml; do sleep 1; done; echo >>jobs; done; "
        "touch over' >log 2>&1 </dev/null &)",
    )
    until(cluster, "[ -s jobs ]")
    wheel = build_wheel(cluster.directory, "0.1.1")
    before = cluster.pids()
    cluster.variables["penstock_venv_wheel"] = str(wheel)
    cluster.of_one.clear()  # the objects from before are ours
    # One node first, then both others at once: there is always one that goes on.
    cluster.play("site.yml", "-e", json.dumps({"penstock_serial": [1, 2], "penstock_agent_drain_timeout": "10min"}))
    during = int(cluster.ssh(FRONT, "wc -l </home/tester/work/jobs"))
    cluster.ssh(FRONT, "touch /home/tester/work/enough")
    until(cluster, "[ -e over ]")
    jobs = int(cluster.ssh(FRONT, "wc -l </home/tester/work/jobs"))
    say(f"upgrade under load: {during} jobs of {WIDTH} commands ended before its end, {jobs} in all")
    print(cluster.ssh(FRONT, "cat /home/tester/work/log"))
    runs = Counter(task for task, _ in ran(cluster))
    if runs != {f"task{number}": jobs for number in range(WIDTH)}:
        for name, said in cluster.everywhere("journalctl --no-pager -o short-iso-precise --unit 'penstock-*'").items():
            print(f"---- {name}", said, sep="\n")
    assert runs == {f"task{number}": jobs for number in range(WIDTH)}
    assert during > 1
    after = cluster.pids()
    old = {key for key in before if after[key] in {0, before[key]}}
    assert not old, "everything is of the new wheel"
    nodes = cluster.nodes()
    assert {name: (node["state"], node["version"]) for name, node in nodes.items()} == dict.fromkeys(
        NAMES, ("connected", "0.1.1")
    )
    for said in cluster.everywhere("ls /opt/penstock/venvs").values():
        assert len(said.split()) == 1, "the former one is gone"


def test_a_node_is_drained_and_undrained(cluster: Cluster) -> None:
    cluster.play("drain.yml", "--limit", NAMES[2])
    assert cluster.nodes()[NAMES[2]]["state"] == "drained"
    prepare(cluster)
    submit(cluster)
    assert NAMES[2] not in {node for _, node in ran(cluster)}
    cluster.play("undrain.yml", "--limit", NAMES[2])
    assert cluster.nodes()[NAMES[2]]["state"] == "connected"
