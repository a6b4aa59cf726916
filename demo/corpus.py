"""The text that the jobs work on: files that every machine has, cut into partitions of equal size, once, on disk."""

from __future__ import annotations

import codecs
import json
import math
import os
import sysconfig
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

#: Where text is on about every Linux machine, in the order in which it is taken.
SOURCES = (
    Path(sysconfig.get_path("stdlib")),
    Path("/usr/lib/python3"),
    *(Path(f"/usr/share/{name}") for name in ("common-licenses", "perl", "perl5", "i18n", "misc", "vim", "doc")),
    Path("/usr/include"),
)
#: The size of a look at a file, to see whether it is text.
_PEEK = 4096
#: A document longer than this is cut at ends of lines, so that partitions stay even.
PIECE_BYTES = 256 * 1024
#: More repeats of a tiny text would take longer than the demonstration.
_MOST_REPEATS = 10_000
#: Of so many lines one is sampled, to find where the sort's ranges end.
_SAMPLED = 251
#: What a line costs the sort besides its bytes, in bytes: a second sorts 1.5 million empty lines or 30 MB of long ones.
_LINE_BYTES = 20


class CorpusError(Exception):
    """One line: there is no text where it was looked for."""


class Document(NamedTuple):
    """A piece of a source file inside a partition: ``id`` indexes :attr:`Corpus.names`."""

    id: int
    offset: int
    length: int


class Partition(NamedTuple):
    """One input partition: the unit of a map task; ``sample`` has some of its lines."""

    path: str
    size: int
    documents: list[Document]
    sample: tuple[bytes, ...] = ()


class Corpus(NamedTuple):
    """``ends`` are the last lines of the sort's ranges but the final one; there are as many ranges as reducers."""

    partitions: list[Partition]
    names: list[str]
    ends: list[bytes]

    @property
    def size(self) -> int:
        """Bytes in all partitions."""
        return sum(partition.size for partition in self.partitions)

    def first(self, part: float, workers: int) -> Corpus:
        """Return the first part of it, a number up to 1, with even ranges of its own for so many workers."""
        partitions = self.partitions[: part_of(part, len(self.partitions))]
        ranges = part_of(part, len(self.ends) + 1, 2 * workers)
        return Corpus(partitions, self.names, range_ends([line for each in partitions for line in each.sample], ranges))

    def save(self, path: Path) -> None:
        """Write the description (not the text) as JSON."""
        document = {
            "partitions": [[*each[:-1], _text(each.sample)] for each in self.partitions],
            "names": self.names,
            "ends": _text(self.ends),
        }
        path.write_text(json.dumps(document), encoding="ascii")

    @classmethod
    def load(cls, path: Path) -> Corpus:
        """Read a file of :meth:`save`."""
        document: dict[str, Any] = json.loads(path.read_text(encoding="ascii"))
        partitions = [
            Partition(path, size, [Document(*each) for each in documents], tuple(_lines(sample)))
            for path, size, documents, sample in document["partitions"]
        ]
        return cls(partitions, document["names"], _lines(document["ends"]))


def part_of(part: float, whole: int, least: int = 1) -> int:
    """Return how many of the whole's partitions, or ranges, a part of it has: at least ``least``, if there are."""
    return min(whole, max(least, math.ceil(part * whole)))


def _text(lines: Iterable[bytes]) -> list[str]:
    return [line.decode("latin-1") for line in lines]


def _lines(text: Iterable[str]) -> list[bytes]:
    return [line.encode("latin-1") for line in text]


def find_text(roots: Iterable[Path]) -> Iterator[Path]:
    """Text files below the roots, in an order that depends on their names only; symbolic links are not followed."""
    for root in roots:
        for directory, below, files in os.walk(root):
            below[:] = sorted(name for name in below if name != "__pycache__")
            for name in sorted(files):
                path = Path(directory, name)
                if is_text(path):
                    yield path


