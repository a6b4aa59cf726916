"""The master's configuration: one declared table; every key is documented here and nowhere else."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from master.core.settings import MasterSettings
from penstock.settings import SettingsError

Meta = msgspec.Meta
Seconds = Annotated[float, Meta(gt=0)]


class MasterConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``/etc/penstock/master.toml``. Flat keys; quantities as people write them (``"50MB/s"``, ``"100ms"``)."""

    listen: Annotated[str, Meta(description="ADDRESS:PORT for agents; port 0: any free one")] = "127.0.0.1:7420"
    http: Annotated[str, Meta(description="ADDRESS:PORT of status and metrics; port 0: any free one")] = (
        "127.0.0.1:7422"
    )
    interval_s: Annotated[float, Meta(gt=0, description="scheduling interval: time between two rounds")] = 0.1
    ept_s: Annotated[
        float, Meta(gt=0, description="Ursa's EPT: work that a node should have queued; the scheduling latency or more")
    ] = 1.0
    ordering: Annotated[
        Literal["ejf", "fifo"], Meta(description="order of jobs: ejf (earliest first, weighed) or fifo (strictly)")
    ] = "ejf"
    ejf_weight: Annotated[
        float, Meta(ge=0, description="Ursa's W: score per second since a job was submitted; a fit scores at most 4")
    ] = 1.0
    heartbeat_s: Annotated[float, Meta(gt=0, description="how often agents report at least")] = 1.0
    node_timeout_s: Annotated[
        float, Meta(gt=0, description="how long a node may be away or silent before its tasks are lost")
    ] = 10.0
    promotion: Annotated[
        bool, Meta(description="opportunistic tasks become regular where there is room (UBIS §IV.D)")
    ] = True
    default_cpu_bytes_per_s: Annotated[
        float, Meta(gt=0, description="processing rate of one core until its node has measured its own")
    ] = 50e6
    default_disk_bytes_per_s: Annotated[
        float, Meta(gt=0, description="processing rate of a node's disk monotasks until it has measured its own")
    ] = 100e6
    default_network_bytes_per_s: Annotated[
        float, Meta(gt=0, description="processing rate of a node's network monotasks until it has measured its own")
    ] = 100e6

    def cluster_settings(self) -> MasterSettings:
        """What the decisions must know."""
        return MasterSettings(
            interval_s=self.interval_s,
            ept_s=self.ept_s,
            ordering=self.ordering,
            ejf_weight=self.ejf_weight,
            heartbeat_s=self.heartbeat_s,
            node_timeout_s=self.node_timeout_s,
            promotion=self.promotion,
            default_cpu_bytes_per_s=self.default_cpu_bytes_per_s,
            default_disk_bytes_per_s=self.default_disk_bytes_per_s,
            default_network_bytes_per_s=self.default_network_bytes_per_s,
        )

    def check(self) -> None:
        """What no single field can say.

        Raises:
            SettingsError: two settings contradict each other, or an address is none.
        """
        host_port(self.listen, "listen")
        host_port(self.http, "http")
        if self.ept_s < self.interval_s:
            raise SettingsError(f"ept_s: {self.ept_s:g} is below interval_s ({self.interval_s:g}); set it above")
        if self.node_timeout_s < 2 * self.heartbeat_s:
            raise SettingsError(
                f"node_timeout_s: {self.node_timeout_s:g} is below two heartbeats ({self.heartbeat_s:g} s each)"
            )


def host_port(text: str, key: str) -> tuple[str, int]:
    """``127.0.0.1:7420`` or ``[::1]:7420``.

    Raises:
        SettingsError: neither.
    """
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isdecimal() or int(port) > 65535:
        raise SettingsError(f"{key}: {text!r} is not ADDRESS:PORT; write for example 127.0.0.1:7420")
    return host.removeprefix("[").removesuffix("]"), int(port)
