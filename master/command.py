"""``penstock master``."""

from __future__ import annotations

from penstock import daemon


def main(argv: list[str] | None = None) -> int:
    """Run the command; return its exit status."""
    from master.config import MasterConfig

    def load() -> daemon.Run[MasterConfig]:
        from master.daemon import run

        return run

    about = "The placement master: admits jobs and places tasks on the nodes whose agents register with it."
    return daemon.command("master", about, MasterConfig, load, argv, MasterConfig.check)
