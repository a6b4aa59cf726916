"""The policies that place executors, by the names used in scenarios and configurations."""

from __future__ import annotations

from collections.abc import Callable

from master.placement.executors import ExecutorPolicy
from master.placement.minfrag import MinFrag
from master.placement.peak import Dynamic, MostAvailable, RandomFit, Static, Tetris

Draw = Callable[[], float]

_MAKERS: dict[str, Callable[[Draw], ExecutorPolicy]] = {
    "minfrag": lambda draw: MinFrag(),
    "trc": lambda draw: MinFrag("trc"),
    "tetris": lambda draw: Tetris(),
    "tetris2": lambda draw: Tetris("network"),
    "capacity": lambda draw: MostAvailable(),
    "static": Static,
    "dynamic": Dynamic,
    "random_fit": RandomFit,
}
EXECUTOR_POLICIES = tuple(_MAKERS)


def executor_policy(name: str, draw: Draw) -> ExecutorPolicy:
    """Return a policy; ``draw`` returns random numbers in [0, 1) for policies that need them. Raises KeyError: unknown
    name.
    """
    return _MAKERS[name](draw)
