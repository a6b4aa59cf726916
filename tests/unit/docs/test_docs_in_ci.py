"""The commands for a newcomer in README are those of CI, word by word."""

from __future__ import annotations

import re

from tests.docs_pages import ROOT, blocks, statements

_RUN = ROOT / ".ci" / "run"
#: Words before a command in .ci/run: it runs as root, or with variables, which a shell takes without this word.
_AROUND = re.compile(r"(?:as_root |env (?=[A-Z_]+=))*")


def commands(page: str) -> set[str]:
    """Return the commands of README's first block, and those of ``make`` that the section's sentences have."""
    section = page.split("\n## Try it\n", 1)[1].split("\n## ", 1)[0]
    block = next(one for one in blocks(ROOT / "README.md") if one.language == "sh")
    assert block.text in section
    typed = {re.sub(r"\s+#.*", "", line) for line in statements(block.text)}
    typed |= set(re.findall(r"`((?:[A-Z_]+=\w+ )?make [^`]+)`", section))
    return {command for command in typed if not command.startswith("git clone ")}  # CI has its checkout


def steps(script: str) -> set[str]:
    """Return the commands that are steps of a script, without the code around them."""
    found = re.findall(r"^\s*step (.*?)(?:\s+#.*)?$", script, re.MULTILINE)
    return {_AROUND.sub("", step, count=1) for step in found}


def test_readme_s_commands_are_steps_of_ci() -> None:
    typed = commands((ROOT / "README.md").read_text(encoding="utf-8"))
    assert typed >= {"make demo", "make test", "DEMO=host make demo"}
    missing = typed - steps(_RUN.read_text(encoding="utf-8"))
    assert not missing, f"README says {', '.join(sorted(missing))}; no step of .ci/run does"


def test_a_step_that_differs_is_another() -> None:
    script = "step make demo\nstep as_root make --keep-going test\n  step env DEMO=host make demo # here\n# make x"
    assert steps(script) == {"make demo", "make --keep-going test", "DEMO=host make demo"}
