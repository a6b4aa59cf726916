"""``python -m research``: try the papers' claims."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import msgspec

from penstock import paths
from penstock.cli import arguments as read
from penstock.cli.errors import CommandError, usage_error
from penstock.cli.exit_statuses import Status, output_lost
from research.papers.catalogue import chosen
from research.papers.claims import TRACES, Claim, Inputs
from research.papers.page import page
from research.papers.trial import Trial, try_all
from simulator.command.progress import Progress
from simulator.scenario.runner import cores

_PAGE = Path("docs/benchmarks/results.md")
_PROG = "python -m research"
_DESCRIPTION = "Try the papers' claims, and write a page with their figures and ours side by side."
_EPILOG = f"""\
the folder of traces: {", ".join(TRACES.values())}

exit status:
  0  every claim was checked, whether it holds or not
  1  a check could not be completed
  2  invalid input; one line on standard error says what is wrong, and how to correct it
"""


class _Parser(read.Parser):
    """A parser for this command, which is none of ``penstock``'s: it has a name and exit statuses of its own."""

    def __init__(self) -> None:
        super().__init__("research", _DESCRIPTION, _EPILOG)
        self.prog = _PROG

    def format_help(self) -> str:
        """Return the help without the exit statuses of ``penstock``'s commands; the epilog has this command's."""
        return argparse.ArgumentParser.format_help(self)


def main(argv: list[str] | None = None) -> int:
    """Run the command and return its exit status. An error that the user can correct is one line on standard error."""
    try:
        status = _run(_parsed(argv))
        sys.stdout.flush()
    except CommandError as error:
        sys.stderr.write(f"{_PROG}: {error}\n")
        return error.status
    except BrokenPipeError:
        return output_lost()
    except KeyboardInterrupt:
        return Status.INTERRUPTED
    return status


def _parsed(argv: list[str] | None) -> argparse.Namespace:
    parser = _Parser()
    parser.add_argument("names", metavar="NAME", nargs="*", help="a paper or a claim (default: all of them)")
    parser.add_argument("--traces", metavar="DIR", type=Path, help="the folder with the public traces")
    parser.add_argument("--out", metavar="FILE", type=Path, help=f"write the page ({_PAGE} where no NAME is given)")
    parser.add_argument("--list", action="store_true", help="list the claims")
    parser.add_argument("--json", action="store_true", help="print the claims, or their results, as JSON")
    return parser.parse_args(argv)


def _run(given: argparse.Namespace) -> int:
    try:
        claims = chosen(given.names)
    except LookupError as error:
        raise usage_error(str(error.args[0])) from None
    if given.list:
        sys.stdout.write(_listed_as_json(claims) if given.json else _listing(claims))
        return 0
    out = given.out or (None if given.names else _PAGE)
    if out is not None and (why := paths.why_not_writable(out)):
        raise usage_error(f"--out: {why}")
    if given.traces is not None and not given.traces.is_dir():
        raise usage_error(f"--traces: {given.traces}: no such directory")
    with Progress("claims", len(claims)) as progress:
        trials = try_all(claims, Inputs(traces=given.traces), processes=cores(), done=lambda _: progress.step())
    if given.json:
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(trials), indent=1).decode() + "\n")
    for trial in () if given.json else trials:
        _tell(trial)
    if out is not None:
        _write(out, page(trials))
    return 1 if any(trial.failed for trial in trials) else 0


def _listing(claims: list[Claim]) -> str:
    width = max(len(claim.name) for claim in claims)
    return "".join(
        f"{claim.name:<{width}}  {claim.where}{f' (needs {TRACES[claim.needs]})' if claim.needs else ''}\n"
        for claim in claims
    )


def _listed_as_json(claims: list[Claim]) -> str:
    rows = [{"name": one.name, "where": one.where, "needs": TRACES[one.needs] if one.needs else None} for one in claims]
    return json.dumps(rows, ensure_ascii=False, indent=1) + "\n"


def _tell(trial: Trial) -> None:
    sys.stdout.write(f"{trial.name}  {trial.where}  ({trial.took_s:.1f} s)\n")
    for row in trial.rows:
        sys.stdout.write(
            f"  {'holds' if row.holds else 'NOT  '}  {row.what}: {row.paper} in the paper, {row.ours} here\n"
        )
        if row.why:
            sys.stdout.write(f"         {row.why}\n")
    if trial.not_run:
        sys.stdout.write(f"  not run: {trial.not_run}\n")
    if trial.failed:
        sys.stdout.write(f"  FAILED\n{trial.failed}")


def _write(out: Path, text: str) -> None:
    try:
        out.write_text(text, encoding="utf-8")
    except OSError as error:
        raise CommandError(f"--out: {out}: {error.strerror}") from None
