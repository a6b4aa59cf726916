"""Penstock's settings in Dask's configuration: the keys under ``penstock``, and nowhere else."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Self

import dask.config


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """The declaration of all settings; each field is a key ``penstock.<name, with - for _>`` of Dask's configuration.

    In the environment ``DASK_PENSTOCK__PATIENCE_S=0.2`` sets ``patience_s``.
    """

    enabled: bool = True
    """False: the preload and the plugins do nothing."""
    socket: str = ""
    """The agent's socket; empty: the default of ``penstock.client``."""
    job: str = ""
    """The job's name at the agent; empty: that of the program that has the cluster, else ``dask`` and the scheduler's
    address."""
    share_job: bool = True
    """All workers of this cluster on a host are one job of its agent; False: each worker process is a job."""
    priority: float = 0.0
    """The job's priority at the agent."""
    memory_bytes: int = 0
    """The estimate for the whole job, by which the master admits it (Ursa §4.2.1)."""
    patience_s: float = 1.0
    """The longest delay of work by an outage of the agent before it runs ungated, in seconds."""
    rank: bool = True
    """The cluster's processes on a host are moved into a container of the job while it lasts, and ranked with it."""
    cpu: bool = False
    """Tasks are CPU monotasks, which wait for a slot. False: only tasks placed by a master are; Dask starts the others
    directly, and the rank of the cluster's processes determines their speed."""
    own_thread: bool = False
    """A thread of its own talks to the agent; False: the worker's event loop does."""
    network: bool = True
    """Transfers between workers are network monotasks, P2P shuffles too."""
    disk: bool = True
    """Writes of P2P shuffles and spilling, and reads of the written data, are disk monotasks."""
    spill_patience_s: float = 5.0
    """The longest wait for the disk, in seconds: of a worker that is short of memory, before it spills without a grant,
    and of a task that reads a shuffle's shards, before it reads them without a grant."""

    @classmethod
    def from_config(cls, **before: Any) -> Self:
        """Read Dask's present configuration; keyword arguments override it.

        Raises:
            ValueError: an unknown key, with the nearest known one, or an invalid value; one line.
        """
        configured = dask.config.get("penstock", None) or {}
        if not isinstance(configured, Mapping):
            raise ValueError(f"penstock in Dask's configuration must be a table of keys, not {configured!r}")
        named = {str(key).replace("-", "_"): value for key, value in configured.items()}
        return cls(**checked(named, "penstock.", " in Dask's configuration") | checked(before))

    def socket_path(self) -> Path | None:
        """Return the path of the agent's socket, if it is set."""
        return Path(self.socket) if self.socket else None


def checked(given: Mapping[str, Any], prefix: str = "", where: str = "") -> dict[str, Any]:
    """Return values for fields of :class:`Settings`. Errors name the keys with ``prefix``, and ``where`` they are.

    Raises:
        ValueError: as :meth:`Settings.from_config`.
    """
    known = {field.name: type(field.default) for field in fields(Settings)}
    for key in given:
        if key not in known:
            near = get_close_matches(key, known, 1)
            hint = f"; did you mean {prefix}{near[0]}?" if near else ""
            raise ValueError(f"no such key{where}: {prefix}{key}{hint}")
    return {key: _checked(key, value, known[key], f"{prefix}{key}{where}") for key, value in given.items()}


def _checked(key: str, value: Any, wanted: type, name: str) -> Any:
    if wanted is float and isinstance(value, int | float) and not isinstance(value, bool):
        if not math.isfinite(value):
            raise ValueError(f"{name} must be a finite number, not {value!r}")
        if value >= 0 or key == "priority":
            return float(value)
        raise ValueError(f"{name} must not be negative: {value!r}")
    if wanted is int and isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    if wanted is int and isinstance(value, float) and value >= 0 and value.is_integer():
        return int(value)
    if wanted in {bool, str} and isinstance(value, wanted):
        return value
    if wanted is str and (value is None or isinstance(value, os.PathLike)):
        return "" if value is None else os.fspath(value)
    if wanted is str and isinstance(value, int | float):  # Dask parses environment values as Python literals
        return str(value)
    kinds = {bool: "true or false", str: "text", int: "a whole number of bytes", float: "a number"}
    raise ValueError(f"{name} must be {kinds[wanted]}, not {value!r}")
