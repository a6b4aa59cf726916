"""The name of a program, by which its jobs are known."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from penstock.client.program import program_name


def test_a_running_process_has_its_programs_name(tmp_path: Path) -> None:
    script = tmp_path / "say.py"
    script.write_text("from penstock.client.program import program_name\nprint(program_name())\n", encoding="ascii")
    said = subprocess.run(
        [sys.executable, script],
        check=True,
        capture_output=True,
        text=True,
        cwd=Path.cwd(),
        env=os.environ | {"PYTHONPATH": str(Path.cwd())},
    )
    assert said.stdout == "say.py\n"
    assert program_name(os.getpid()) == program_name()


def test_a_name_that_is_not_utf8_can_be_sent_all_the_same() -> None:
    code = "from penstock.client.program import program_name; print(ascii(program_name()))"
    done = subprocess.run([b"caf\xe9", "-c", code], executable=sys.executable, check=True, capture_output=True)
    assert done.stdout == b"'caf\\ufffd'\n"


def test_a_process_that_has_ended_has_no_name() -> None:
    done = subprocess.Popen([sys.executable, "-c", ""])
    done.wait()
    assert program_name(done.pid) == ""
