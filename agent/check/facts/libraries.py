"""Libraries for optional features of the master."""

from __future__ import annotations

from collections.abc import Callable

from agent.check.facts.base import Fact
from penstock import extras

#: Extra → its module, its package, its use, the consequence of its absence.
_OPTIONAL = {
    "prediction": ("sklearn", "scikit-learn", "forecasts by svr and neighbours", "forecasts by neighbours only"),
}


def libraries(is_installed: Callable[[str], bool] = extras.is_installed) -> dict[str, Fact]:
    """Return extra → fact if a master is installed; otherwise nothing."""
    if not is_installed(extras.OF_A_DAEMON["master"]):
        return {}
    facts = {}
    for extra, (module, library, use, without) in _OPTIONAL.items():
        if is_installed(module):
            facts[extra] = Fact(True, use)
        else:
            facts[extra] = Fact(False, f"{without}: {library} is not installed", extras.install(extra))
    return facts
