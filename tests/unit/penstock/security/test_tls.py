"""The rules for TLS in the daemons' configuration, files that cannot be used, names, loopback."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from agent.config import AgentConfig
from master.config import MasterConfig
from penstock.config.settings import SettingsError
from penstock.security import doors, tls
from tests.security_bed import DAY, NOW, authority, carried, files, settings

THREE = {"tls_ca": "ca.pem", "tls_certificate": "own.pem", "tls_key": "own.key"}


@pytest.mark.parametrize(
    ("config", "fault"),
    [
        (MasterConfig(), 'tls_ca: empty, and `listen` is a TCP port; .*`penstock ca` makes them.*, or listen = "/run/'),
        (MasterConfig(listen="0.0.0.0:7420"), r"tls_ca: empty, and `listen` is a TCP port; .*makes them\)$"),
        (MasterConfig(listen="/run/" + "x" * 103), "^listen: '/run/x*' is longer than 107 bytes; choose"),
        (MasterConfig(listen="master.sock"), "^listen: 'master.sock' is neither ADDRESS:PORT nor the path of a Unix"),
        (MasterConfig(**THREE | {"tls_key": ""}), "^tls_key: empty"),
        (AgentConfig(master="head:7420"), "^tls_ca: empty, and `master` is a TCP port"),
        (AgentConfig(master="localhost:7420"), "^tls_ca: empty, .*, or master = "),
        (AgentConfig(http="[::]:7421"), "^tls_certificate: empty, and `http` is not on loopback"),
        (AgentConfig(http="10.0.0.1:7421", **THREE), "^http_read_token_file: empty, and `http` is not on loopback"),
    ],
)
def test_what_others_could_hear_is_refused_in_one_line_with_the_remedy(
    config: AgentConfig | MasterConfig, fault: str
) -> None:
    with pytest.raises(SettingsError, match=fault) as caught:
        config.check()
    assert len(caught.value.faults) == 1


@pytest.mark.parametrize(
    "config",
    [
        MasterConfig(listen="/run/penstock/master.sock"),
        MasterConfig(listen="[::1]:7420", **THREE),
        MasterConfig(listen="0.0.0.0:7420", **THREE),
        AgentConfig(),
        AgentConfig(master="/run/penstock/master.sock"),
        AgentConfig(master="head:7420", **THREE),
        AgentConfig(master="head:7420", http="0.0.0.0:7421", http_read_token_file="token", **THREE),
    ],
)
def test_a_port_that_others_cannot_overhear_is_left_alone(config: AgentConfig | MasterConfig) -> None:
    config.check()


def test_two_faults_are_both_reported() -> None:
    with pytest.raises(SettingsError) as caught:
        MasterConfig(listen="0.0.0.0:1", http="0.0.0.0:2").check()
    assert [fault.partition(":")[0] for fault in caught.value.faults] == ["tls_certificate", "tls_ca"]


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        ("127.0.0.1", True), ("127.9.9.9", True), ("::1", True), ("localhost", True),
        ("0.0.0.0", False), ("::", False), ("10.0.0.1", False), ("localhost.example.org", False), ("fe80::1%lo", False),
    ],
)  # fmt: skip
def test_loopback(host: str, loopback: bool) -> None:
    assert doors.is_loopback(host) is loopback


def test_a_file_that_cannot_be_used_is_named_with_its_key(tmp_path: Path) -> None:
    ca = authority(tmp_path / "ca")
    good, other = files(ca, "alpha"), files(ca, "beta")
    text = tmp_path / "text"
    text.write_text("no certificate")
    text.chmod(0o600)
    for bad, fault in (
        (tls.TlsFiles(tmp_path / "absent", good.tls_key, good.tls_ca), "^tls_certificate: .*absent: No such file"),
        (tls.TlsFiles(good.tls_certificate, other.tls_key, good.tls_ca), "^tls_key: .*beta.key: is not the key of"),
        (tls.TlsFiles(good.tls_certificate, good.tls_key, text), "^tls_ca: .*text: no certificate in PEM"),
        (tls.TlsFiles(text, good.tls_key, good.tls_ca), "^tls_certificate, tls_key: .*text, .*: not in PEM"),
    ):
        with pytest.raises(tls.TlsError, match=fault):
            tls.mutual_client(bad)
    good.tls_key.chmod(0o644)
    with pytest.raises(tls.TlsError, match=r"^tls_key: .*alpha.key: everybody may use it; chmod o= "):
        tls.mutual_server(good)


def test_an_encrypted_key_asks_for_no_password(tmp_path: Path) -> None:
    from cryptography.hazmat.primitives import serialization

    made = files(authority(tmp_path / "ca"), "alpha")
    key = serialization.load_pem_private_key(made.tls_key.read_bytes(), None)
    form = serialization.PrivateFormat.PKCS8
    sealed = serialization.BestAvailableEncryption(b"x")
    made.tls_key.write_bytes(key.private_bytes(serialization.Encoding.PEM, form, sealed))
    with pytest.raises(tls.TlsError, match=r"^tls_key: it is encrypted, and a daemon has nobody to ask"):
        tls.mutual_client(made)


def test_the_objections_of_others_to_our_certificate_are_known_before(tmp_path: Path) -> None:
    ca = authority(tmp_path / "ca", NOW - 100 * DAY)
    assert tls.shown(files(ca, "alpha", "alpha.example.org"), server=False) == (("alpha", "alpha.example.org"), "")
    assert tls.shown(files(ca, "head", master=True), server=True) == (("head",), "")
    assert "it has expired" in tls.shown(files(ca, "old", since=NOW - 9 * DAY, days=2), server=False)[1]
    foreign = files(authority(tmp_path / "other"), "alpha", ca=ca.certificate)
    assert tls.shown(foreign, server=False) == ((), "it is not signed by the CA in tls_ca")


def test_the_names_in_our_own_certificate_are_known_whether_it_is_valid_or_not(tmp_path: Path) -> None:
    ca = authority(tmp_path / "ca", NOW - 100 * DAY)
    for made in (
        files(ca, "alpha", "alpha.example.org"),
        files(ca, "head", master=True),
        files(ca, "old", since=NOW - 9 * DAY, days=2),
        files(authority(tmp_path / "other"), "foreign", ca=ca.certificate),
    ):
        found = tls.decoded(made)
        assert tls.names(found)[0] == made.tls_certificate.stem
        assert found["notAfter"] and found["issuer"]
    [own] = tls.authorities(made)
    assert own["subject"] == ((("commonName", "test CA"),),)


def test_a_list_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    ca = authority(tmp_path / "ca")
    made = files(ca, "alpha")
    text = tmp_path / "text"
    text.write_text("nothing")
    for wrong, line in (
        (tmp_path / "none", r"^tls_crl: .*/none: No such file"),
        (text, r"^tls_crl: .*/text: no list in PEM"),
        (ca.certificate, r"^tls_crl: .*/ca\.pem: a certificate is in it, or no list; `penstock ca revoke`"),
        (files(authority(tmp_path / "evil"), "x").tls_certificate, r"^tls_crl: .*: a certificate is in it"),
    ):
        with pytest.raises(tls.TlsError, match=line):
            tls.mutual_server(dataclasses.replace(made, tls_crl=wrong))


def test_a_revoked_node_knows_it_from_its_own_list(tmp_path: Path) -> None:
    ca = authority(tmp_path / "ca")
    made = carried(files(ca, "alpha"), tmp_path / "host")
    assert tls.shown(made, server=False) == (("alpha",), "")
    ca.revoke("alpha", NOW)
    made = dataclasses.replace(made, tls_crl=ca.revocations)
    assert tls.shown(made, server=False) == ((), "it was revoked")
    foreign = dataclasses.replace(made, tls_crl=authority(tmp_path / "other").revocations)
    assert tls.shown(foreign, server=False)[1].startswith("the list in tls_crl is not of its CA")


def test_it_is_known_when_others_are_trusted_than_before(tmp_path: Path) -> None:
    ca = authority(tmp_path / "ca")
    made = files(ca, "alpha", listed=True)
    contexts = tls.Contexts(made, tls.mutual_server)
    first = contexts.current()
    assert not contexts.outdated(first) and not contexts.outdated(None)
    ca.renew("alpha", NOW)
    second = contexts.current()
    assert second is not first
    assert not contexts.outdated(first), "another certificate of our own makes no other worse"
    ca.issue("beta", (), 10, NOW, master=False)
    ca.revoke("beta", NOW)
    assert contexts.outdated(first) and contexts.outdated(second)
    assert not contexts.outdated(contexts.current())
    third = contexts.current()
    ca.revocations.write_text("half")
    assert not contexts.outdated(third), "an unusable file replaces nothing"


def test_names_are_the_dns_names_or_else_the_common_name() -> None:
    subject = ((("organizationName", "x"),), (("commonName", "alpha"),))
    assert tls.names({"subject": subject}) == ("alpha",)
    assert tls.names({"subject": subject, "subjectAltName": (("DNS", "beta"), ("IP Address", "1.2.3.4"))}) == ("beta",)
    assert tls.names(None) == ()


def test_a_certificate_for_another_name_is_reported_at_the_start(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = files(authority(tmp_path / "ca"), "beta")
    config = AgentConfig(master="head:7420", **settings(made))
    assert doors.contexts(config, "master", "head", "beta") is not None
    assert "will be refused" not in capsys.readouterr().out
    assert doors.contexts(config, "master", "head", "alpha") is not None
    assert "it is for beta; set `node` to that, or `penstock ca issue alpha`" in capsys.readouterr().out
