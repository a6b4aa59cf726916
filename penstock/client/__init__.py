"""How a framework speaks to its host's agent: here for asyncio, in :mod:`penstock.client.blocking` for threads."""

from penstock.client.agent import AgentClient
from penstock.client.container import Container
from penstock.client.errors import AgentUnavailable, JobCancelled, NotPlaced
from penstock.client.job import Job
from penstock.client.monotask import Monotask

__all__ = ["AgentClient", "AgentUnavailable", "Container", "Job", "JobCancelled", "Monotask", "NotPlaced"]
