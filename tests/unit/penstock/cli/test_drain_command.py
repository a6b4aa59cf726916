"""``penstock drain``: options that contradict each other, and the line that names the work that keeps a node."""

from __future__ import annotations

import pytest

from penstock.cli import drain, undrain
from penstock.cli.errors import CommandError
from penstock.cli.exit_statuses import Status
from penstock.wire.cluster_api import Draining, Drains, NodeDrain, Remaining

ROOT = Draining("root", 0.0)


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["--stop"], "add --timeout DURATION"),
        (["--no-wait", "--timeout", "3s"], "--no-wait does not wait"),
        (["--timeout", "3 fortnights"], "write for example"),
        (["--stopp"], "did you mean '--stop'?"),
    ],
)
def test_contradictory_options_are_one_line(argv: list[str], said: str) -> None:
    with pytest.raises(CommandError) as caught:
        drain.main(argv)
    assert said in str(caught.value)
    assert caught.value.status == Status.USAGE


def left(state: str, *remaining: Remaining, count: int = 0) -> NodeDrain:
    return NodeDrain(node="n1", state=state, draining=ROOT, remaining=list(remaining), count=count or len(remaining))


def answers(monkeypatch: pytest.MonkeyPatch, *nodes: NodeDrain) -> None:
    """The conversation is that of the integration test."""

    def asked(command: str, work: object, *, named: str) -> Drains:
        return Drains(nodes=list(nodes))

    for command in ("drain", "undrain"):
        monkeypatch.setattr(f"penstock.cli.{command}.asked", asked)


@pytest.mark.parametrize(
    ("node", "said"),
    [
        (left("away"), "n1 is away, so its running work is unknown"),
        (left("draining"), "n1 has not reported its running work yet"),
        (
            left("draining", Remaining("command", "j-1/t", "sort", "eve"), count=7),
            "n1 still runs command j-1/t of eve (sort), 6 more",
        ),
        (left("draining", Remaining("task", "j-2/t", "", "")), "n1 still runs task j-2/t of an unknown user"),
    ],
)
def test_one_line_names_the_work_that_still_runs(monkeypatch: pytest.MonkeyPatch, node: NodeDrain, said: str) -> None:
    answers(monkeypatch, node, NodeDrain(node="n2", state="drained", draining=ROOT))
    with pytest.raises(CommandError) as caught:
        drain.main(["--timeout", "0s"])
    assert (str(caught.value), caught.value.status) == (said, Status.TIME_OVER)
    assert drain.main(["--no-wait"]) == Status.DONE


def test_jobs_of_its_users_are_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    jobs = [f"j-{n}" for n in range(7)]
    answers(monkeypatch, NodeDrain(node="n1", state="drained", draining=ROOT, jobs=jobs))
    assert drain.main([]) == Status.DONE
    assert capsys.readouterr().out.splitlines() == [
        "n1: drained",
        "  jobs of its users go on, and would end if the host went for good: j-0, j-1, j-2, j-3, j-4, …",
    ]


def test_names_steer_no_terminal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    answers(monkeypatch, NodeDrain(node="n\x1b[31m1", state="connected"))
    assert undrain.main([]) == Status.DONE
    assert capsys.readouterr().out == "n�[31m1: accepts work\n"
    answers(monkeypatch, left("draining", Remaining("container", "c-1", "\x1b[2J", "eve")))
    with pytest.raises(CommandError) as caught:
        drain.main([])
    assert "\x1b" not in str(caught.value)
