"""Routes that describe themselves: the document that is made of them, and their refusals."""

from __future__ import annotations

import io
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any, Literal

import msgspec
import pytest
from aiohttp import ClientSession, web
from aiohttp.test_utils import TestServer

from penstock import openapi
from penstock.openapi import Access, Content, Operation, Refused
from penstock.security.http_access import HttpAccess


class Query(msgspec.Struct):
    since: Annotated[float, msgspec.Meta(ge=0, description="Unix time in seconds")]
    by: Literal["user", "node"] = "user"


class Document(msgspec.Struct):
    """The answer."""

    since: float
    by: str


class Body(msgspec.Struct, forbid_unknown_fields=True):
    number: int


async def _get(request: web.Request, query: Query) -> web.Response:
    return openapi.json(Document(query.since, query.by))


async def _post(request: web.Request) -> web.Response:
    body = await openapi.read_body(request, Body, "{'number': 1}")
    if body.number == 13:
        raise Refused(409, "not today", "number")
    return openapi.json(body.number, 201)


async def _broken(request: web.Request) -> web.Response:
    raise KeyError("secret")


async def _endless(request: web.Request) -> web.Response:
    return web.Response(text="once", content_type="text/event-stream")


OPERATIONS = [
    Operation(path="/things", handler=_get, summary="Things.", query=Query, answer=Document, faults={404: "None."}),
    Operation(method="POST", path="/things/{id:.+}", handler=_post, summary="One.", body=Body, answer=int, status=201,
              parameters={"id": str}),
    Operation(path="/broken", handler=_broken, summary="Broken.", answer=Content("text/plain", "Never.")),
    Operation(path="/live", handler=_endless, summary="Live.", answer=Content("text/event-stream", "For ever.")),
]  # fmt: skip


def documented(access: Access | None = None) -> dict[str, Any]:
    return openapi.document("T", "1", "About.", OPERATIONS, access or Access())


@asynccontextmanager
async def served(access: HttpAccess | None = None) -> AsyncIterator[ClientSession]:
    app = web.Application(middlewares=(openapi.faults, *([access.check] if access is not None else [])))
    app.add_routes([*OPERATIONS, openapi.served(documented)])
    async with TestServer(app) as server, ClientSession(server.make_url("/")) as client:
        yield client


def test_the_document_agrees_with_the_routes() -> None:
    said = documented()
    assert said["openapi"] == "3.1.0"
    assert {path: sorted(methods) for path, methods in said["paths"].items()} == {
        "/things": ["get"], "/things/{id}": ["post"], "/broken": ["get"], "/live": ["get"],
    }  # fmt: skip
    get = said["paths"]["/things"]["get"]
    assert get["parameters"] == [
        {
            "name": "since", "in": "query", "required": True, "schema": {"type": "number", "minimum": 0},
            "description": "Unix time in seconds",
        },
        {"name": "by", "in": "query", "required": False, "schema": {"enum": ["node", "user"]}},
    ]  # fmt: skip
    assert set(get["responses"]) == {"200", "400", "403", "404"}
    schema = get["responses"]["200"]["content"]["application/json"]["schema"]
    assert schema == {"$ref": "#/components/schemas/Document"}
    assert said["components"]["schemas"]["Document"]["properties"] == {
        "since": {"type": "number"},
        "by": {"type": "string"},
    }
    post = said["paths"]["/things/{id}"]["post"]
    assert [each["name"] for each in post["parameters"]] == ["id"] and "201" in post["responses"]
    assert post["security"] == [{"token": []}] and "401" in post["responses"] and get["security"] == []
    assert len({each["operationId"] for path in said["paths"].values() for each in path.values()}) == len(OPERATIONS)


def test_where_others_can_look_a_token_is_described() -> None:
    said = documented(Access(looks=True, open=frozenset({"/broken"})))
    assert said["paths"]["/things"]["get"]["security"] == [{"token": []}, {"password": []}]
    assert "401" in said["paths"]["/things"]["get"]["responses"]
    assert said["paths"]["/broken"]["get"]["security"] == []


