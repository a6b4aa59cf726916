"""Keys written into a configuration file hold there, and everything else in it stays: values, comments, order."""

from __future__ import annotations

import tomllib

from hypothesis import given
from hypothesis import strategies as st

from penstock.config.file import changed

KEYS = [f"key_{letter}" for letter in "abcdefgh"]
VALUES = st.one_of(
    st.booleans(),
    st.integers(-(2**62), 2**62),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
    st.lists(st.integers(0, 9), max_size=3),
    st.dictionaries(st.sampled_from(["eve", "a/b", "x.y", ""]), st.text("ab<>", max_size=4), max_size=2),
)
#: Values as people write them, with their meaning beside it.
LINES = st.sampled_from(
    ["0.8", "0.80", "1_000", "'literal'", '"2GiB"', "true", "[ 1, 2 ]", '{ "a/b" = "x" }', "0x10", '"""many"""']
)


@st.composite
def files(draw: st.DrawFn) -> tuple[str, list[str]]:
    """A file, and its comments in their order."""
    comments: list[str] = []

    def comment() -> str:
        comments.append(f"# note {len(comments)}")
        return comments[-1]

    text = ""
    for key in draw(st.lists(st.sampled_from(KEYS), unique=True, max_size=5)):
        if draw(st.booleans()):
            text += draw(st.sampled_from(["", "\n"])) + comment() + "\n"
        text += draw(st.sampled_from(["", "  "])) + key + draw(st.sampled_from([" = ", "=", "  = "])) + draw(LINES)
        text += (draw(st.sampled_from([" ", "    "])) + comment() if draw(st.booleans()) else "") + "\n"
    if draw(st.booleans()):
        text += f"\n{comment()}\n[bundles]\nbig = '<1GB,1core>'  {comment()}\n"
    return text if draw(st.booleans()) else text.rstrip("\n"), comments


@given(files(), st.dictionaries(st.sampled_from(KEYS), VALUES, min_size=1, max_size=4))
def test_written_keys_hold_and_the_rest_stays(file: tuple[str, list[str]], values: dict[str, object]) -> None:
    text, comments = file
    written = changed(text, values)
    before, after = tomllib.loads(text), tomllib.loads(written)
    assert after == before | values
    assert [key for key in after if key in before] == list(before)
    found = [line[line.index("# note") :] for line in written.splitlines() if "# note" in line]
    assert found == comments
    untouched = [line for line in text.splitlines() if line.lstrip().partition("=")[0].strip() not in values]
    assert [line for line in untouched if line.strip() and line not in written.splitlines()] == []
    assert changed(written, values) == written
