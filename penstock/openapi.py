"""Generate an OpenAPI 3.1 document of a daemon's HTTP interface from its routes.

An :class:`Operation` is a route that declares its parameters and its answer as msgspec types. :func:`document` is made
from these operations, and they refuse requests that they do not describe. So each page has a single declaration.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, TypeVar

import msgspec
import structlog
from aiohttp import hdrs, web

from penstock.model.decode_errors import told
from penstock.model.near_names import did_you_mean

log = structlog.get_logger()
T = TypeVar("T", bound=msgspec.Struct)
JSON = "application/json"
PATH = "/openapi.json"
#: The Link header of RFC 8631, which names the description for programs.
LINK = f'<{PATH}>; rel="service-desc"; type="{JSON}"'
_LOOKS = frozenset({hdrs.METH_GET, hdrs.METH_HEAD})


class Fault(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """The reason of a failed request, in one line; ``field`` is the faulty field."""

    error: str
    field: str = ""


class Refused(Exception):  # noqa: N818 - a refusal is an answer and no error of ours
    """A refused request, answered with ``status`` and a :class:`Fault`."""

    def __init__(self, status: int, why: str, field: str = "") -> None:
        super().__init__(why)
        self.status = status
        self.fault = Fault(why, field)


@dataclass(frozen=True, slots=True)
class Content:
    """An answer that is not JSON: its media type and description."""

    media_type: str
    about: str


@dataclass(frozen=True, kw_only=True)
class Operation(web.AbstractRouteDef):
    """A route. ``answer`` is a msgspec type, or other content; ``query`` and ``body`` are msgspec structs.

    ``parameters`` are the types of the path's parameters, ``faults`` the statuses with a :class:`Fault` and their
    reasons. ``handler`` gets the request and, with a ``query``, its struct; it may raise :class:`Refused`. ``page`` is
    the section of docs/ that describes the answer.
    """

    method: str = hdrs.METH_GET
    path: str
    handler: Callable[..., Awaitable[web.StreamResponse]]
    summary: str
    answer: Any
    status: int = 200
    query: type[msgspec.Struct] | None = None
    body: type[msgspec.Struct] | None = None
    parameters: Mapping[str, Any] = field(default_factory=dict)
    faults: Mapping[int, str] = field(default_factory=dict)
    page: str = ""

    def register(self, router: web.UrlDispatcher) -> list[web.AbstractRoute]:
        """Register the route, for ``Application.add_routes``. HEAD is added if the answer to GET is finite."""
        found = [router.add_route(self.method, self.path, self._handle)]
        endless = isinstance(self.answer, Content) and self.answer.media_type == "text/event-stream"
        if self.method == hdrs.METH_GET and not endless:
            found.append(router.add_route(hdrs.METH_HEAD, self.path, self._handle))
        return found

    @property
    def shown_path(self) -> str:
        """Return the path in OpenAPI's form: parameters without their patterns."""
        return re.sub(r"{(\w+):[^{}]*}", r"{\1}", self.path)

    @property
    def changes(self) -> bool:
        """Return whether a request changes something; then it needs the token."""
        return self.method not in _LOOKS

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        try:
            asked = read_query(request.query, self.query)
            return await (self.handler(request) if asked is None else self.handler(request, asked))
        except Refused as no:
            return json(no.fault, no.status)


def json(said: object, status: int = 200) -> web.Response:
    """Return an answer in JSON."""
    return web.Response(body=msgspec.json.encode(said), content_type=JSON, status=status)


# ---------------------------------------------------------------- requests


def read_query(query: Any, of: type[T] | None) -> T | None:
    """Return the query of an address (a multidict) as its struct; None if the address has no parameters.

    Raises:
        Refused: 400: a name is unknown or given twice, or a value does not fit.
    """
    known = {each.encode_name: each for each in msgspec.structs.fields(of)} if of is not None else {}
    for name in query:
        if name not in known:
            hint = did_you_mean(name, known, f"known: {', '.join(known) or 'none'}")
            raise Refused(400, f"{_plain(name)}: no parameter of this address; {hint}", _plain(name))
        if len(query.getall(name)) > 1:
            raise Refused(400, f"{name}: given more than once", name)
    if of is None:
        return None
    for name, said in query.items():
        try:
            value = msgspec.convert(said, known[name].type, strict=False)
            if isinstance(value, float) and not math.isfinite(value):
                raise msgspec.ValidationError("Expected a finite number")
        except msgspec.ValidationError:
            raise Refused(400, f"{name}: {said[:80]!r} does not fit; expected: {_about(known[name])}", name) from None
    missing = [name for name, each in known.items() if each.required and name not in query]
    if missing:
        raise Refused(400, f"{missing[0]}: is needed: {_about(known[missing[0]])}", missing[0])
    return msgspec.convert(dict(query), of, strict=False)


async def read_body(request: web.Request, of: type[T], example: str) -> T:
    """Return the body as its struct; ``example`` is a valid body for the error message.

    Raises:
        Refused: 400: the body is not JSON, or does not fit the struct.
    """
    try:
        return msgspec.json.decode(await request.read(), type=of)
    except UnicodeDecodeError:
        raise Refused(400, f"it is not UTF-8; send JSON such as {example}") from None
    except msgspec.MsgspecError as error:
        raise Refused(400, f"{told(error, of)}; send JSON such as {example}") from None


def _plain(said: str) -> str:
    """Return a client's text in a form that fits one line."""
    return said[:80] if said.isprintable() else repr(said[:80])


def _about(parameter: msgspec.structs.FieldInfo) -> str:
    """Return the description of a parameter, or else its allowed values."""
    found = msgspec.json.schema(parameter.type)
    return str(found.get("description") or " or ".join(map(str, found.get("enum", ["something else"]))))


