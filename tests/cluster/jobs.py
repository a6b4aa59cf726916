"""A job that leaves a line for each command that ran, and where."""

from __future__ import annotations

from tests.cluster.machines import NAMES, Cluster

WIDTH = 6
#: Where jobs are submitted from: a node that is drained and restarted with the others.
FRONT = NAMES[1]
_WORK = "/home/tester/work"
_RAN = f"{_WORK}/ran"


def prepare(cluster: Cluster) -> None:
    """Write the job's file, and remove traces of former ones. Each command records once that it ran, and where.

    They wait rather than compute: the machines have the playbooks' work to do beside them.
    """
    tasks = "".join(
        f'[[task]]\nname = "task{number}"\nstage = "all"\ninput_bytes = "50MB"\nmemory = "32M"\n'
        f'command = "echo task{number} $(hostname) $(date +%T.%N) $(tail -n 1 /proc/self/cgroup) >>{_RAN}; sleep 4"\n'
        for number in range(WIDTH)
    )
    cluster.everywhere(f"rm -rf {_WORK} && install -d -o tester {_WORK}")
    text = f'name = "load"\n{tasks}'
    cluster.ssh(FRONT, f"cat >{_WORK}/job.toml <<'END'\n{text}END")


def submit(cluster: Cluster) -> None:
    """Run it to its end."""
    cluster.penstock(FRONT, "submit work/job.toml", user="tester")


def ran(cluster: Cluster) -> list[tuple[str, str]]:
    """Each run of a command on any machine: its name, and the machine's."""
    said = "".join(cluster.everywhere(f"cat {_RAN}", check=False).values())
    print(said)  # when and in which cgroup, for the reader who has to find out why one ran twice
    return [(line.split()[0], line.split()[1]) for line in said.splitlines()]


def until(cluster: Cluster, condition: str) -> None:
    """A shell's condition holds where jobs are submitted."""
    cluster.ssh(FRONT, f"cd {_WORK} && timeout 600 sh -c 'until {condition}; do sleep 0.2; done'")
