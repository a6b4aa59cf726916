"""The kinds of work, and the shell command of a job of each: real programs on the input files of the image."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from bench.mix.jobs import Kind
from bench.mix.layer import TPCH_SCALE
from bench.mix.link import ADDRESS, PORT

#: Text that is read for each unit of size: some seconds of a core for a unit.
COMPRESS_BYTES, _SORT_BYTES = 6 << 20, 64 << 20
COPY_BYTES, SEND_BYTES = 32 << 20, 8 << 20
#: Objects that are compiled for each unit of size.
_OBJECTS = 6
#: A user waits for the answer at a terminal.
INTERACTIVE = "query"
_QUERY = 6
#: Copies over the network, and the client programs that have a Dask cluster.
SEND, DASK = "send", "dask"
#: Queries of TPC-H that are answered for each unit of size.
_ANALYSIS = (1, 3, 5, 9, 18, 21) * 4
_ON_DASK = (1, 3, 6, 12)
#: The bytes that the archive compresses at a time, in a file of its own each. When it goes on after a stop it begins
#: behind the last one.
ARCHIVED_BYTES = 1 << 20
KINDS = (
    Kind("compress", 2.0),
    Kind("sort", 2.0),
    Kind("compile", 1.5),
    Kind("copy", 1.0),
    Kind("analytics", 1.5),
    Kind(SEND, 1.0),
    Kind(DASK, 0.5),
    Kind(INTERACTIVE, 4.0, sized=False),
)


def command(kind: str, units: float, inputs: Path, directory: Path, application: str = DASK) -> str:
    """Return the command that does the work in ``directory`` and leaves its result there as ``result``.

    A program of Dask is a script with the name of the ``application``, as its only name.

    Raises:
        ValueError: there is no such kind.
    """
    text, result = shlex.quote(str(inputs / "text")), shlex.quote(str(directory / "result"))
    where, tables = shlex.quote(str(directory)), shlex.quote(str(inputs / "tpch"))
    match kind:
        case "compress":
            return f"{_stream(text, units * COMPRESS_BYTES)} | xz -3 -T1 >{result}"
        case "sort":
            return f"{_stream(text, units * _SORT_BYTES)} | LC_ALL=C sort --parallel=1 -S 64M -T {where} >{result}"
        case "compile":
            return _compile(max(1, round(units * _OBJECTS)), shlex.quote(str(inputs / "source/src")), where)
        case "copy":
            taken = _stream(text, units * COPY_BYTES)
            return f"{taken} | dd of={result} bs=1M iflag=fullblock conv=fsync status=none"
        case "send":
            return f"{_program('send')} {ADDRESS} {PORT} {round(units * SEND_BYTES)} {text} {result}"
        case "query":
            return f"{_program('query')} {tables} {result} {_QUERY}"
        case "analytics":
            return f"{_program('query')} {tables} {result} {_some(_ANALYSIS, units)}"
        case "dask":
            # Beside it nothing must have the name of a package that it imports, such as `dask`.
            script = shlex.quote(str(directory / f"{application}-report.py"))
            copied = f"cp {shlex.quote(str(Path(__file__).with_name('tpch_on_dask.py')))} {script}"
            python = f"exec env PYTHONPATH={shlex.quote(str(Path(__file__).parents[2]))} {shlex.quote(sys.executable)}"
            queries = _some(_ON_DASK, units / len(_ON_DASK))
            return f"{copied} && {python} {script} {tables} {TPCH_SCALE} {result} {queries}"
        case "hog":
            return f"{_program('hog')} {result}"
        case "archive":
            return _archive(text, where)
    raise ValueError(f"no kind {kind!r}")


def _program(name: str) -> str:
    """Return the command of a file beside this one; its users need not be able to list the directory."""
    return f"{shlex.quote(sys.executable)} {shlex.quote(str(Path(__file__).with_name(f'{name}.py')))}"


def _some(numbers: Sequence[int], units: float) -> str:
    """Return the numbers once for each unit of size, from the beginning again where it is more than one."""
    count = max(1, round(units * len(numbers)))
    return " ".join(str(numbers[at % len(numbers)]) for at in range(count))


def _archive(text: str, directory: str) -> str:
    """Compress piece after piece of the text, without an end; go on behind the pieces that are there already."""
    pieces = f"at=$((n * {ARCHIVED_BYTES} % $(stat -c %s {text})))"
    piece = f"tail -c +$((at + 1)) {text} | head -c {ARCHIVED_BYTES} | xz -3 -T1 >part; mv part $n.xz"
    return f"cd {directory}; n=0; while [ -e $n.xz ]; do n=$((n+1)); done; while {pieces}; do {piece}; n=$((n+1)); done"


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
