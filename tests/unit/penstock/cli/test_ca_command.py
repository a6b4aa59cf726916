"""``penstock ca``: the files that it makes, their owners, the refused requests, and that no name becomes a path."""

from __future__ import annotations

import json
import ssl
import subprocess
from pathlib import Path

import pytest

from penstock.cli.ca import main
from penstock.cli.errors import CommandError
from penstock.cli.main import main as penstock
from penstock.security import tls
from penstock.security.authority import Authority
from tests.security_bed import DAY, NOW


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    assert main(["init", "--directory", str(tmp_path / "ca")]) == 0
    return tmp_path / "ca"


def _in(directory: Path, *arguments: str) -> int:
    return main([arguments[0], "--directory", str(directory), *arguments[1:]])


def test_what_is_made_is_for_its_owner_alone(directory: Path) -> None:
    assert _in(directory, "issue", "alpha") == 0
    modes = {path.relative_to(directory).as_posix(): path.stat().st_mode & 0o777 for path in directory.rglob("*")}
    assert modes == {
        "ca.pem": 0o644, "crl.pem": 0o644, "ca.key": 0o600, "issued": 0o700, "issued/alpha.pem": 0o644,
        "issued/alpha.key": 0o600,
    }  # fmt: skip
    assert directory.stat().st_mode & 0o777 == 0o700


