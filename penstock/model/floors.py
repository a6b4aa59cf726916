"""The smallest values of limits, the processors that a limit may name, and the slots of a profile. A limit beyond them
is a typo or has a wrong unit: a smaller one would stop the container."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from penstock.model.container import MOST_CPUS_CHARACTERS, MOST_PROCESSORS, Limits
from penstock.model.profile import RESOURCES, Profile
from penstock.model.units import counted, format_bytes

#: The kernel's minimum: 1 ms in each period of 100 ms (kernel/sched/core.c, min_cfs_quota_period).
LEAST_CORES = 0.01
LEAST_MEMORY_BYTES = 1 << 20
#: For reading, writing, sending and receiving.
LEAST_BYTES_PER_S = 1000
#: The most slots of a profile: a day has 28,800 of 3 s. An agent does nothing else for 5 µs for each.
MOST_SLOTS = 32_768


def least_of(name: str) -> float:
    """Return the smallest value of a limit, or of a profile's resource, by its name; 0 if there is none."""
    if name == "cpu_cores":
        return LEAST_CORES
    if name.startswith("memory_"):
        return LEAST_MEMORY_BYTES
    return LEAST_BYTES_PER_S if name.endswith("_bytes_per_s") else 0


def too_small(values: Mapping[str, object]) -> Iterator[tuple[str, str, str]]:
    """Yield each limit below its minimum, and ``cpus`` that no host has: its name, the error, and the remedy."""
    for name, value in values.items():
        if name == "cpus" and isinstance(value, str):
            yield from ((name, *fault) for fault in wrong_processors(value))
        if isinstance(value, int | float) and value < (least := least_of(name)):
            yield name, f"{_shown(name, value)} is too little to run with", f"ask for at least {_shown(name, least)}"


def wrong_processors(cpus: str) -> Iterator[tuple[str, str]]:
    """Yield the error and the remedy for a text that lists no processors of a host (the kernel's format: ``0-3,8``).

    The numbers are compared before anything is made of the list: an agent makes a set of its processors.
    """
    if len(cpus) > MOST_CPUS_CHARACTERS:
        yield (
            f"a list of {counted(len(cpus), 'character')} is too long",
            f"write at most {MOST_CPUS_CHARACTERS}, for example 0-3,8",
        )
        return
    if not re.fullmatch(r"[0-9]+(-[0-9]+)?(,[0-9]+(-[0-9]+)?)*", cpus):
        yield f"{cpus[:40]!r} is not a list of processors", "write for example 0-3,8"
        return
    named = 0
    for part in cpus.split(","):
        first, _, last = part.partition("-")
        last = last or first
        if max(len(first), len(last)) > len(str(MOST_PROCESSORS)) or int(last) >= MOST_PROCESSORS:
            yield f"{part[:20]!r} is beyond the last processor of any host", f"name some up to {MOST_PROCESSORS - 1}"
            return
        if int(last) < int(first):
            yield f"{part!r} ends before it begins", f"write {last}-{first}"
            return
        named += int(last) - int(first) + 1
        if named > MOST_PROCESSORS:
            yield f"it names more than {MOST_PROCESSORS} processors, some of them twice", "name each once"
            return


def limits_too_small(limits: Limits) -> Iterator[tuple[str, str, str]]:
    """As :func:`too_small`, for limits."""
    return too_small({name: getattr(limits, name) for name in limits.__struct_fields__})


def profile_too_small(profile: Profile) -> Iterator[tuple[str, str, str]]:
    """As :func:`too_small`, for the lowest value of each of a profile's resources; and for one with too many values."""
    for name in RESOURCES:
        if (slots := len(getattr(profile, name))) > MOST_SLOTS:
            yield name, f"{counted(slots, 'slot')} are too many", f"give at most {MOST_SLOTS}, with a longer slot_s"
    yield from too_small({name: min(values) for name in RESOURCES if (values := getattr(profile, name))})


def _shown(name: str, value: float) -> str:
    if name == "cpu_cores":
        return counted(value, "core")
    return format_bytes(value) + ("/s" if name.endswith("_per_s") else "")
