"""The text: its selection, its cuts, that nothing is lost and nothing depends on chance."""

from __future__ import annotations

from bisect import bisect_right
from itertools import pairwise
from pathlib import Path

import pytest

from demo.corpus import PIECE_BYTES, Corpus, CorpusError, find_text, is_text, materialise, pieces, range_ends


def make(root: Path) -> dict[str, bytes]:
    texts = {
        "b/two.txt": "zwei\nZeilen – hübsch\n".encode(),
        "a/one.py": b"x = 1\ny = 2",
        "a/zero.txt": b"",
        "a/binary": b"\x7fELF\0\0\1",
        "a/latin1.txt": b"caf\xe9 " * 2000,
    }
    for name, text in texts.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text)
    (root / "a/link.py").symlink_to(root / "a/one.py")
    return texts


def test_takes_text_in_the_order_of_names(tmp_path: Path) -> None:
    make(tmp_path)
    assert [path.name for path in find_text([tmp_path])] == ["one.py", "two.txt"]


def test_a_character_cut_by_the_end_of_the_look_is_still_text(tmp_path: Path) -> None:
    path = tmp_path / "long"
    for shift in range(3):
        path.write_text("x" * shift + "€" * 5000, encoding="utf-8")
        assert is_text(path)


def test_pieces_are_whole_lines_and_end_with_a_newline(tmp_path: Path) -> None:
    path = tmp_path / "long"
    text = b"".join(b"line %d\n" % n for n in range(80_000)) + b"the last has no newline"
    path.write_bytes(text)
    cut = list(pieces(path))
    assert len(cut) > 1
    assert b"".join(cut) == text + b"\n"
    assert all(piece.endswith(b"\n") for piece in cut)
    assert max(map(len, cut)) < PIECE_BYTES + 100


def test_partitions_hold_every_document_and_its_place(tmp_path: Path) -> None:
    texts = make(tmp_path / "in")
    corpus = materialise(tmp_path / "out", 30, partitions=2, reducers=2, roots=[tmp_path / "in"])
    found: dict[str, bytes] = {}
    for partition in corpus.partitions:
        data = Path(partition.path).read_bytes()
        assert len(data) == partition.size
        for document, offset, length in partition.documents:
            name = str(Path(corpus.names[document]).relative_to(tmp_path / "in"))
            found[name] = found.get(name, b"") + data[offset : offset + length]
    assert found == {"a/one.py": texts["a/one.py"] + b"\n", "b/two.txt": texts["b/two.txt"]}


def test_text_is_repeated_as_new_documents_until_there_is_enough(tmp_path: Path) -> None:
    make(tmp_path / "in")
    corpus = materialise(tmp_path / "out", 10_000, partitions=4, reducers=2, roots=[tmp_path / "in"])
    assert corpus.size >= 10_000
    assert len(corpus.names) > 100
    assert len(corpus.partitions) == 4


def test_the_same_text_again_gives_the_same_partitions(tmp_path: Path) -> None:
    make(tmp_path / "in")
    written = []
    for name in ("first", "second"):
        corpus = materialise(tmp_path / name, 5000, partitions=3, reducers=4, roots=[tmp_path / "in"])
        written.append([Path(partition.path).read_bytes() for partition in corpus.partitions])
        assert Corpus.load(tmp_path / name / "corpus.json") == corpus
    assert written[0] == written[1]


def test_no_text_is_reported_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="no text below"):
        materialise(tmp_path / "out", 10, partitions=1, reducers=1, roots=[tmp_path])


def test_a_text_that_would_be_repeated_for_hours_is_refused(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in/tiny.txt").write_text("hello world\n")
    with pytest.raises(CorpusError, match=r"^12 bytes of text below .*/in; name a directory that has more$"):
        materialise(tmp_path / "out", 400_000, partitions=4, reducers=2, roots=[tmp_path / "in"])


def test_ranges_are_even_however_the_text_is_divided_into_files(tmp_path: Path) -> None:
    (tmp_path / "in/small").mkdir(parents=True)
    for number in range(300):
        (tmp_path / f"in/small/{number}").write_text(f"a small file, {number}\n")
    large = [f"{7919 * number % 30_011:05} of a large file\n" for number in range(30_000)]
    (tmp_path / "in/zlarge").write_text("".join(large))
    corpus = materialise(tmp_path / "out", 650_000, partitions=4, reducers=4, roots=[tmp_path / "in"])
    lines = [line for each in corpus.partitions for line in Path(each.path).read_bytes().splitlines()]
    at = [0, *(bisect_right(sorted(lines), end) for end in corpus.ends), len(lines)]
    shares = [(end - begin) / len(lines) for begin, end in pairwise(at)]
    assert len(shares) == 4 and max(shares) < 0.35, shares


def test_a_part_has_ranges_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for letter in "az":
        text = "".join(f"{letter}{number:05}\n" for number in range(20_000))
        (tmp_path / f"in/{letter}").write_text(text)
    corpus = materialise(tmp_path / "out", 280_000, partitions=8, reducers=8, roots=[tmp_path / "in"])
    half = corpus.first(0.5, workers=2)
    assert [end[:1] for end in half.ends] == [b"a"] * 3, "all of it is in the first half of the alphabet"
    assert len(corpus.first(0.125, workers=2).ends) == 3, "two ranges for each worker"
    assert len(corpus.first(0.125, workers=16).ends) == 7, "no more ranges than the whole has"
    assert corpus.first(1.0, workers=2) == corpus


def test_ranges_are_even() -> None:
    samples = [b"%03d" % n for n in range(100)]
    assert range_ends(samples, 4) == [b"025", b"050", b"075"]
    assert range_ends(samples, 1) == []
    assert range_ends([b"a" * 180, *[b"b"] * 10, b"c" * 180], 2) == [b"b"], "bytes count, and lines too"
