"""The begin of promised work, seen from its own process: a real master and agent, the host full of best-effort work.

Every few seconds a reservation of all cores falls due. Best-effort commands hold them, have to leave, and come back.
How long after the promised time does the job's command run its first instruction? Below 0: before it, as room is made
``reservation_lead_s`` before. With ``--lead 0`` nothing is done before the time has come.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import sys
import tempfile
from pathlib import Path

from bench._agent import agent_process, process
from penstock.client import AgentClient
from penstock.model import ContainerSpec, KindAmounts, TaskRequest
from penstock.wire.errors import ErrorCode, RpcError

CORES = 2
#: Seconds from one promise to the next, and how long each lasts.
APART_S, LASTS_S = 6, 2


def _command(name: str, text: str, cores: float) -> TaskRequest:
    spec = ContainerSpec(argv=("sh", "-c", text), cwd="/", cpu_cores=cores)
    return TaskRequest(task=name, usage=KindAmounts(cpu=1e6), memory_bytes=10_000_000, command=spec)


async def measure(socket: Path, directory: Path, count: int) -> list[float]:
    """Return the seconds from each promise to the first instruction of its work."""
    async with await AgentClient.connect(socket, "bench") as client:
        await _linked(client)
        best = await client.register_job("best-effort")
        await best.place("s", [_command(f"b{i}", "exec sleep 3600", 1.0) for i in range(CORES)])
        late = []
        for number in range(count):
            rdl = f"window(atom(<1MB,{CORES}core>,1,1,{LASTS_S}s,{LASTS_S}s),+{APART_S - LASTS_S}s,+{APART_S}s)"
            made = await client.reserve(rdl)
            job = await client.register_job(f"promised-{number}", reservation=made.reservation)
            begun = directory / f"begun-{number}"
            await job.place("s", [_command("p", f"date +%s.%N > {begun}", float(CORES))])
            await job.ended("p")
            late.append(float(begun.read_text()) - made.promised[0].start)
            await job.end()
        await best.end()
        return late


async def _linked(client: AgentClient) -> None:
    async with asyncio.timeout(30):
        while True:
            try:
                await client.reservations()
            except RpcError as error:
                if error.code is not ErrorCode.UNAVAILABLE:
                    raise
                await asyncio.sleep(0.05)
            else:
                return


def main(argv: list[str] | None = None) -> int:
    """Print the delays."""
    parser = argparse.ArgumentParser(prog="python -m bench.promises")
    parser.add_argument("--count", type=int, default=10, help="promises, one after the other")
    parser.add_argument("--lead", type=float, default=None, help="reservation_lead_s; 0.5 and 0 unless given")
    options = parser.parse_args(argv)
    print(f"{'lead':>6}{'median':>12}{'least':>12}{'most':>12}   seconds after the promised time; {options.count} each")
    for lead_s in (0.5, 0.0) if options.lead is None else (options.lead,):
        with tempfile.TemporaryDirectory(prefix="penstock-bench-") as path:
            directory = Path(path)
            ports = directory / "master"
            settings = {"listen": str(directory / "master.sock"), "http": "127.0.0.1:0", "reservation_lead_s": lead_s}
            settings["store"] = str(directory / "master.db")
            command = [sys.executable, "-m", "master", "--port-file", str(ports), "--log-level", "error"]
            command += [argument for key, value in settings.items() for argument in ("--set", f"{key}={value}")]
            with process(command, ports, dict(os.environ)):
                listen = json.loads(ports.read_text())["listen"]
                with agent_process(directory, cores=CORES, master=listen) as socket:
                    late = asyncio.run(measure(socket, directory, options.count))
        print(f"{lead_s:>6g}{statistics.median(late):>12.3f}{min(late):>12.3f}{max(late):>12.3f}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
