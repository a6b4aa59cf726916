"""Report when a daemon's certificates expire: in its log from thirty days ahead, in its status and its metrics."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import structlog
from prometheus_client.core import GaugeMetricFamily, Metric

from penstock.documents import Certificate
from penstock.security import tls

log = structlog.get_logger()
_DAY_S = 86_400.0
WARN_AHEAD_S = 30 * _DAY_S
_LOOK_INTERVAL_S = 3600.0


def endings(files: tls.TlsFiles) -> list[Certificate]:
    """Return the end of our own certificate, and of its CA's certificate if ``tls_ca`` has it.

    Raises:
        tls.TlsError: a file cannot be used.
    """
    own = tls.decoded(files)
    if not own:
        return []
    found = [Certificate(key="tls_certificate", file=str(files.tls_certificate), ends_at=_ends_at(own))]
    signers = [one for one in tls.authorities(files) if one.get("subject") == own.get("issuer")]
    if signers:
        found.append(Certificate(key="tls_ca", file=str(files.tls_ca), ends_at=max(map(_ends_at, signers))))
    return found


def _ends_at(decoded: Mapping[str, Any]) -> float:
    return float(ssl.cert_time_to_seconds(str(decoded["notAfter"])))


@dataclass(slots=True)
class CertificateWatch:
    """Checks certificates at start, on request, and every hour. ``files`` None: there are none to check."""

    files: tls.TlsFiles | None
    clock: Callable[[], float] = time.time
    _endings: list[Certificate] = field(default_factory=list, init=False)
    _warned_at: dict[Certificate, float] = field(default_factory=dict, init=False)

    def look(self) -> None:
        """Read the certificates again; log once a day those that expire soon or have expired."""
        if self.files is None:
            return
        try:
            self._endings = endings(self.files)
        except (tls.TlsError, OSError):  # perhaps half written; the TLS context reports an unusable file
            return
        now = self.clock()
        self._warned_at = {each: at for each, at in self._warned_at.items() if each in self._endings}
        for each in self._endings:
            left_s = each.ends_at - now
            if left_s < WARN_AHEAD_S and now - self._warned_at.get(each, 0.0) >= _DAY_S:
                self._warned_at[each] = now
                _warn(each, left_s)

    async def run(self) -> None:
        """Check the certificates every hour until cancelled."""
        while True:
            self.look()
            await asyncio.sleep(_LOOK_INTERVAL_S)

    def rows(self) -> list[Certificate]:
        """Return the ends of the certificates for the status document."""
        return self._endings


def _warn(each: Certificate, left_s: float) -> None:
    own = each.key == "tls_certificate"
    renew = "`penstock ca renew`" if own else "make another with `penstock ca init`, and trust both for a while"
    if left_s <= 0:
        log.error("a certificate has ended", key=each.key, file=each.file, remedy=renew)
    else:
        log.warning(
            "a certificate ends soon", key=each.key, file=each.file, left_days=int(left_s // _DAY_S), remedy=renew
        )


def certificate_metrics(prefix: str, rows: Iterable[Certificate]) -> Iterator[Metric]:
    """Yield the rows of :meth:`CertificateWatch.rows` as Prometheus metrics."""
    name, text = f"{prefix}_certificate_end_timestamp_seconds", "When a certificate that we depend on ends (Unix time)."
    gauge = GaugeMetricFamily(name, text, labels=["key"])
    for row in rows:
        gauge.add_metric([row.key], row.ends_at)
    yield gauge
