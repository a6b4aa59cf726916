"""``penstock agent``."""

from __future__ import annotations

from penstock import daemon


def main(argv: list[str] | None = None) -> int:
    """Run the command; return its exit status."""
    from agent.config import AgentConfig

    def load() -> daemon.Run[AgentConfig]:
        from agent.daemon import run

        return run

    about = "The node agent: queues, limits and reports for one Linux host."
    return daemon.command("agent", about, AgentConfig, load, argv, AgentConfig.check)
