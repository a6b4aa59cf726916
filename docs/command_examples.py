"""Examples of the commands, for the man pages and docs/command.md. A test lets each command's own parser read them."""

from __future__ import annotations

#: Command → what is typed, and what it does.
EXAMPLES: dict[str, list[tuple[str, str]]] = {
    "up": [
        ("penstock up", "Start master and agent here, on loopback; Ctrl-C ends both."),
        ("penstock up --set cores=4 --set memory_bytes=8GiB", "The same with less of this host than there is."),
    ],
    "run": [
        (
            "penstock run --cpu 2 --memory 4G -- ./train.py",
            "With at most two cores and 4 GiB; its exit status is ours.",
        ),
        ("penstock run --opportunistic -- make -j8", "On what others leave unused; it may be preempted."),
        ("penstock run --detach --name nightly -- ./backup.sh", "Print the container's id and return."),
    ],
    "adopt": [("penstock adopt 4711 --tree --memory 2G", "Limit a process that runs already, and its descendants.")],
    "resize": [("penstock resize c-12 --cpu 4 --memory none", "Four cores, and no limit of memory any more.")],
    "follow": [("penstock follow c-12 demand.json", "Let the limits rise and fall as the profile says.")],
    "kill": [("penstock kill c-12 c-13", "End both, with everything that runs in them.")],
    "logs": [("penstock logs --follow c-12", "What it has written, and what it goes on to write.")],
    "submit": [
        ("penstock submit job.toml", "Run a graph of commands; progress is shown until all have ended."),
        (
            "penstock submit --executors 4 --application sort --memory 2G -- ./sort.sh",
            "Four executors whose limits follow what earlier runs of `sort` used.",
        ),
    ],
    "jobs": [
        ("penstock jobs", "Yours: where they stand, and how those of late ended."),
        ("penstock jobs --wait j-1", "Return when it has ended; the exit status says how."),
        ("penstock jobs --order j-7 j-1", "Have j-7 go first of your jobs, then j-1."),
    ],
    "cancel": [("penstock cancel j-1", "Stop it, with everything that runs of it anywhere.")],
    "explain": [("penstock explain j-1", "Where it stands, why it waits, and where its tasks were placed and why.")],
    "profile": [
        ("penstock profile list", "Every application that has run as executors."),
        ("penstock profile plot sort --svg sort.svg", "The latest run beside what was expected of it."),
    ],
    "reserve": [
        (
            "penstock reserve 'window(atom(<2GB,1core>, 1, 10, 5min, 2h), +1h, +6h)' --name nightly",
            "Two hours of a bundle within the next six, as one to ten at a time.",
        )
    ],
    "reservations": [
        ("penstock reservations --at +2h", "What is promised in two hours, and what is free then."),
        ("penstock reservations --delete r-1", "Give one back."),
    ],
    "drain": [
        ("penstock drain node07 --timeout 30min", "Empty a node; 3 is returned if work is left after half an hour.")
    ],
    "undrain": [("penstock undrain node07", "Let work come back.")],
    "ca": [
        ("penstock ca init", "Make the authority, once."),
        ("penstock ca issue head.example.org --master", "A certificate for the master."),
        ("penstock ca issue node01", "One for a node."),
    ],
    "config": [
        ("penstock config check agent agent.toml", "What is wrong with a file; nothing is said where nothing is."),
        ("penstock config show agent --json", "Every key, its value and where that is from."),
    ],
    "status": [
        ("penstock status", "What this host is doing."),
        ("penstock status --cluster --json", "The cluster, as a document for programs."),
    ],
    "top": [("penstock top --cluster", "Nodes, jobs, reservations and preemptions, live; q quits.")],
    "completion": [
        ("penstock completion bash", "To be saved as ~/.local/share/bash-completion/completions/penstock."),
    ],
    "agent": [
        ("penstock agent --config /etc/penstock/agent.toml", "As systemd starts it."),
        ("penstock agent --check-config --config agent.toml", "Say what is wrong with a file, and end."),
    ],
    "dask-worker": [
        (
            "penstock dask-worker --cpu 2 --memory 4G -- tcp://10.0.0.1:8786 --nthreads 2 --memory-limit 3.5GB",
            "A worker of two threads, and room for what Dask does not count.",
        )
    ],
    "master": [("penstock master --config /etc/penstock/master.toml", "As systemd starts it.")],
    "check": [
        ("penstock check", "What this host can enforce, and the remedy for what it cannot."),
        ("penstock check --path /data", "And whether limits bind on the disk there."),
    ],
    "uninstall": [("penstock uninstall --dry-run", "What agents have set up here.")],
    "place": [("penstock place snapshot.json", "Why each task of a recorded round went where it did.")],
    "plan": [("penstock plan requests.json --planner gree_l", "Which of a set of reservations could be promised.")],
    "simulate": [
        ("penstock simulate --list", "The scenarios that are shipped."),
        ("penstock simulate las_mq/fig01 --set policy.queues=5", "One of them with another number of queues."),
    ],
    "paper": [("penstock paper --list", "What the papers claim, as far as it can be tried.")],
    "spark-config": [
        ("penstock spark-config --application sort", "What to add to a Spark job's configuration on this host."),
    ],
}
