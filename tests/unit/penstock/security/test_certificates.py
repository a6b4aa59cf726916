"""Certificates that end: logged thirty days ahead, once a day, until they are renewed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import structlog
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.registry import Collector

from penstock.security.certificates import CertificateWatch, certificate_metrics, endings
from penstock.security.tls import TlsFiles
from tests.security_bed import DAY, NOW, authority, files


class Bed:
    def __init__(self, of: TlsFiles | None) -> None:
        self.at = NOW.timestamp()
        self.watch = CertificateWatch(of, lambda: self.at)

    def look(self, after_days: float = 0.0) -> list[dict[str, Any]]:
        """Return the lines of the log."""
        self.at += after_days * DAY.total_seconds()
        with structlog.testing.capture_logs() as lines:
            self.watch.look()
        return [dict(line) for line in lines]


def test_what_ends_within_thirty_days_is_said_once_a_day(tmp_path: Path) -> None:
    ca = authority(tmp_path / "ca")
    made = files(ca, "alpha", days=31)
    bed = Bed(made)
    assert bed.look() == []
    said = [len(bed.look(after_days=0.6)) for _ in range(7)]
    assert said == [0, 1, 0, 1, 0, 1, 0], "from the second look on it is less than thirty days; then daily"
    [line] = bed.look(after_days=1)
    assert line == {
        "event": "a certificate ends soon", "log_level": "warning", "key": "tls_certificate", "left_days": 25,
        "file": str(made.tls_certificate), "remedy": "`penstock ca renew`",
    }  # fmt: skip
    [line] = bed.look(after_days=40)
    assert (line["event"], line["log_level"]) == ("a certificate has ended", "error")
    ca.renew("alpha", NOW + 45 * DAY, 90)
    assert bed.look() == [], "at once, and without a restart"
    assert bed.watch.rows()[0].ends_at == endings(made)[0].ends_at > bed.at


def test_the_authority_that_signed_it_is_looked_at_too(tmp_path: Path) -> None:
    ca, other = authority(tmp_path / "ca", NOW - 3640 * DAY), authority(tmp_path / "other", NOW - 3649 * DAY)
    both = tmp_path / "both.pem"
    both.write_bytes(other.certificate.read_bytes() + ca.certificate.read_bytes())
    made = files(ca, "alpha", days=365, ca=both)
    said = {line["key"]: line["left_days"] for line in Bed(made).look()}
    assert said == {"tls_certificate": 9, "tls_ca": 9}, "nothing outlives its authority"


def test_pages_alone_have_a_certificate_too(tmp_path: Path) -> None:
    made = files(authority(tmp_path / "ca"), "head", master=True, days=5)
    bed = Bed(TlsFiles(made.tls_certificate, made.tls_key))
    assert [line["key"] for line in bed.look()] == ["tls_certificate"]


def test_without_one_and_while_it_is_replaced_nothing_is_logged(tmp_path: Path) -> None:
    assert Bed(None).look() == [] and Bed(None).watch.rows() == []
    made = files(authority(tmp_path / "ca"), "alpha", days=90)
    bed = Bed(made)
    bed.look()
    before = bed.watch.rows()
    made.tls_certificate.write_text("half")
    assert bed.look() == [] and bed.watch.rows() == before
    made.tls_certificate.unlink()
    assert bed.look() == [] and bed.watch.rows() == before


def test_it_is_a_metric(tmp_path: Path) -> None:
    made = files(authority(tmp_path / "ca"), "alpha")
    bed = Bed(made)
    bed.look()

    class Collects(Collector):
        def collect(self) -> Any:
            return certificate_metrics("penstock", bed.watch.rows())

    registry = CollectorRegistry()
    registry.register(Collects())
    text = generate_latest(registry).decode()
    own, ca = endings(made)
    name = "penstock_certificate_end_timestamp_seconds"
    values = dict(line.rsplit(" ", 1) for line in text.splitlines() if line.startswith(name))
    assert {key: float(value) for key, value in values.items()} == {
        f'{name}{{key="tls_certificate"}}': own.ends_at, f'{name}{{key="tls_ca"}}': ca.ends_at
    }  # fmt: skip
