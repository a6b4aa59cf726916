"""Models for new settings of an application (Elasecutor §IV.C), trained on its runs with other settings.

They learn from vectors of equal length: a run is split into the length of each stage, the mean use of each resource,
and the shape of the use over time. Sizes are learnt as logarithms: twice the input makes a run longer by a factor, not
by a number of slots.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np

from master.prediction.align import at_ends, whole_ends
from master.prediction.runs import RESOURCES, Floats, Run, Settings, filled

#: Number of points of a stage's shape.
POINTS = 16
#: Levels below this count as zero (cores, bytes, bytes/s).
_NOTHING = 1e-6
#: Usage over time: mean, peak (resources × slots), and the ends of stages in slots: the last one within its slot.
Usage = tuple[Floats, Floats, tuple[float, ...]]


class Model(Protocol):
    """A model trained on at least two runs with equal numbers of stages."""

    name: str

    def learn(self, runs: Sequence[Run]) -> None: ...
    def predict(self, settings: Settings) -> Usage: ...


class Neighbours:
    """The runs with the nearest settings, weighted by nearness; whole series, so that resources stay correlated.

    This goes beyond the paper, whose future work is the correlation between resources: every series comes from runs in
    which all resources were measured together.
    """

    name = "neighbours"
    NEAREST = 3

    def learn(self, runs: Sequence[Run]) -> None:
        """Store the runs' curves."""
        self._curves = Curves.of(runs)
        self._at = features([run.settings for run in runs])

    def predict(self, settings: Settings) -> Usage:
        """Return the mean in logarithms, so that halfway between two inputs is halfway between two sizes."""
        apart = np.linalg.norm(self._at - features([settings]), axis=1)
        nearest = np.argsort(apart, kind="stable")[: self.NEAREST]
        weights = 1 / (apart[nearest] + 1e-3)
        weights /= weights.sum()
        shape: Floats = np.tensordot(weights, self._curves.shapes[nearest], axes=1)
        return self._curves.back(weights @ self._curves.sizes[nearest], shape)


class Svr:
    """ε-SVR with a radial basis function, its parameters from k-fold cross-validation over a grid (Elasecutor §IV.C).

    There is one regression for each size, and one for each principal component of the shapes; all sizes share one
    choice of parameters, as do all components. (In the paper each slot of the series is an output; components avoid
    this redundancy.) The lengths of many stages are also learnt by components, so there are at most sixteen
    regressions.
    """

    name = "svr"
    #: Largest number of principal components for shapes, and for lengths of stages.
    COMPONENTS = 4
    FOLDS = 3
    GRID: ClassVar = {"C": [1.0, 10.0, 100.0], "gamma": [0.1, 0.5], "epsilon": [0.01, 0.1]}

    def learn(self, runs: Sequence[Run]) -> None:
        """Train; takes about a second: some hundreds of small fits."""
        self._curves = curves = Curves.of(runs)
        x = features([run.settings for run in runs])
        self._inputs = _Scale.of(x)
        flat = curves.shapes.reshape(len(runs), -1)
        self._pca = self._components(flat)
        lengths, levels = curves.sizes[:, : curves.stages], curves.sizes[:, curves.stages :]
        self._lengths = self._components(lengths) if curves.stages > self.COMPONENTS else None
        lengths = lengths if self._lengths is None else self._lengths.transform(lengths)
        self._sizes = self._regression(x, np.concatenate((lengths, levels), axis=1))
        self._shapes = self._regression(x, self._pca.transform(flat))

    def predict(self, settings: Settings) -> Usage:
        """Predict, in milliseconds."""
        x = features([settings])
        shape = self._pca.inverse_transform(self._shapes(x))[0].reshape(self._curves.shapes.shape[1:])
        sizes = self._sizes(x)[0]
        if self._lengths is not None:
            few = self._lengths.n_components_
            sizes = np.concatenate((self._lengths.inverse_transform(sizes[None, :few])[0], sizes[few:]))
        return self._curves.back(sizes, shape)

    def _components(self, rows: Floats) -> Any:
        from sklearn.decomposition import PCA

        most = max(1, min(self.COMPONENTS, len(rows) - 1, rows.shape[1]))
        return PCA(n_components=most, svd_solver="full").fit(rows)

    def _regression(self, x: Floats, targets: Floats) -> _Regression:
        """Return a regression from settings (n × 3) to targets (n × m), trained on these."""
        from sklearn.model_selection import GridSearchCV, KFold
        from sklearn.multioutput import MultiOutputRegressor
        from sklearn.svm import SVR

        outputs = _Scale.of(targets)
        search = GridSearchCV(
            MultiOutputRegressor(SVR(kernel="rbf")),
            {f"estimator__{name}": values for name, values in self.GRID.items()},
            cv=KFold(min(self.FOLDS, len(x)), shuffle=True, random_state=0),
            scoring="neg_mean_absolute_error",
        )
        best = search.fit(self._inputs.there(x), outputs.there(targets)).best_estimator_
        return _Regression(self._inputs, best, outputs)


