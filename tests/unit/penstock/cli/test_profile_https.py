"""`penstock profile` against a master whose pages have TLS and a token: each way that fails is one line."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from penstock.cli.main import main
from penstock.security.authority import Authority
from penstock.security.tls import TlsFiles, page_server
from tests.fakes.http_pages import http_pages
from tests.security_bed import DAY, NOW, authority, files

TOKEN = "0123456789abcdef"


@pytest.fixture
def ca(tmp_path: Path) -> Authority:
    return authority(tmp_path / "ca")


class Master:
    """Pages on loopback with an empty list for clients that show the token; with TLS where there is a certificate."""

    def __init__(self, certificate: TlsFiles | None, closing: ExitStack) -> None:
        self.asked: list[str] = []
        tls = None if certificate is None else page_server(certificate)
        self.port = closing.enter_context(http_pages(self._answer, tls))

    def _answer(self, path: str, headers: Any) -> tuple[int, bytes]:
        self.asked.append(headers.get("Authorization", ""))
        return (200, b"[]") if self.asked[-1] == f"Bearer {TOKEN}" else (401, b'{"error": "a token is needed"}')

    def url(self, scheme: str = "https", host: str = "localhost") -> str:
        return f"{scheme}://{host}:{self.port}"


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    for name in ("PENSTOCK_HTTP_TOKEN", "PENSTOCK_HTTP_TOKEN_FILE", "PENSTOCK_HTTP_CA"):
        monkeypatch.delenv(name, raising=False)
    with ExitStack() as closing:
        yield lambda certificate: Master(certificate, closing)


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    path = tmp_path / "token"
    path.write_text(f"{TOKEN}\n")
    return path


def fails(capsys: pytest.CaptureFixture[str], status: int, *argv: object) -> str:
    assert main(["profile", "list", *map(str, argv)]) == status
    captured = capsys.readouterr()
    assert (captured.out, captured.err.count("\n")) == ("", 1)
    assert TOKEN not in captured.err
    return captured.err.strip()


def test_over_tls_with_a_token_from_a_file_or_the_environment(
    serve: Any, ca: Authority, token_file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    master = serve(files(ca, "localhost", master=True))
    argv = ["profile", "list", "--json", "--master", master.url()]
    assert main([*argv, "--ca", str(ca.certificate), "--token-file", str(token_file)]) == 0
    monkeypatch.setenv("PENSTOCK_HTTP_CA", str(ca.certificate))
    monkeypatch.setenv("PENSTOCK_HTTP_TOKEN_FILE", str(token_file))
    assert main(argv) == 0
    monkeypatch.delenv("PENSTOCK_HTTP_TOKEN_FILE")
    monkeypatch.setenv("PENSTOCK_HTTP_TOKEN", TOKEN)
    assert main(argv) == 0
    assert capsys.readouterr().out.split() == ["[]"] * 3
    assert master.asked == [f"Bearer {TOKEN}"] * 3


def test_a_peer_with_an_untrusted_certificate_gets_nothing(
    serve: Any, ca: Authority, tmp_path: Path, token_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    master = serve(files(ca, "localhost", master=True))
    line = fails(capsys, 1, "--master", master.url(), "--token-file", token_file)
    assert "its certificate is not signed by a CA trusted here; give its CA with --ca" in line
    other = authority(tmp_path / "other").certificate
    line = fails(capsys, 1, "--master", master.url(), "--ca", other, "--token-file", token_file)
    assert f"its certificate is not signed by the CA in {other}; give its CA with --ca" in line
    assert master.asked == []


def test_a_peer_with_a_certificate_for_another_name_gets_nothing(
    serve: Any, ca: Authority, token_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    master = serve(files(ca, "head.example.org", master=True))
    for host in ("localhost", "127.0.0.1"):
        line = fails(
            capsys, 1, "--master", master.url(host=host), "--ca", ca.certificate, "--token-file", token_file
        )  # fmt: skip
        assert line.endswith(f"its certificate is not for {host!r}; use a name in the certificate")
    assert master.asked == []


def test_an_expired_certificate_is_reported(
    serve: Any, tmp_path: Path, token_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old = authority(tmp_path / "old", NOW - 90 * DAY)
    master = serve(files(old, "localhost", master=True, since=NOW - 60 * DAY, days=30))
    line = fails(capsys, 1, "--master", master.url(), "--ca", old.certificate, "--token-file", token_file)
    assert line.endswith("its certificate is refused: it has expired; renew it on the master")


def test_a_token_that_is_missing_or_refused(
    serve: Any, ca: Authority, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    master = serve(files(ca, "localhost", master=True))
    line = fails(capsys, 1, "--master", master.url(), "--ca", ca.certificate)
    assert "it requires a token; name its file with --token-file" in line
    wrong = tmp_path / "wrong"
    wrong.write_text("another token\n")
    line = fails(capsys, 1, "--master", master.url(), "--ca", ca.certificate, "--token-file", wrong)
    assert "the token is refused" in line and "another token" not in line


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (None, "No such file"),
        (b"", "there is no token in it"),
        (b"\xff", "not text"),
        ("tökén".encode(), "plain ASCII"),
    ],
)
def test_a_file_without_a_token_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes | None, why: str
) -> None:
    path = tmp_path / "token"
    if content is not None:
        path.write_bytes(content)
    line = fails(capsys, 2, "--token-file", path)
    assert line.startswith(f"penstock profile: --token-file: {path}: ") and why in line


def test_a_ca_that_is_none_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "ca.pem"
    argv = ("--master", "https://localhost:1", "--ca", path)
    assert fails(capsys, 2, *argv).endswith(f"--ca: {path}: No such file or directory")
    path.write_text("nothing")
    assert fails(capsys, 2, *argv).endswith(f"--ca: {path}: there is no certificate in it")


def test_a_token_is_not_sent_where_others_could_read_it(token_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = fails(capsys, 2, "--master", "http://head.example.org:7422", "--token-file", token_file)
    assert line.endswith("a token is not sent without TLS; write https://head.example.org")


def test_with_tls_where_there_is_none_and_without_where_there_is(
    serve: Any, ca: Authority, token_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plain, secured = serve(None), serve(files(ca, "localhost", master=True))
    line = fails(capsys, 1, "--master", plain.url(), "--ca", ca.certificate)
    assert line.endswith("it does not speak TLS; write http://")
    line = fails(capsys, 1, "--master", secured.url("http"))
    assert line.endswith("this is not HTTP; if the master's pages use TLS, write https://")
