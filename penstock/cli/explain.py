"""``penstock explain``: explain why a job waits, and where and why its tasks were placed."""

from __future__ import annotations

from penstock.cli import arguments
from penstock.cli.exit_statuses import Status


def main(argv: list[str]) -> int:
    """Run the command; return its exit status."""
    parser = arguments.Parser(
        "explain",
        "Explain a job's state, its rank, its waiting and its placements: the rules and their numbers.",
    )
    parser.add_argument("job", metavar="JOB", help="its id, as `penstock jobs` shows it")
    parser.add_argument("--json", action="store_true", help="print all of it as JSON")
    options = parser.parse_args(argv)
    from penstock.cli.session import converse  # imports asyncio, which --help does not need

    return converse(_explain(options.job, as_json=options.json), named="job")


async def _explain(job: str, *, as_json: bool) -> int:
    import msgspec

    from penstock.client import AgentClient

    async with await AgentClient.connect(client="penstock explain") as agent:
        document = await agent.jobs.explain(job)
    if as_json:
        print(msgspec.json.encode(document).decode())
        return Status.DONE
    from penstock.cli.render import console
    from penstock.cli.render_jobs import explanation

    for line in explanation(document):
        console().print(line, soft_wrap=True)
    return Status.DONE