@dataclass(frozen=True, eq=False)
class _Regression:
    """Maps settings (n × 3) to targets (n × m), both unscaled. It can be pickled."""

    inputs: _Scale
    estimator: Any
    outputs: _Scale

    def __call__(self, asked: Floats) -> Floats:
        return self.outputs.back(self.estimator.predict(self.inputs.there(asked)))


@dataclass(frozen=True, slots=True, eq=False)
class _Scale:
    """Scales columns to mean 0 and deviation 1, and back."""

    low: Floats
    spread: Floats

    @classmethod
    def of(cls, values: Floats) -> _Scale:
        spread = values.std(axis=0)
        return cls(values.mean(axis=0), np.where(spread > 0, spread, 1.0))

    def there(self, values: Floats) -> Floats:
        scaled: Floats = (values - self.low) / self.spread
        return scaled

    def back(self, scaled: Floats) -> Floats:
        values: Floats = self.low + self.spread * scaled
        return values


@dataclass(frozen=True, slots=True, eq=False)
class Curves:
    """n runs: ``sizes`` (n × (stages + 2 resources)): logarithms of stage lengths and of the mean and peak levels;
    ``shapes`` (n × 2 resources × stages · POINTS): usage ÷ its level.
    """

    stages: int
    sizes: Floats
    shapes: Floats

    @classmethod
    def of(cls, runs: Sequence[Run]) -> Curves:
        """Return the curves of runs with equal numbers of stages."""
        stages = len(runs[0].ends)
        both = np.array([_points(run) for run in runs])
        levels = both.mean(axis=2)
        lengths = np.array([run.lengths for run in runs])
        sizes = np.log(np.concatenate((lengths, np.maximum(levels, _NOTHING)), axis=1))
        shapes = both / np.maximum(levels, _NOTHING)[:, :, None]
        return cls(stages, sizes, shapes)

    def back(self, sizes: Floats, shape: Floats) -> tuple[Floats, Floats, tuple[float, ...]]:
        """Return mean and peak (resources × slots) and the ends of stages, from one vector of sizes and one shape."""
        to_ends = whole_ends(np.exp(sizes[: self.stages]))
        levels = np.exp(sizes[self.stages :])
        levels[levels <= 2 * _NOTHING] = 0.0
        points = np.maximum(shape, 0.0) * levels[:, None]
        ends = [POINTS * (stage + 1) for stage in range(self.stages)]
        usage = at_ends(points, ends, to_ends)
        mean, peak = usage[: len(RESOURCES)], usage[len(RESOURCES) :]
        return mean, np.maximum(mean, peak), to_ends


def _points(run: Run) -> Floats:
    both = np.concatenate((filled(run.mean), filled(run.peak)))
    return at_ends(both, run.ends, [POINTS * (stage + 1) for stage in range(len(run.ends))])


def features(settings: Sequence[Settings]) -> Floats:
    """Return settings as a model's input (n × 3): logarithms, so that equal steps are equal factors."""
    rows = [(each.input_bytes, each.cores, each.memory_bytes) for each in settings]
    logarithms: Floats = np.log2(np.maximum(np.array(rows, dtype=float), _NOTHING))
    return logarithms
