"""Training of models in a separate process: it takes seconds to minutes, and a thread would block the master's event
loop, which needs the same interpreter.
"""

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

#: Trains on runs; None: stopped early. Raises TrainingError.
Train = Callable[[Rules, Sequence[Run], Event], Predictor | None]

_LOW_PRIORITY = 10
#: Interval of checks for a stop.
_LOOK_S = 0.2
#: Limit of processor time; the training data are bounded so that training takes a tenth of it.
MOST_CPU_S = 120
#: Numerical libraries use all processors unless limited.
_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


def models() -> dict[str, str]:
    """Return every model, and why it is not available; an empty text: it is."""
    missing = f"scikit-learn is not installed; remedy: {extras.install('prediction')}"
    return {Svr.name: "" if extras.is_installed("sklearn") else missing, Neighbours.name: ""}


class TrainingError(Exception):
    """One line: why training failed."""


def in_a_process(
    rules: Rules,
    runs: Sequence[Run],
    stopping: Event,
    models: Sequence[type[Model]] = (Svr, Neighbours),
    most_cpu_s: int = MOST_CPU_S,
) -> Predictor | None:
    """Block until a predictor is trained, or ``stopping`` is set.

    Raises: TrainingError: the process failed, or exceeded ``most_cpu_s`` of processor time.
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
                asked = None  # being sent already
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
    """Read runs from standard input, and write a predictor to standard output."""
    os.nice(_LOW_PRIORITY)
    most_cpu_s = int(sys.argv[1])
    resource.setrlimit(resource.RLIMIT_CPU, (most_cpu_s, most_cpu_s + 1))
    rules, runs, models = pickle.load(sys.stdin.buffer)  # noqa: S301 - the master wrote it
    predictor = Predictor(rules, models)
    predictor.learn(runs)
    sys.stdout.buffer.write(pickle.dumps(predictor))


if __name__ == "__main__":
    # Run under the module's own name, so that pickled classes resolve in the master.
    from master.training import main as run

    run()
