"""Every command of every page, typed by a reader: in order, one session per page, output compared where it is shown."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests.docs_commands import simple_commands
from tests.docs_pages import COMMANDS, ELSEWHERE, PAGES, ROOT, Block, blocks, steps
from tests.docs_session import FailedError, Session


def _runs(block: Block) -> bool:
    here = (block.page.name, block.language) not in ELSEWHERE and block.page.parent != ROOT / "ansible"
    return here and block.how == "run" and block.language in (*COMMANDS, "python")


_SESSIONS = {page.relative_to(ROOT).as_posix(): page for page in PAGES if any(map(_runs, blocks(page)))}


def _missing(page: Path) -> list[str]:
    """Programs that a page's reader is supposed to have and that are not part of every system."""
    typed = [
        command for block in blocks(page) if _runs(block) for command, _ in steps(block) if block.language != "python"
    ]
    used = {argv[0] for command in typed for argv in simple_commands(command)}
    return [program for program in ("cc", "curl") if program in used and shutil.which(program) is None]


@pytest.mark.parametrize("name", _SESSIONS)
def test_the_page_s_sessions_happen(name: str, tmp_path: Path) -> None:
    missing = _missing(_SESSIONS[name])
    if missing and os.environ.get("CI") != "true":
        pytest.skip(f"no {' and no '.join(missing)} here")
    with Session(tmp_path) as session:
        for block in blocks(_SESSIONS[name]):
            if block.file:
                (session.work / block.file).write_text(block.text, encoding="utf-8")
        for block in filter(_runs, blocks(_SESSIONS[name])):
            try:
                if block.language == "python":
                    (session.work / "program.py").write_text(block.text, encoding="utf-8")
                    session.step("python program.py", "")
                else:
                    for command, expected in steps(block):
                        session.step(command, expected)
            except FailedError as error:
                complaint = f"{block.name}: {error}"
                break
        else:
            return
    pytest.fail(complaint, pytrace=False)
