"""Pass standard input, output and error to the agent: a token and three descriptors over ``stdio.sock``."""

from __future__ import annotations

import asyncio
import secrets
import socket
from pathlib import Path

from penstock.client.errors import AgentUnavailable, cannot_connect
from penstock.peer_credentials import check_server
from penstock.transport.unix_connect import connect_queued

_TIMEOUT_S = 10.0


async def pass_stdio(agent_socket: Path, stdio: tuple[int, int, int]) -> str:
    """Pass copies of the descriptors to the agent; return the token that names them in ``ContainerSpec.stdio``, once.

    Raises:
        AgentUnavailable: there is no agent, or it did not accept them.
    """
    path = agent_socket.with_name("stdio.sock")
    token = secrets.token_hex(16)
    loop = asyncio.get_running_loop()
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sock:
        sock.setblocking(False)
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                await connect_queued(sock, str(path))
                check_server(sock, path)
                socket.send_fds(sock, [token.encode()], stdio)  # one small message on a fresh socket never blocks
                reply = await loop.sock_recv(sock, 1)
        except TimeoutError:
            raise AgentUnavailable(f"the agent does not answer at {path}; see its log, or restart it") from None
        except OSError as error:
            raise cannot_connect(path, error) from None
    if reply != b"+":
        raise AgentUnavailable(f"the agent at {path} did not take the standard streams; see its log")
    return token
