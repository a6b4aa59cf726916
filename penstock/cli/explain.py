"""``penstock explain``: explain why a job waits, and where and why its tasks were placed."""

from __future__ import annotations

from penstock.cli import arguments, lean_imports
from penstock.cli.exit_statuses import Status
from penstock.cli.json_output import print_json
from penstock.cli.session import asked


def main(argv: list[str]) -> int:
    """Run the command; return its exit status."""
    parser = arguments.Parser(
        "explain",
        "Explain a job's state, its rank, its waiting and its placements: the rules and their numbers.",
    )
    parser.add_argument("job", type=arguments.listed_id, metavar="JOB", help="its id, as `penstock jobs` shows it")
    parser.add_argument("--json", action="store_true", help="print all of it as JSON")
    options = parser.parse_args(argv)
    document = asked("explain", lambda agent: agent.jobs.explain(options.job), named="job")
    if options.json:
        print_json(document)
        return Status.DONE
    lean_imports.load("rich")
    from penstock.cli.render import console
    from penstock.cli.render_jobs import explanation

    for line in explanation(document):
        console().print(line, soft_wrap=True)
    return Status.DONE
