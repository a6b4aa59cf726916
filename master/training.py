"""Models are learnt in a process of their own: it takes seconds to minutes, and from a thread it would hold up the
master's loop, which needs the same interpreter."""

from __future__ import annotations

import os
import pickle
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from threading import Event

from master.prediction import Predictor, Rules, Run
from master.prediction.models import Model, Neighbours, Svr
from penstock import extras

#: Learns from runs; None: it was stopped before it was done. Raises TrainingError.
Train = Callable[[Rules, Sequence[Run], Event], Predictor | None]

_LOW_PRIORITY = 10
#: How soon it is seen that training is to stop.
_LOOK_S = 0.2
#: The most that it may take of a processor; what it learns from is bounded so that it takes a tenth of that.
MOST_CPU_S = 120
#: Numerical libraries take every processor that there is unless they are told.
_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


def models() -> dict[str, str]:
    """Return every model, and why it is not available; an empty text: it is."""
    missing = f"scikit-learn is not installed; remedy: {extras.install('prediction')}"
    return {Svr.name: "" if extras.is_installed("sklearn") else missing, Neighbours.name: ""}


class TrainingError(Exception):
    """One line: why nothing was learnt."""


def in_a_process(
    rules: Rules,
    runs: Sequence[Run],
    stopping: Event,
    models: Sequence[type[Model]] = (Svr, Neighbours),
    most_cpu_s: int = MOST_CPU_S,
) -> Predictor | None:
    """Blocks until a predictor has learnt, or ``stopping`` is set.

    Raises:
        TrainingError: the process failed, or took more than ``most_cpu_s`` of a processor.
    """
    command = [sys.executable, "-I", "-m", "master.training", str(most_cpu_s)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
        env=os.environ | _ONE_THREAD,
    ) as process:  # fmt: skip
        asked: bytes | None = pickle.dumps((rules, list(runs), tuple(models)))
        while True:
            try:
                answer, errors = process.communicate(asked, timeout=_LOOK_S)
                break
            except subprocess.TimeoutExpired:
                asked = None  # it is being sent already
            if stopping.is_set():
                process.kill()
                return None
    if process.returncode == -signal.SIGXCPU:
        raise TrainingError(
            f"training took more than {most_cpu_s} s of a processor; keep fewer runs of the application"
        )
    if process.returncode != 0:
        last = errors.decode(errors="replace").strip().rpartition("\n")[2]
        raise TrainingError(f"training ended with status {process.returncode}: {last or 'nothing was said'}")
    learnt = pickle.loads(answer)  # noqa: S301 - our own process wrote it
    assert isinstance(learnt, Predictor)
    return learnt


def main() -> None:
    """Runs on standard input, a predictor on standard output."""
    os.nice(_LOW_PRIORITY)
    most_cpu_s = int(sys.argv[1])
    resource.setrlimit(resource.RLIMIT_CPU, (most_cpu_s, most_cpu_s + 1))
    rules, runs, models = pickle.load(sys.stdin.buffer)  # noqa: S301 - the master wrote it
    predictor = Predictor(rules, models)
    predictor.learn(runs)
    sys.stdout.buffer.write(pickle.dumps(predictor))


if __name__ == "__main__":
    # Under its own name, so that what is pickled here is known there.
    from master.training import main as run

    run()
