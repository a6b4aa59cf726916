"""The kinds of work, and the shell command of a job of each: real programs on the input files of the image."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from bench.mix.plan import Kind

#: Text that is read for each unit of size: some seconds of a core for a unit.
COMPRESS_BYTES, _SORT_BYTES = 6 << 20, 64 << 20
COPY_BYTES = 32 << 20
#: Objects that are compiled for each unit of size.
_OBJECTS = 6
#: Somebody waits for the answer at a terminal.
INTERACTIVE = "query"
_QUERY = 6
#: Queries of TPC-H that are answered for each unit of size.
_ANALYSIS = (1, 3, 5, 9, 18, 21) * 4
KINDS = (
    Kind("compress", 2.0),
    Kind("sort", 2.0),
    Kind("compile", 1.5),
    Kind("copy", 1.0),
    Kind("analytics", 1.5),
    Kind(INTERACTIVE, 4.0, sized=False),
)


def command(kind: str, units: float, inputs: Path, directory: Path) -> str:
    """Return the command that does the work in ``directory`` and leaves its result there as ``result``.

    Raises:
        ValueError: there is no such kind.
    """
    text, result = shlex.quote(str(inputs / "text")), shlex.quote(str(directory / "result"))
    where = shlex.quote(str(directory))
    if kind == "compress":
        return f"{_stream(text, units * COMPRESS_BYTES)} | xz -3 -T1 >{result}"
    if kind == "sort":
        return f"{_stream(text, units * _SORT_BYTES)} | LC_ALL=C sort --parallel=1 -S 64M -T {where} >{result}"
    if kind == "compile":
        return _compile(max(1, round(units * _OBJECTS)), shlex.quote(str(inputs / "source/src")), where)
    if kind == "copy":
        taken = _stream(text, units * COPY_BYTES)
        return f"{taken} | dd of={result} bs=1M iflag=fullblock conv=fsync status=none"
    if kind == INTERACTIVE:
        return _queries([_QUERY], inputs, result)
    if kind == "analytics":
        count = max(1, round(units * len(_ANALYSIS)))
        return _queries([_ANALYSIS[at % len(_ANALYSIS)] for at in range(count)], inputs, result)
    raise ValueError(f"no kind {kind!r}")


def _queries(numbers: Sequence[int], inputs: Path, result: str) -> str:
    """Ask DuckDB queries of TPC-H; those who run it need not be able to list the directory of the script."""
    python, script = shlex.quote(sys.executable), shlex.quote(str(Path(__file__).with_name("query.py")))
    return f"{python} {script} {shlex.quote(str(inputs / 'tpch'))} {result} {' '.join(map(str, numbers))}"


def _stream(text: str, size_bytes: float) -> str:
    """Write that much of the text, which begins again where it ends."""
    return f"{{ while cat {text} 2>/dev/null; do :; done; }} | head -c {round(size_bytes)}"


def _compile(objects: int, source: str, directory: str) -> str:
    """Compile files of the source in turn, two at a time, into an archive."""
    count = f"set -- {source}/l*.c; n=0; while [ $n -lt {objects} ]; do for f; do [ $n -lt {objects} ] || break"
    rule = "printf '%s.o: %s\\n\\t@cc -O2 -c -o $@ $<\\n' $n $f; n=$((n+1)); done; done"
    names = f"$(seq -s ' ' -f %g.o 0 {objects - 1})"
    makefile = f'{{ echo "all: {names}"; {count}; {rule}; }} >Makefile'
    return f"cd {directory} && {makefile} && make -s -j2 all && ar rc result *.o && rm -f *.o"