def is_text(path: Path) -> bool:
    """A regular file that can be read and begins with UTF-8 without NUL."""
    try:
        if path.is_symlink() or not path.is_file():
            return False
        with path.open("rb") as file:
            head = file.read(_PEEK)
    except OSError:
        return False
    try:
        # Not final when cut: the last character may be incomplete.
        codecs.getincrementaldecoder("utf-8")().decode(head, len(head) < _PEEK)
    except UnicodeDecodeError:
        return False
    return bool(head) and b"\0" not in head


def pieces(path: Path) -> Iterator[bytes]:
    """A file in pieces of whole lines, each ending with a newline."""
    try:
        with path.open("rb") as file:
            while block := file.read(PIECE_BYTES):
                block += file.readline()
                yield block if block.endswith(b"\n") else block + b"\n"
    except OSError:
        return  # removed or replaced while we looked: there is other text


class _Writer:
    """Fills partition after partition and records the place of each document."""

    def __init__(self, directory: Path, total_bytes: int, partitions: int) -> None:
        self.directory = directory
        self.target = -(-total_bytes // partitions)
        self.done: list[Partition] = []
        self._sample: list[bytes] = []
        self._skip = 0
        self._chunks: list[bytes] = []
        self._documents: list[Document] = []
        self._size = 0

    def add(self, document: int, piece: bytes) -> None:
        self._documents.append(Document(document, self._size, len(piece)))
        self._chunks.append(piece)
        self._size += len(piece)
        lines = piece[:-1].split(b"\n")
        self._sample += lines[self._skip :: _SAMPLED]
        self._skip = (self._skip - len(lines)) % _SAMPLED
        if self._size >= self.target:
            self.flush()

    def flush(self) -> None:
        if not self._size:
            return
        path = self.directory / f"part-{len(self.done):04d}"
        with path.open("wb") as file:
            file.writelines(self._chunks)
            file.flush()
            os.fsync(file.fileno())  # dirty pages cannot be dropped from the page cache
        self.done.append(Partition(str(path), self._size, self._documents, tuple(self._sample)))
        self._chunks, self._documents, self._sample, self._size = [], [], [], 0


def materialise(
    directory: Path,
    total_bytes: int,
    *,
    partitions: int,
    reducers: int,
    roots: Iterable[Path] = SOURCES,
    progress: Callable[[int], None] = lambda _: None,
) -> Corpus:
    """Write about ``total_bytes`` of text below ``directory``, repeated as often as needed; ``corpus.json`` beside it.

    ``progress`` is called with the bytes written so far.

    Raises:
        CorpusError: no text below the roots, or too little.
    """
    directory.mkdir(parents=True, exist_ok=True)
    roots = list(roots)
    writer = _Writer(directory, total_bytes, partitions)
    names: list[str] = []
    written = 0
    while written < total_bytes:
        before = written
        for path in find_text(roots):
            for piece in pieces(path):
                writer.add(len(names), piece)
                written += len(piece)
                if written >= total_bytes:
                    break
            names.append(str(path))
            progress(written)
            if written >= total_bytes:
                break
        if (written - before) * _MOST_REPEATS < total_bytes - before:
            found = f"{written - before} bytes of" if written > before else "no"
            raise CorpusError(f"{found} text below {', '.join(map(str, roots))}; name a directory that has more")
    writer.flush()
    corpus = Corpus(writer.done, names, range_ends([line for each in writer.done for line in each.sample], reducers))
    corpus.save(directory / "corpus.json")
    return corpus


def range_ends(samples: list[bytes], reducers: int) -> list[bytes]:
    """Where to cut the sorted lines so that each reducer gets about as much work: quantiles of a sample."""
    ordered = sorted(samples)
    done = list(accumulate(len(line) + _LINE_BYTES for line in ordered))
    return [ordered[bisect_right(done, done[-1] * (i + 1) / reducers)] for i in range(reducers - 1)]