def test_openssl_finds_nothing_wrong_with_it(directory: Path) -> None:
    _in(directory, "issue", "alpha", "--also", "alpha.example.org", "--also", "10.0.0.1")
    _in(directory, "issue", "head", "--master")
    for name, purpose in (("alpha", "sslclient"), ("alpha", "sslserver"), ("head", "sslserver")):
        done = subprocess.run(
            ["openssl", "verify", "-x509_strict", "-purpose", purpose, "-CAfile", directory / "ca.pem",
             directory / f"issued/{name}.pem"],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
    refused = subprocess.run(
        ["openssl", "verify", "-purpose", "sslclient", "-CAfile", directory / "ca.pem", directory / "issued/head.pem"],
        capture_output=True, check=False,
    )  # fmt: skip
    assert refused.returncode != 0, "a master's certificate is none of a node"


def test_renewal_keeps_names_and_role_and_makes_a_fresh_key(directory: Path) -> None:
    _in(directory, "issue", "head", "--master", "--also", "10.0.0.1", "--days", "40")
    before, key = Authority(directory).find("head"), (directory / "issued/head.key").read_bytes()
    assert _in(directory, "renew", "head") == 0
    after = Authority(directory).find("head")
    assert (after.names, after.master) == (before.names, True) == (("head", "10.0.0.1"), True)
    assert (directory / "issued/head.key").read_bytes() != key
    assert round(after.left_days(NOW)) == 40
    tls.mutual_server(tls.TlsFiles(after.certificate, after.key, directory / "ca.pem"))


@pytest.mark.parametrize("filed_as", ["fe80::1", "FE80:0::1"])
def test_an_address_is_one_name_however_it_is_written(directory: Path, filed_as: str) -> None:
    """Earlier versions filed it as it was written."""
    assert _in(directory, "issue", "FE80:0::1", "--also", "FE80::1", "--also", "alpha") == 0
    issued = directory / "issued"
    for file in list(issued.iterdir()):
        file.rename(file.with_stem(filed_as))
    with pytest.raises(CommandError, match="was issued already"):
        _in(directory, "issue", "FE80:0::1")
    key = (issued / f"{filed_as}.key").read_bytes()
    assert _in(directory, "renew", "FE80:0::1") == 0
    assert _in(directory, "renew") == 0
    assert sorted(file.name for file in issued.iterdir()) == [f"{filed_as}.key", f"{filed_as}.pem"]
    assert (issued / f"{filed_as}.key").read_bytes() != key
    assert Authority(directory).find("FE80:0::1").names == ("fe80::1", "alpha")
    assert _in(directory, "revoke", "FE80:0::1") == 0
    assert list(issued.iterdir()) == []
    assert [one.name for one in Authority(directory).revoked()] == [filed_as] * 3


def test_only_certificates_that_end_soon_are_renewed(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _in(directory, "issue", "early", "--days", "20")
    _in(directory, "issue", "late", "--days", "200")
    capsys.readouterr()
    assert _in(directory, "renew", "--within", "30") == 0
    assert capsys.readouterr().out.splitlines() == [f"{directory}/issued/early.{kind}" for kind in ("pem", "key")]


def test_issued_certificates_are_shown(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Authority(directory).issue("gone", (), 10, NOW - 20 * DAY, master=False)
    _in(directory, "issue", "head", "--master", "--also", "head.example.org")
    capsys.readouterr()
    assert _in(directory, "show", "--json") == 0
    shown = json.loads(capsys.readouterr().out)
    rows = [(row["name"], row["role"], row["names"], row["days_left"] > 0) for row in shown["issued"]]
    assert rows == [("gone", "node", ["gone"], False), ("head", "master", ["head", "head.example.org"], True)]
    assert _in(directory, "show") == 0
    assert "EXPIRED" in capsys.readouterr().out


@pytest.mark.parametrize(
    "name",
    ["../../x", "/etc/passwd", "a/b", ".hidden", "", "a b", "a\0b", "x" * 129, "ü", "-x", "x.", "*", "*.example.org"],
)
def test_what_is_no_name_of_a_host_is_not_issued(directory: Path, name: str) -> None:
    before = sorted(directory.parent.rglob("*"))
    for asked in (["issue", "--", name], ["issue", f"--also={name}", "good"], ["revoke", "--", name]):
        with pytest.raises(CommandError, match="is not a host's name or address"):
            _in(directory, *asked)
    assert sorted(directory.parent.rglob("*")) == before


def test_an_authority_is_never_overwritten(directory: Path) -> None:
    key = (directory / "ca.key").read_bytes()
    with pytest.raises(CommandError, match="an authority is there already; name another --directory"):
        _in(directory, "init")
    assert (directory / "ca.key").read_bytes() == key


def test_bad_input_is_one_line(directory: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _in(directory, "issue", "alpha")
    for arguments, status, line in (
        (["issue", "--directory", str(directory), "alpha"], 1, "alpha: was issued already; `penstock ca renew alpha`"),
        (["revoke", "--directory", str(directory), "beta"], 4, "beta: was not issued here; `penstock ca show` lists"),
        (["renew", "--directory", str(directory), "beta"], 4, "beta: was not issued here; `penstock ca issue beta`"),
        (["issue", "--directory", str(tmp_path / "none"), "x"], 1, "there is no authority; `penstock ca init`"),
        (["issue", "--directory", str(directory), "x", "--days", "0"], 2, "'0' is not a number from 1 on"),
        (["init", "--directory", str(tmp_path / "new"), "--days", "9999999"], 1, "--days: 9999999 would"),
        (["issue", "--directory", str(directory), "x", "--days", "9999999"], 1, "--days: 9999999 would"),
        (["renew", "--directory", str(directory), "alpha", "--days", "2147483647"], 1, "--days: 2147483647 would"),
        (["sign", "x"], 2, "unknown command 'sign'; one of init, issue, renew, revoke, show"),
    ):
        capsys.readouterr()
        assert penstock(["ca", *arguments]) == status
        said = capsys.readouterr().err
        assert said.startswith("penstock ca: ") and line in said and said.count("\n") == 1
    assert not (tmp_path / "new").exists()
    (directory / "ca.pem").write_text("x")
    with pytest.raises(CommandError, match=r"ca.pem or ca.key cannot be read"):
        _in(directory, "show")


def _openssl_accepts(directory: Path, certificate: Path) -> str:
    """Empty: yes; else why not."""
    done = subprocess.run(
        ["openssl", "verify", "-x509_strict", "-crl_check", "-CAfile", directory / "ca.pem", "-CRLfile",
         directory / "crl.pem", certificate],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    return done.stderr if done.returncode else ""


def test_what_is_revoked_is_refused_by_openssl_and_what_was_renewed_before_is_so_too(
    directory: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("alpha", "alpha.b", "beta"):
        _in(directory, "issue", name)
    copies = []
    for number in range(3):  # thieves have copies of each
        copies.append(tmp_path / f"copy-{number}.pem")
        copies[-1].write_bytes((directory / "issued/alpha.pem").read_bytes())
        _in(directory, "renew", "alpha")
    copies.append(tmp_path / "last.pem")
    copies[-1].write_bytes((directory / "issued/alpha.pem").read_bytes())
    assert [_openssl_accepts(directory, copy) for copy in copies] == [""] * 4
    capsys.readouterr()
    assert _in(directory, "revoke", "alpha") == 0
    assert capsys.readouterr().out == f"{directory}/crl.pem\n"
    assert ["certificate revoked" in _openssl_accepts(directory, copy) for copy in copies] == [True] * 4
    for name in ("alpha.b", "beta"):
        assert not _openssl_accepts(directory, directory / f"issued/{name}.pem")
    assert not (directory / "issued/alpha.key").exists()

    assert _in(directory, "issue", "alpha") == 0
    assert not _openssl_accepts(directory, directory / "issued/alpha.pem"), "a host that was set up anew"
    assert _in(directory, "revoke", "beta") == 0
    assert "certificate revoked" in _openssl_accepts(directory, copies[0]), "the list grows"
    capsys.readouterr()
    _in(directory, "show", "--json")
    shown = json.loads(capsys.readouterr().out)
    assert [row["name"] for row in shown["revoked"]] == ["alpha"] * 4 + ["beta"]
    assert {row["name"] for row in shown["issued"]} == {"alpha", "alpha.b"}
    _in(directory, "show")
    assert capsys.readouterr().out.count("REVOKED") == 5
    with pytest.raises(CommandError, match=r"beta: is revoked already; .*crl\.pem has it"):
        _in(directory, "revoke", "beta")


def test_an_authority_from_before_there_were_lists_gets_one(directory: Path) -> None:
    _in(directory, "issue", "alpha")
    (directory / "crl.pem").unlink()
    _in(directory, "issue", "beta")
    assert not _openssl_accepts(directory, directory / "issued/alpha.pem")
    (directory / "crl.pem").unlink()
    _in(directory, "revoke", "alpha")
    assert [one.name for one in Authority(directory).revoked()] == ["alpha"]


def test_a_list_that_is_another_s_is_not_carried_on(directory: Path, tmp_path: Path) -> None:
    _in(directory, "issue", "alpha")
    main(["init", "--directory", str(tmp_path / "other")])
    (directory / "crl.pem").write_bytes((tmp_path / "other/crl.pem").read_bytes())
    with pytest.raises(CommandError, match=r"crl\.pem: is not signed by .*ca\.pem"):
        _in(directory, "revoke", "alpha")
    assert Authority(directory).find("alpha").names == ("alpha",)


def test_nothing_outlives_the_authority(tmp_path: Path) -> None:
    made = Authority(tmp_path / "ca")
    made.init("short", 10, NOW)
    issued = made.issue("alpha", (), 365, NOW, master=False)
    assert issued.until == made.until()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_cert_chain(issued.certificate, issued.key)
