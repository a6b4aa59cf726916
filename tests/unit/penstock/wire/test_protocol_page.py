"""docs/protocol.md is true: every method is there, its Python sends its bytes, and its client works."""

from __future__ import annotations

import ast
import asyncio
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

import msgpack
import msgspec
import pytest

from docs import make_protocol
from penstock.model.container import Ended, EndedBy
from penstock.model.work import Name
from penstock.wire import agent_methods, master_api, relayed_methods
from penstock.wire.agent_methods import NOTIFICATIONS, REGISTER_JOB
from penstock.wire.connection import RpcConnection, read, read_params
from penstock.wire.errors import RpcError
from penstock.wire.rpc import Notification, Request, Response
from tests.fakes.agent import FakeAgent

REQUESTS = {**agent_methods.REQUESTS, **relayed_methods.REQUESTS}
DOCS = Path(__file__).parents[4] / "docs"
PAGE = (DOCS / "protocol.md").read_text(encoding="utf-8")


def section(title: str, level: str = "###") -> str:
    """Return the text under a heading."""
    _, found, rest = PAGE.partition(f"\n{level} {title}\n")
    assert found, f"{title} is not on the page"
    return re.split(rf"\n#{{2,{len(level)}}} ", rest)[0]


def python(text: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", text, re.DOTALL)


def commented(code: str) -> Any:
    """The value after the arrow."""
    return ast.literal_eval(code.partition("# → ")[2].replace("\n#   ", "\n"))


def raw(text: str) -> dict[str, bytes]:
    """The bytes in each direction."""
    [block] = re.findall(r"```hex\n(.*?)```", text, re.DOTALL)
    found: dict[str, str] = {}
    mark = ""
    for line in block.splitlines():
        mark = line[0] if line[0] != " " else mark
        found[mark] = found.get(mark, "") + line[1:]
    return {mark: bytes.fromhex(digits) for mark, digits in found.items()}


def test_the_generated_parts_are_up_to_date() -> None:
    assert make_protocol.updated(PAGE) == PAGE, "run python docs/make_protocol.py"


@pytest.mark.parametrize("method", REQUESTS)
def test_the_python_of_a_request_sends_its_bytes(method: str) -> None:
    text = section(f"`{method}`")
    sent: list[list[Any]] = []

    def call(name: str, params: object = None) -> None:
        sent.append([0, 0, name, [] if params is None else [params]])

    [code] = python(text)
    exec(code, {"call": call})
    [frame] = sent
    of = REQUESTS[method].params
    assert msgpack.packb(frame) == raw(text)["→"]
    [request] = RpcConnection().receive(raw(text)["→"])
    assert isinstance(request, Request)
    params = read_params(request.params, of)
    example = params if of.__struct_fields__ else None
    assert RpcConnection().send_request(method, example)[1] == raw(text)["→"]
    [answer] = RpcConnection().receive(raw(text)["←"])
    assert isinstance(answer, Response)
    assert read(answer.result, REQUESTS[method].result)
    assert commented(code) == msgpack.unpackb(memoryview(answer.result))


@pytest.mark.parametrize("method", NOTIFICATIONS)
def test_the_bytes_of_a_notification_are_those_of_the_page(method: str) -> None:
    text = section(f"`{method}`")
    [notification] = RpcConnection().receive(raw(text)["←"])
    assert isinstance(notification, Notification)
    assert notification.method == method
    params = read_params(notification.params, NOTIFICATIONS[method])
    assert RpcConnection().send_notification(method, params) == raw(text)["←"]
    [code] = python(text)
    assert commented(code) == [method, msgpack.unpackb(memoryview(notification.params))]


@pytest.mark.parametrize("method", [*master_api.REQUESTS, *(each.name for each in relayed_methods.RELAYS), "decide"])
def test_every_method_of_the_master_is_there(method: str) -> None:
    assert f"\n- **`{method}`** " in section("Agent ↔ master", "##")


def test_every_link_leads_somewhere() -> None:
    headings = {heading.lower().replace("`", "") for heading in re.findall(r"\n#+ (.+)\n", PAGE)}
    links = set(re.findall(r"\]\(#(\w+)\)", PAGE))
    assert links
    assert links <= headings


async def with_agent(tmp_path: Path, use: Callable[[dict[str, Any]], None]) -> FakeAgent:
    """Run the page's own client against an agent, in a thread."""
    agent = FakeAgent(tmp_path)
    await agent.start()

    def ends_at_once(made: Any) -> None:
        agent.end_container(made, Ended(by=EndedBy.EXIT, exit_status=0))

    agent.on_launch = ends_at_once
    names: dict[str, Any] = {"SOCKET": str(agent.socket), "STDIO_SOCKET": str(tmp_path / "stdio.sock")}
    try:
        await asyncio.wait_for(asyncio.to_thread(use, names), 30)
    finally:
        if "sock" in names:
            names["sock"].close()
        await agent.stop()
    return agent


async def test_the_page_s_client_lives_through_a_monotask(tmp_path: Path) -> None:
    client, life = python(section("A connection to the agent", "##"))[:2]
    agent = await with_agent(tmp_path, lambda names: (exec(client, names), exec(life, names))[0])
    assert [name for name, _ in agent.calls] == ["hello", "register_job", "submit", "complete", "end_job"]


async def test_the_page_s_client_passes_descriptors(tmp_path: Path) -> None:
    client = python(section("A connection to the agent", "##"))[0]
    [stdio] = python(section("Passing descriptors"))

    def use(names: dict[str, Any]) -> None:
        null = os.open(os.devnull, os.O_RDWR)
        try:
            exec(client, names)
            exec(stdio.replace("[0, 1, 2]", f"[{null}, {null}, {null}]"), names)
            assert names["next_notification"]()[0] == "container_ended"
        finally:
            os.close(null)

    agent = await with_agent(tmp_path, use)
    [container] = agent.containers.values()
    assert len(container.spec.stdio) == 32


def test_the_page_names_the_type_of_every_field() -> None:
    rows = re.findall(r"^\| `\w+` \| (.*) \| .* \|$", PAGE, re.MULTILINE)
    assert len(rows) > 100
    assert not [row for row in rows if "anything" in row or "any value" in row]
    page = make_protocol
    assert page.type_name(bool | Literal["only"] | list[Name] | None) == (
        'boolean or `"only"` or array of string (1–128 characters) or nil'
    )
    many = msgspec.Meta(min_length=1, max_length=9)
    assert page.type_name(Annotated[list[int | Name], many]) == (
        "array (1–9 elements) of (integer or string (1–128 characters))"
    )
    assert (
        page.type_name(Annotated[dict[str, Name], many]) == "map (1–9 entries) of string to string (1–128 characters)"
    )
    assert page.type_name(Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]) == "integer (≥ 0, ≤ 2⁶³ − 1)"
    assert page.type_name(Annotated[float, msgspec.Meta(gt=0, lt=5.5)]) == "number (> 0, < 5.5)"
    with pytest.raises(TypeError, match="no name for"):
        page.type_name(complex)


@pytest.mark.parametrize(
    ("params", "refused"),
    [
        ({"priority": 3}, False),
        ({"memory_bytes": 3.0}, True),
        ({"job": b"j"}, True),
        ({"job": None}, True),
        ({"opportunistic": None}, False),
        ({"more": 1}, True),
    ],
)
def test_types_are_those_of_the_page(params: dict[str, Any], refused: bool) -> None:
    sent = msgspec.Raw(msgpack.packb({"name": "j"} | params))
    if refused:
        with pytest.raises(RpcError):
            read(sent, REGISTER_JOB.params)
    else:
        read(sent, REGISTER_JOB.params)


def test_prose_has_the_words_of_the_page_and_not_of_python() -> None:
    told = re.sub(r"```.*?```", "", PAGE, flags=re.DOTALL)
    assert not re.findall(r"\bNone\b|docs/\w+\.md", told.replace("`docs/architecture.md`", ""))
