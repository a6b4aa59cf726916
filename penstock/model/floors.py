"""The smallest values of limits. A smaller limit would stop the container, and is a typo or a wrong unit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from penstock.model.container import Limits
from penstock.model.profile import RESOURCES, Profile
from penstock.model.units import counted, format_bytes

#: The kernel's minimum: 1 ms in each period of 100 ms (kernel/sched/core.c, min_cfs_quota_period).
LEAST_CORES = 0.01
LEAST_MEMORY_BYTES = 1 << 20
#: For reading, writing, sending and receiving.
LEAST_BYTES_PER_S = 1000


def least_of(name: str) -> float:
    """Return the smallest value of a limit, or of a profile's resource, by its name; 0 if there is none."""
    if name == "cpu_cores":
        return LEAST_CORES
    if name.startswith("memory_"):
        return LEAST_MEMORY_BYTES
    return LEAST_BYTES_PER_S if name.endswith("_bytes_per_s") else 0


def too_small(values: Mapping[str, object]) -> Iterator[tuple[str, str, str]]:
    """Yield each limit below its minimum: its name, the error, and the remedy."""
    for name, value in values.items():
        if isinstance(value, int | float) and value < (least := least_of(name)):
            yield name, f"{_shown(name, value)} is too little to run with", f"ask for at least {_shown(name, least)}"


def limits_too_small(limits: Limits) -> Iterator[tuple[str, str, str]]:
    """As :func:`too_small`, for limits."""
    return too_small({name: getattr(limits, name) for name in limits.__struct_fields__})


def profile_too_small(profile: Profile) -> Iterator[tuple[str, str, str]]:
    """As :func:`too_small`, for the lowest value of each of a profile's resources."""
    return too_small({name: min(values) for name in RESOURCES if (values := getattr(profile, name))})


def _shown(name: str, value: float) -> str:
    if name == "cpu_cores":
        return counted(value, "core")
    return format_bytes(value) + ("/s" if name.endswith("_per_s") else "")
