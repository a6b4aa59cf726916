"""Examples of the commands, for the man pages and docs/command.md. A test parses them with each command's parser."""

from __future__ import annotations

#: Command → the command lines and their effects.
EXAMPLES: dict[str, list[tuple[str, str]]] = {
    "up": [
        ("penstock up", "Start master and agent here, on loopback; Ctrl-C ends both."),
        ("penstock up --set cores=4 --set memory_bytes=8GiB", "The same with only a part of this host."),
    ],
    "run": [
        (
            "penstock run --cpu 2 --memory 4G -- ./train.py",
            "Run with at most two cores and 4 GiB, and return its exit status.",
        ),
        ("penstock run --opportunistic -- make -j8", "Run on slack; the command may be preempted."),
        ("penstock run --detach --name nightly -- ./backup.sh", "Print the container's id and return."),
    ],
    "adopt": [("penstock adopt 4711 --tree --memory 2G", "Limit a running process and its descendants.")],
    "resize": [("penstock resize c-12 --cpu 4 --memory none", "Set a limit of four cores, and remove that of memory.")],
    "follow": [("penstock follow c-12 demand.json", "Make the limits rise and fall with the profile.")],
    "kill": [("penstock kill c-12 c-13", "Kill both containers with all their processes.")],
    "logs": [
        ("penstock logs --follow --tail 20 c-12", "Print the last 20 lines so far, and new output as it is written."),
        ("penstock logs alpha-1f2e3d4c-7", "Print the output of a job's tasks on this host, and why the job failed."),
    ],
    "submit": [
        ("penstock submit job.toml", "Run a graph of commands, and show the progress until all have ended."),
        (
            "penstock submit --executors 4 --application sort --memory 2G -- ./sort.sh",
            "Run four executors whose limits follow the use of earlier runs of `sort`.",
        ),
    ],
    "jobs": [
        ("penstock jobs", "List your jobs: their states, and the results of recently ended ones."),
        ("penstock jobs --wait j-1", "Return when the job has ended; the exit status is its result."),
        ("penstock jobs --order j-7 j-1", "Put j-7 first among your jobs, then j-1."),
    ],
    "cancel": [("penstock cancel j-1", "Stop the job with all its tasks on all nodes.")],
    "explain": [
        ("penstock explain j-1", "Show the job's rank, why it waits, and where and why its tasks were placed.")
    ],
    "profile": [
        ("penstock profile list", "List every application that has run as executors."),
        ("penstock profile plot sort --svg sort.svg", "Draw the latest run beside its forecast."),
    ],
    "reserve": [
        (
            "penstock reserve 'window(atom(<2GB,1core>, 1, 10, 5min, 2h), +1h, +6h)' --name nightly",
            "Reserve two hours of a bundle within the next six hours, one to ten bundles at a time.",
        )
    ],
    "reservations": [
        ("penstock reservations --at +2h", "Show the promises and the free resources in two hours."),
        ("penstock reservations --delete r-1", "Delete a reservation."),
    ],
    "drain": [
        ("penstock drain node07 --timeout 30min", "Empty a node; exit with 3 if work is left after half an hour.")
    ],
    "undrain": [("penstock undrain node07", "Place work on the node again.")],
    "ca": [
        ("penstock ca init", "Create the authority, once."),
        ("penstock ca issue head.example.org --master", "Issue a certificate for the master."),
        ("penstock ca issue node01", "Issue a certificate for a node."),
    ],
    "config": [
        ("penstock config check agent agent.toml", "Print the faults of a file; nothing if it has none."),
        ("penstock config show agent --json", "Print every key, its value and the value's source."),
    ],
    "status": [
        ("penstock status", "Show the state of this host."),
        ("penstock status --cluster --json", "Print the state of the cluster as JSON."),
    ],
    "top": [("penstock top --cluster", "Show nodes, jobs, reservations and preemptions, live; q quits.")],
    "completion": [
        ("penstock completion bash", "Print the script, for ~/.local/share/bash-completion/completions/penstock."),
    ],
    "agent": [
        ("penstock agent --config /etc/penstock/agent.toml", "Run the agent as systemd does."),
        ("penstock agent --check-config --config agent.toml", "Print the faults of a file, and end."),
    ],
    "dask-worker": [
        (
            "penstock dask-worker --cpu 2 --memory 4G -- tcp://10.0.0.1:8786 --nthreads 2 --memory-limit 3.5GB",
            "Start a worker with two threads, and with room for memory that Dask does not count.",
        )
    ],
    "master": [("penstock master --config /etc/penstock/master.toml", "Run the master as systemd does.")],
    "check": [
        ("penstock check", "Show which limits this host can enforce, and the remedies for the others."),
        ("penstock check --path /data", "Also show whether limits bind on the disk of a path."),
    ],
    "uninstall": [("penstock uninstall --dry-run", "List everything that agents have set up here.")],
    "place": [("penstock place snapshot.json", "Explain the placement of each task of a recorded round.")],
    "plan": [("penstock plan requests.json --planner gree_l", "Show which of a set of reservations can be promised.")],
    "simulate": [
        ("penstock simulate --list", "List the shipped scenarios."),
        ("penstock simulate las_mq/fig01 --set policy.queues=5", "Run one of them with another number of queues."),
    ],
    "spark-config": [
        ("penstock spark-config --application sort", "Print the lines for a Spark job's configuration on this host."),
    ],
}