@pytest.mark.parametrize(
    ("query", "line", "field"),
    [
        ("", "since: is needed: Unix time in seconds", "since"),
        ("?since=soon", "since: 'soon' does not fit; expected: Unix time in seconds", "since"),
        ("?since=nan", "since: 'nan' does not fit; expected: Unix time in seconds", "since"),
        ("?since=inf", "since: 'inf' does not fit; expected: Unix time in seconds", "since"),
        ("?since=1&since=2", "since: given more than once", "since"),
        ("?since=1&by=age", "by: 'age' does not fit; expected: node or user", "by"),
        ("?sinc=1", "sinc: no parameter of this address; did you mean 'since'?", "sinc"),
        ("?since=1&a%0Ab=1", r"'a\nb': no parameter of this address; known: since, by", r"'a\nb'"),
        ("?since=1&x=1", "x: no parameter of this address; known: since, by", "x"),
    ],
)
async def test_a_query_that_does_not_fit_gets_one_line(query: str, line: str, field: str) -> None:
    async with served() as client, client.get(f"/things{query}") as answer:
        assert (answer.status, await answer.json()) == (400, {"error": line, "field": field})


async def test_a_valid_request_is_answered() -> None:
    async with served() as client:
        async with client.get("/things?since=1.5&by=node") as answer:
            assert await answer.json() == {"since": 1.5, "by": "node"}
        async with client.head("/things?since=1") as answer:
            assert (answer.status, await answer.read()) == (200, b"")
        async with client.post("/things/a/b", json={"number": 3}) as answer:
            assert (answer.status, await answer.json()) == (201, 3)
        async with client.get(openapi.PATH) as answer:
            assert await answer.json() == documented()


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "line"),
    [
        ("POST", "/things/a", b"{", 400, "send JSON such as {'number': 1}"),
        ("POST", "/things/a", b"\xff\xfe", 400, "send JSON such as"),
        ("POST", "/things/a", b'{"number": 13}', 409, "not today"),
        (
            "POST",
            "/things/a",
            b'{"number": 1, "more": 2}',
            400,
            "there is no key 'more'; known keys: number; send JSON such as {'number': 1}",
        ),
        ("POST", "/things/a", b" " * (1 << 21), 413, "Too Large"),
        ("GET", "/nowhere", b"", 404, "/nowhere: there is nothing here; /openapi.json lists what there is"),
        ("GET", "/a%0Ab", b"", 404, r"'/a\nb': there is nothing here"),
        ("DELETE", "/things", b"", 405, "DELETE /things: this address takes GET, HEAD"),
        ("HEAD", "/live", b"", 405, ""),
        ("GET", "/broken", b"", 500, "an error of ours; the daemon's log has it"),
    ],
)
async def test_a_refused_request_gets_one_line_of_json(
    method: str, path: str, body: bytes, status: int, line: str
) -> None:
    async with served() as client, client.request(method, path, data=io.BytesIO(body)) as answer:
        assert (answer.status, answer.content_type) == (status, "application/json")
        if method != "HEAD":
            said = (await answer.json())["error"]
            assert line in said and "\n" not in said and "secret" not in said
        if status == 405:
            assert answer.headers["Allow"]


async def test_on_loopback_a_wrong_method_is_distinguished_from_a_missing_token() -> None:
    async with served(HttpAccess(exposed=False)) as client:
        for method, path, status in (("DELETE", "/things", 405), ("POST", "/nowhere", 404), ("POST", "/things/a", 403)):
            async with client.request(method, path) as answer:
                assert answer.status == status
    async with served(HttpAccess(exposed=True)) as client:
        for method, path in (("DELETE", "/things"), ("GET", "/nowhere"), ("GET", "/things")):
            async with client.request(method, path) as answer:
                assert answer.status == 401, "a client without a token gets no data"
