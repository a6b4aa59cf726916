"""Models of settings that an application has not had yet (Elasecutor §IV.C), learnt from its runs with others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np

from master.prediction.curves import Curves, features
from master.prediction.runs import Floats, Run, Settings

#: Usage over time: mean, peak (resources × slots), the ends of stages in slots: the last one within its slot.
Usage = tuple[Floats, Floats, tuple[float, ...]]


class Model(Protocol):
    """Learnt from at least two runs with the same number of stages."""

    name: str

    def learn(self, runs: Sequence[Run]) -> None: ...
    def predict(self, settings: Settings) -> Usage: ...


class Neighbours:
    """The runs with the nearest settings, weighted by nearness; whole series, so that resources stay together.

    Beyond the paper, whose future work is the correlation between resources: every series comes from runs in which all
    of them were measured together.
    """

    name = "neighbours"

    def __init__(self, nearest: int = 3) -> None:
        self._nearest = nearest

    def learn(self, runs: Sequence[Run]) -> None:
        """Keep them."""
        self._curves = Curves.of(runs)
        self._at = features([run.settings for run in runs])

    def predict(self, settings: Settings) -> Usage:
        """A mean in logarithms, so that halfway between two inputs is halfway between two sizes."""
        apart = np.linalg.norm(self._at - features([settings]), axis=1)
        nearest = np.argsort(apart, kind="stable")[: self._nearest]
        weights = 1 / (apart[nearest] + 1e-3)
        weights /= weights.sum()
        shape: Floats = np.tensordot(weights, self._curves.shapes[nearest], axes=1)
        return self._curves.back(weights @ self._curves.sizes[nearest], shape)


class Svr:
    """ε-SVR with a radial basis function, its parameters from k-fold cross-validation over a grid (Elasecutor §IV.C).

    One regression for each size, and one for each principal component of the shapes; all sizes share one choice of
    parameters, and so do all components. (In the paper each slot of the series is an output. Most say the same, which
    components spare.) The lengths of many stages are learnt by their components, too, so that there are sixteen
    regressions at most.
    """

    name = "svr"
    #: Shapes, and lengths of stages, are learnt by so many of their principal components at most.
    COMPONENTS = 4
    FOLDS = 3
    GRID: ClassVar = {"C": [1.0, 10.0, 100.0], "gamma": [0.1, 0.5], "epsilon": [0.01, 0.1]}

    def learn(self, runs: Sequence[Run]) -> None:
        """Takes about a second: some hundreds of small fits."""
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
        """Milliseconds."""
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
        """From settings (n × 3) to targets (n × m), learnt from these."""
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
    """From settings (n × 3) to targets (n × m), as they are. It can be pickled."""

    inputs: _Scale
    estimator: Any
    outputs: _Scale

    def __call__(self, asked: Floats) -> Floats:
        return self.outputs.back(self.estimator.predict(self.inputs.there(asked)))


@dataclass(frozen=True, slots=True, eq=False)
class _Scale:
    """Columns to mean 0 and deviation 1, and back."""

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
