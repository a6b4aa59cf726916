"""A number in a message has a noun that agrees with it: ``1 job``, ``2 jobs``, by ``penstock.model.units.counted``."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

_ROOT = Path(__file__).resolve().parents[2]
_PACKAGES = ("penstock", "agent", "master", "simulator", "demo")
_NOUNS = (
    "argument|atom|bundle|bundle-step|certificate|change|character|choice|client|column|command|connection|container|"
    "container-second|core|core-second|dataset|day|descriptor|element|executor|field|file|group|host|hour|item|job|"
    "key|level|limit|line|machine|mean|message|minute|monotask|name|node|other|parameter|part|partition|peak|place|"
    "process|promise|queue|record|request|reservation|resource|row|run|sample|second|size|slot|stage|step|task|thread|"
    "time|token|turn|user|value|week|worker"
)
#: One word may be between the number and its noun (``2 disk slots``), but none that begins another phrase.
_NO_ADJECTIVE = "and|at|by|for|has|have|in|is|makes|of|on|reads|still|takes|the|to|was|with"
_COUNTED = re.compile(rf" (?:(?!(?:{_NO_ADJECTIVE}) )[a-z]+ )?(?:{_NOUNS})e?s\b")
_CONSTANT = re.compile(r"_?[A-Z][A-Z0-9_]*\Z")

#: Path and text of phrases that are right as they are written, and why.
EXEMPT: dict[tuple[str, str], str] = {
    ("agent/launcher/server.py", "{start.container} runs"): "a container's name, and a verb",
    ("agent/launcher/server.py", "{container} runs"): "a container's name, and a verb",
    ("master/core/admission.py", "{job.user} runs"): "a user's name, and a verb",
    ("simulator/executors/machines.py", "{executor} runs"): "an executor's name, and a verb",
    ("master/core/executors.py", "{use.behind} times"): "a factor: 1 times its predicted time",
    ("master/core/task_lifecycle.py", "{task.losses} times"): "shown only for more than one",
    ("master/reservations/rdl/feasible.py", "{atom.gang} bundles"): "shown only for more than one",
    ("penstock/cli/jobs.py", "{'all' if ordered.of_all else 'your'} jobs"): "a word, not a number",
    ("penstock/wire/connection.py", "{count} values"): "shown only for more than one",
    ("demo/show.py", "{plan.share} cores"): "shown with two decimals: 1.00 cores",
}


def plurals(source: str) -> Iterator[tuple[int, str]]:
    """Yield line and text of each value of an f-string that a plural noun follows, for any value.

    Constants in capitals are above one, and have more than one element.
    """
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.JoinedStr):
            continue
        for value, behind in zip(node.values, node.values[1:], strict=False):
            if isinstance(value, ast.FormattedValue) and isinstance(behind, ast.Constant):
                noun = _COUNTED.match(str(behind.value))
                if noun and not _is_constant(value.value):
                    yield value.lineno, f"{{{ast.unparse(value.value)}}}{noun[0]}"


def _is_constant(value: ast.expr) -> bool:
    if isinstance(value, ast.Call) and ast.unparse(value.func) == "len":
        return _is_constant(value.args[0])
    name = value.attr if isinstance(value, ast.Attribute) else value.id if isinstance(value, ast.Name) else ""
    return bool(_CONSTANT.match(name))


def _sources() -> list[Path]:
    return sorted(path for package in _PACKAGES for path in (_ROOT / package).rglob("*.py"))


def _found() -> dict[tuple[str, str], int]:
    return {
        (path.relative_to(_ROOT).as_posix(), text): line
        for path in _sources()
        for line, text in plurals(path.read_text(encoding="utf-8"))
    }


def test_numbers_agree_with_their_nouns() -> None:
    wrong = [f"{path}:{line}: {text}" for (path, text), line in _found().items() if (path, text) not in EXEMPT]
    assert not wrong, "write it with penstock.model.units.counted, which says 1 job and 2 jobs:\n" + "\n".join(wrong)


def test_no_exemption_is_left_over() -> None:
    assert EXEMPT.keys() <= _found().keys()


@pytest.mark.parametrize(
    "planted",
    [
        'f"{len(jobs)} jobs"',
        'f"at most {parallelism} bundles are fewer than the gang of {gang}"',
        'f"known are {application:.0f} jobs of {name}"',
        'f"{done} of {tasks:.0f} tasks"',
        'f"{disk:.2g} disk slots"',
        'f"{count} processes"',
        '(f"{work}"\n f" bundle-steps of {asked}")',
    ],
)
def test_a_planted_plural_is_found(planted: str) -> None:
    assert list(plurals(planted))


@pytest.mark.parametrize(
    "innocent",
    [
        "f\"{counted(len(jobs), 'job')} of {user}\"",
        'f"more than {MOST_SLOTS} slots"',
        'f"{len(settings.KINDS)} kinds of resources and {len(KINDS)} queues"',
        'f"{name} of all containers"',
        'f"{steps} stepsize"',
        'f"{rate} bytes/s"',
        'f"{user} takes turns"',
    ],
)
def test_agreeing_words_are_not_found(innocent: str) -> None:
    assert not list(plurals(innocent))
