"""``penstock submit``: a graph of commands from a file, or executors of an application; placed by the master."""

from __future__ import annotations

import argparse
from pathlib import Path

from penstock.cli import arguments, executors, jobfile
from penstock.cli.errors import usage_error
from penstock.cli.limits import add_strict
from penstock.cli.work import Work
from penstock.model.work import OpportunisticJob


def main(argv: list[str]) -> int:
    """Run the command; return its exit status."""
    parser = arguments.Parser(
        "submit",
        "Run a job: a graph of commands from a TOML file, or executors of an application:\n"
        "penstock submit --executors 4 --application sort --memory 1G -- ./sort.sh",
        (jobfile.__doc__ or "").replace("``", ""),
    )
    parser.add_argument(
        "job", type=Path, metavar="JOB.toml", nargs="?", help="the job, as described below; not with --executors"
    )
    parser.add_argument("--json", action="store_true", help="print the results as JSON")
    parser.add_argument(
        "--opportunistic",
        type=which,
        default=None,
        metavar="WHICH",
        help="the tasks that may run on slack, overriding the file: none, all, only (all, and on slack only), or "
        "stages, separated by commas",
    )
    parser.add_argument("--reservation", default="", metavar="ID", help="run as a production job of this reservation")
    parser.add_argument("-q", "--quiet", action="store_true", help="report only failures while it runs")
    parser.add_argument(
        "--detach", action="store_true", help="print the job's id and return; the job continues without this terminal"
    )
    parser.add_argument("--manages", default="", help=argparse.SUPPRESS)
    add_strict(parser)
    executors.add_options(parser)
    cut = argv.index("--") if "--" in argv else len(argv)
    options = parser.parse_args(argv[:cut])
    work = _work(options, tuple(argv[cut + 1 :]))
    # The following imports are not needed for --help, nor for an invalid file.
    from penstock.cli.session import failures_told

    if options.detach:
        from penstock.cli.detach import detach

        # The manager's results are JSON, for later use.
        managed = [*(each for each in argv[:cut] if each not in {"--detach", "--json"}), "--json", *argv[cut:]]
        with failures_told(named="reservation"):
            return detach(work, options.reservation, managed, as_json=options.json)
    from penstock.cli.submission import Submission

    submission = Submission(
        work,
        as_json=options.json,
        reservation=options.reservation,
        quiet=options.quiet and not options.manages,
        manages=options.manages,
    )
    with failures_told(named="reservation"):
        return submission.run()


def which(text: str) -> OpportunisticJob:
    """Parse ``--opportunistic``."""
    words: dict[str, OpportunisticJob] = {"none": False, "all": True, "only": "only"}
    return words[text] if text in words else [name.strip() for name in text.split(",") if name.strip()]


def _work(options: argparse.Namespace, command: tuple[str, ...]) -> Work:
    if options.executors is not None:
        return executors.of_executors(options, command)
    executors.refuse_alone(options)
    if command:
        raise usage_error("a command requires --executors; a job file has its own commands")
    if options.job is None:
        taken = (
            "" if options.opportunistic is None else "; --opportunistic needs a value: `--opportunistic all JOB.toml`"
        )
        raise usage_error(f"the following arguments are required: JOB.toml, or --executors N … -- COMMAND{taken}")
    return jobfile.of_file(options.job, opportunistic=options.opportunistic, strict=options.strict)
