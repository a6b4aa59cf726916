"""The pages elsewhere than on loopback: TLS, a token, looking only; and on loopback no name that others gave us."""

from __future__ import annotations

import base64
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from agent.config import AgentConfig
from penstock.config.settings import SettingsError
from penstock.security.http_access import HttpAccess, access_of
from tests.security_bed import DAY, NOW, authority, files, settings

OPERATOR, READER = "operator-0123456789abcdef", "reader-0123456789abcdef"


@pytest.fixture
def tokens(tmp_path: Path) -> tuple[Path, Path]:
    made = tmp_path / "operator", tmp_path / "reader"
    for path, token in zip(made, (OPERATOR, READER), strict=True):
        path.write_text(f"{token}\n")
    return made


def basic(password: str) -> str:
    return "Basic " + base64.b64encode(f"anybody:{password}".encode()).decode()


@pytest.mark.parametrize(
    ("method", "path", "authorization", "status"),
    [
        ("GET", "/status", "", 401),
        ("GET", "/status", f"Bearer {READER}", None),
        ("GET", "/status", f"bearer  {READER}", None),
        ("GET", "/status", basic(READER), None),
        ("HEAD", "/metrics", f"Bearer {OPERATOR}", None),
        ("GET", "/status", f"Bearer {READER}x", 401),
        ("GET", "/status", f"Bearer {READER[:-1]}", 401),
        ("GET", "/status", "Bearer ", 401),
        ("GET", "/status", READER, 401),
        ("GET", "/status", basic(""), 401),
        ("GET", "/status", "Basic ä", 401),
        ("GET", "/status", "Bearer \udcff", 401),
        ("GET", "/healthz", "", None),
        ("POST", "/healthz", "", 401),
        ("POST", "/reservations", f"Bearer {OPERATOR}", None),
        ("POST", "/reservations", f"Bearer {READER}", 401),
        ("DELETE", "/reservations/r-1", basic(OPERATOR), 401),
        ("PROPFIND", "/status", basic(READER), 401),
    ],
)
def test_who_may_what_elsewhere(
    method: str, path: str, authorization: str, status: int | None, tokens: tuple[Path, Path]
) -> None:
    access = HttpAccess(exposed=True, operator=tokens[0], reader=tokens[1])
    refused = access.refusal(method, path, "head.example.org:7422", authorization)
    assert (refused[0] if refused else None) == status


@pytest.mark.parametrize("content", ["", "\n", None, b"\xff"])
def test_a_token_file_that_says_nothing_lets_nobody_in(content: str | bytes | None, tmp_path: Path) -> None:
    path = tmp_path / "token"
    if isinstance(content, str):
        path.write_text(content)
    elif content is not None:
        path.write_bytes(content)
    access = HttpAccess(exposed=True, operator=path, reader=path)
    for said in ("", "Bearer ", "Bearer \n", basic("")):
        for method in ("GET", "POST"):
            assert access.refusal(method, "/status", "x", said) is not None


@pytest.mark.parametrize(
    ("host", "ours"),
    [
        ("127.0.0.1:7421", True), ("[::1]:7421", True), ("localhost:7421", True), ("localhost", True),
        ("10.0.2.15:7421", True), ("LOCALHOST:1", True),
        ("evil.example.org:7421", False), ("localhost.evil.org", False), ("", False), ("127.0.0.1.nip.io", False),
    ],
)  # fmt: skip
def test_on_loopback_nobody_looks_through_a_name_of_his_own(host: str, ours: bool) -> None:
    refused = HttpAccess(exposed=False).refusal("GET", "/status", host, "")
    assert (refused is None) is ours
    assert refused is None or (refused[0] == 403 and refused[1].endswith("; open it as localhost"))


def test_on_loopback_everybody_looks_and_only_operators_change(tokens: tuple[Path, Path]) -> None:
    assert HttpAccess(exposed=False).refusal("GET", "/status", "localhost", "") is None
    none = HttpAccess(exposed=False).refusal("POST", "/reservations", "localhost", f"Bearer {OPERATOR}")
    assert none is not None and none[0] == 403
    access = HttpAccess(exposed=False, operator=tokens[0])
    assert access.refusal("POST", "/reservations", "localhost", f"Bearer {OPERATOR}") is None
    assert access.refusal("POST", "/reservations", "localhost", "") is not None


@pytest.fixture
async def site(tmp_path: Path, tokens: tuple[Path, Path]) -> AsyncIterator[tuple[str, Path]]:
    """Return the site that a daemon would serve elsewhere than on loopback, with a certificate that has expired; and
    its CA.
    """
    ca = authority(tmp_path / "ca", NOW - 100 * DAY)
    own = files(ca, "head", since=NOW - 50 * DAY, days=20)
    config = AgentConfig(
        http="0.0.0.0:0", http_token_file=str(tokens[0]), http_read_token_file=str(tokens[1]), **settings(own)
    )
    access = access_of(config)

    async def page(request: web.Request) -> web.Response:
        return web.Response(text=request.method)

    app = web.Application(middlewares=[access.check])
    app.add_routes([web.route("*", "/status", page), web.get("/healthz", page)])
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=access.ssl).start()
    yield f"https://127.0.0.1:{runner.addresses[0][1]}", ca.directory
    await runner.cleanup()


async def test_pages_elsewhere_speak_tls_and_take_up_a_renewed_certificate(site: tuple[str, Path]) -> None:
    url, directory = site
    from penstock.security.authority import Authority

    ca = Authority(directory)
    trusted = ssl.create_default_context(cafile=str(ca.certificate))
    bearer = {"Authorization": f"Bearer {READER}"}
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(force_close=True)) as session:
        with pytest.raises(aiohttp.ClientConnectorCertificateError, match="expired"):
            await session.get(f"{url}/status", ssl=trusted, server_hostname="head", headers=bearer)
        ca.renew("head", NOW)
        async with session.get(f"{url}/status", ssl=trusted, server_hostname="head", headers=bearer) as answer:
            assert (answer.status, await answer.text()) == (200, "GET")
        async with session.get(f"{url}/status", ssl=trusted, server_hostname="head") as answer:
            assert answer.status == 401
            assert answer.headers["WWW-Authenticate"].startswith("Basic ")
            assert "a token is needed" in (await answer.json())["error"]
        async with session.post(f"{url}/status", ssl=trusted, server_hostname="head", headers=bearer) as answer:
            assert answer.status == 401
        with pytest.raises(aiohttp.ClientError):
            await session.get(url.replace("https", "http") + "/healthz")


def test_a_short_token_is_refused_where_others_can_try(tmp_path: Path) -> None:
    own = files(authority(tmp_path / "ca"), "alpha")
    token = tmp_path / "token"
    token.write_text("short")
    config = AgentConfig(http="0.0.0.0:7421", http_token_file=str(token), **settings(own))
    with pytest.raises(SettingsError, match=r"^http_token_file: .*token: a token has at least 16 characters: openssl"):
        access_of(config)
    assert access_of(AgentConfig(http_token_file=str(token))).ssl is None
    with pytest.raises(SettingsError, match=r"^http_read_token_file: .*absent: No such file"):
        access_of(AgentConfig(http="10.0.0.1:1", http_read_token_file=f"{tmp_path}/absent", **settings(own)))
