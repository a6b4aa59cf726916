"""Messages that a master does not serve."""

from __future__ import annotations

from typing import Any, cast

import pytest

from master.connection import AgentConnection
from penstock.wire.errors import ErrorCode, RpcError

NOBODY = cast(Any, None)


@pytest.mark.parametrize(
    ("method", "says"),
    [
        ("hello", r"this is the master, which only agents connect to \(connect to this host's agent, agent\.sock\)"),
        ("submit", r"method: unknown method 'submit' \(one of .*register"),
    ],
)
async def test_a_client_of_agents_is_told_that_this_is_the_master(method: str, says: str) -> None:
    connection = AgentConnection(NOBODY, {})
    with pytest.raises(RpcError, match=says) as caught:
        connection.request(NOBODY, method, [])
    assert caught.value.code is ErrorCode.BAD_REQUEST