# ---------------------------------------------------------------- errors outside of routes


@web.middleware
async def faults(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    """Answer errors of the router, of aiohttp and of our own code with a :class:`Fault`. It is the first middleware."""
    try:
        return await handler(request)
    except web.HTTPException as error:
        if error.status < HTTPStatus.BAD_REQUEST:
            raise
        answer = json(Fault(_why(request, error)), error.status)
        if isinstance(error, web.HTTPMethodNotAllowed):
            answer.headers[hdrs.ALLOW] = ", ".join(sorted(error.allowed_methods))
        return answer
    except Exception as error:  # the root of a request
        log.error("a request could not be answered", method=request.method, path=request.path, exc_info=error)
        return json(Fault("an error of ours; the daemon's log has it"), 500)


def _why(request: web.Request, error: web.HTTPException) -> str:
    path = _plain(request.path)
    if isinstance(error, web.HTTPMethodNotAllowed):
        return f"{_plain(request.method)} {path}: this address takes {', '.join(sorted(error.allowed_methods))}"
    if isinstance(error, web.HTTPNotFound):
        return f"{path}: there is nothing here; {PATH} lists what there is"
    return f"{path}: {error.reason}"


# ---------------------------------------------------------------- the document


@dataclass(frozen=True, slots=True)
class Access:
    """Requests that need a token: with ``looks`` all except the paths of ``open``, else only changes."""

    looks: bool = False
    open: frozenset[str] = frozenset()


def document(title: str, version: str, about: str, operations: Sequence[Operation], access: Access) -> dict[str, Any]:
    """Return the OpenAPI document as plain maps and lists."""
    types = {"fault": Fault} | {key: kind for each in operations for key, kind in _types(each).items()}
    schemas, components = msgspec.json.schema_components(types.values(), ref_template="#/components/schemas/{name}")
    schema_of = dict(zip(types, schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for each in operations:
        paths.setdefault(each.shown_path, {})[each.method.lower()] = _operation(each, schema_of, access)
    return {
        "openapi": "3.1.0",
        "info": {"title": title, "version": version, "description": about},
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer", "description": "What is in http_token_file."},
                "password": {"type": "http", "scheme": "basic", "description": "The token, with any user name."},
            },
        },
    }


def served(make: Callable[[], dict[str, Any]]) -> Operation:
    """Return the operation ``GET /openapi.json``; ``make`` is called once, at the first request."""
    encoded = functools.cache(lambda: msgspec.json.encode(make()))

    async def get(request: web.Request) -> web.Response:
        return web.Response(body=encoded(), content_type=JSON)

    return Operation(path=PATH, handler=get, summary="This document: OpenAPI 3.1.", answer=dict[str, Any])


def _types(each: Operation) -> dict[str, Any]:
    """Return label → type for every type of an operation."""
    label = _label(each)
    found = {f"{label} {name}": kind for name, kind in each.parameters.items()}
    found |= {f"{label} {one.encode_name}": one.type for one in _fields(each)}
    if not isinstance(each.answer, Content):
        found[f"{label} answer"] = each.answer
    if each.body is not None:
        found[f"{label} body"] = each.body
    return found


def _label(each: Operation) -> str:
    return f"{each.method} {each.shown_path}"


def _fields(each: Operation) -> tuple[msgspec.structs.FieldInfo, ...]:
    return msgspec.structs.fields(each.query) if each.query is not None else ()


def _operation(each: Operation, schema_of: Mapping[str, Any], access: Access) -> dict[str, Any]:
    label = _label(each)
    asks = access.looks and each.path not in access.open
    secured: list[dict[str, list[str]]] = (
        [{"token": []}] if each.changes else [{"token": []}, {"password": []}] if asks else []
    )
    said: dict[str, Any] = {
        "operationId": each.method.lower() + "".join(part.title() for part in re.findall(r"\w+", each.shown_path)),
        "summary": each.summary,
        "security": secured,
        "responses": {
            str(each.status): _answer(each, schema_of),
            **{
                str(status): {"description": when, "content": {JSON: {"schema": schema_of["fault"]}}}
                for status, when in sorted(_faults(each, secured).items())
            },
        },
    }
    parameters = [_parameter(name, "path", schema_of[f"{label} {name}"], required=True) for name in each.parameters] + [
        _parameter(one.encode_name, "query", schema_of[f"{label} {one.encode_name}"], required=one.required)
        for one in _fields(each)
    ]
    if parameters:
        said["parameters"] = parameters
    if each.body is not None:
        said["requestBody"] = {"required": True, "content": {JSON: {"schema": schema_of[f"{label} body"]}}}
    return said


def _parameter(name: str, where: str, schema: Mapping[str, Any], *, required: bool) -> dict[str, Any]:
    """Return a parameter; the description of its value becomes that of the parameter."""
    about = {"description": schema["description"]} if "description" in schema else {}
    bare = {key: value for key, value in schema.items() if key != "description"}
    return {"name": name, "in": where, "required": required, "schema": bare} | about


def _answer(each: Operation, schema_of: Mapping[str, Any]) -> dict[str, Any]:
    if isinstance(each.answer, Content):
        return {"description": each.answer.about, "content": {each.answer.media_type: {"schema": {"type": "string"}}}}
    return {"description": each.summary, "content": {JSON: {"schema": schema_of[f"{_label(each)} answer"]}}}


def _faults(each: Operation, secured: list[Any]) -> dict[int, str]:
    """Return the operation's own faults, and those of every operation."""
    common = {
        400: "What was asked does not fit this description; `error` says what.",
        403: "On loopback: the header Host is a name of others; or nothing can be changed here.",
    }
    if secured:
        common[401] = "A token is needed."
    if each.body is not None:
        common[413] = "The body is larger than 1 MiB."
    return common | dict(each.faults)
