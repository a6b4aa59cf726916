"""docs/dataflow.md is true: its blocks are one program with the page's output."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path
from typing import Any

import pytest

PAGE = Path(__file__).parents[4] / "docs" / "dataflow.md"


def test_the_program_prints_the_page_s_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```(python|text)\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    names: dict[str, Any] = {"__name__": "dataflow"}
    printed = ""
    compared = 0
    for language, block in blocks:
        if language == "python":
            assert not printed, f"the page does not say what is printed: {printed}"
            with contextlib.redirect_stdout(io.StringIO()) as output:
                exec(compile(block, str(PAGE), "exec"), names)
            printed = output.getvalue()
        else:
            assert printed == block
            printed = ""
            compared += 1
    assert compared == 6
    assert not printed
