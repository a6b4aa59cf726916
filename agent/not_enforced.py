"""Warnings in the log about limits that this host does not enforce: one for each cause."""

from __future__ import annotations

from collections.abc import Mapping

import structlog

from agent.cgroups.reason import Reason, by_cause

log = structlog.get_logger()


def warn(missing: Mapping[str, Reason], capped: Mapping[str, str]) -> None:
    """Log why controllers are missing, and why limits of all containers together are not in force.

    ``capped``: each such limit → why, which is the text of the controller's reason if that is what it lacks.
    """
    left = dict(capped)
    for controllers, reason in by_cause(missing):
        whys = {str(missing[name]) for name in controllers}
        together = [what for what, why in capped.items() if why in whys]
        for what in together:
            left.pop(what, None)
        log.warning(
            "some limits are not enforced",
            controllers=", ".join(controllers),
            **({"of_all_containers": ", ".join(together)} if together else {}),
            why=str(reason),
            details="penstock check",
        )
    for what, why in left.items():
        log.warning("containers together are not limited", what=what, why=why)
