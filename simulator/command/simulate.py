"""``penstock simulate``: simulate a cluster with a workload and a policy."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path
from typing import Any

from penstock import extras
from penstock.cli import arguments as read
from penstock.cli.errors import CommandError, usage_error
from penstock.cli.json_output import print_json
from simulator.command.progress import Progress
from simulator.scenario import Run, Scenario, ScenarioError, load, run, shipped, shipped_names
from simulator.scenario.runner import cores

_EPILOG = """\
a shipped scenario is named without path and ending: penstock simulate las_mq/fig01
the keys of scenarios are described in docs/simulate.md"""


def main(argv: list[str] | None = None) -> int:
    """Run the command and return its exit status. Raises CommandError for an error that the user can correct."""
    parser = read.Parser("simulate", "Run a scenario of the simulator; a sweep runs on all cores.", _EPILOG)
    parser.add_argument(
        "scenario", metavar="SCENARIO", nargs="?", help="a TOML file, or the name of a shipped scenario"
    )
    parser.add_argument(
        "--set", metavar="KEY=VALUE", type=read.key_value, action="append", default=[],
        help="replace a value of the scenario: policy.queues=5; repeatable",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print everything as JSON")
    parser.add_argument("--plot", metavar="FILE.png", type=Path, help="draw response times and utilization")
    parser.add_argument("--list", action="store_true", help="list the shipped scenarios")
    given = parser.parse_args(argv)
    if given.list:
        _list(as_json=given.json)
        return 0
    if given.scenario is None:
        raise usage_error("name a SCENARIO: a TOML file, or one of `penstock simulate --list`")
    try:
        scenario = load(_file(given.scenario), {key: _value(text) for key, text in given.set})
        points = scenario.points()
        if given.plot is not None:
            _can_plot(given.plot)
        with Progress(scenario.title or given.scenario, len(points)) as progress:
            runs = run(points, processes=cores(), done=progress.step)
    except ScenarioError as error:
        raise usage_error(str(error)) from None
    _show(scenario, runs, as_json=given.json, plot=given.plot)
    return 0


def _file(name: str) -> Path:
    path = Path(name)
    return path if path.exists() else shipped(name)


def _value(text: str) -> Any:
    """Return the text as a TOML value, or else as it is: ``--set policy.name=las`` needs no quotes."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _list(*, as_json: bool) -> None:
    titles = {name: load(shipped(name)).title for name in shipped_names()}
    width = max(map(len, titles), default=0)
    if as_json:
        print_json(titles, indent=1)
    else:
        sys.stdout.write("".join(f"{name:<{width}}  {title}\n" for name, title in titles.items()))


def _can_plot(path: Path) -> None:
    """Raise CommandError if the picture cannot be drawn; called before the simulation, which may take long."""
    if path.suffix != ".png":
        raise usage_error(f"--plot: {path}: the picture is a PNG; let the name end in .png")
    if not path.parent.is_dir():
        raise usage_error(f"--plot: {path.parent}: no such directory")
    try:
        import matplotlib as mpl
    except ImportError:
        raise usage_error(f"--plot needs matplotlib; install it with `{extras.install('simulate')}`") from None
    mpl.use("Agg")


def _show(scenario: Scenario, runs: list[Run], *, as_json: bool, plot: Path | None) -> None:
    from simulator.command import output

    if as_json:
        sys.stdout.buffer.write(output.as_json(scenario, runs))
    else:
        output.print_table(scenario, runs)
    if plot is not None:
        from simulator.command.picture import draw

        try:
            draw(scenario, runs, plot)
        except OSError as error:
            raise CommandError(f"--plot: {plot}: {error.strerror}") from None


if __name__ == "__main__":
    sys.exit(main())
