"""The errors in a document, in plain words."""

from __future__ import annotations

import tomllib
from typing import Annotated, Literal

import msgspec
import pytest

from penstock.model.decode_errors import told, told_toml


class Item(msgspec.Struct, forbid_unknown_fields=True):
    size: Annotated[int, msgspec.Meta(ge=1)] = 1
    colour: Literal["red", "green"] = "red"


class Named(msgspec.Struct):
    stream: Annotated[str, msgspec.Meta(pattern="^(stdout|stderr)$")] = ""


class Document(msgspec.Struct, forbid_unknown_fields=True):
    items: list[Item] = []
    weights: Annotated[dict[str, float], msgspec.Meta(max_length=2)] = {}


class Group(msgspec.Struct):
    size: Annotated[int, msgspec.Meta(ge=1)] = 1
    limits: dict[str, int] = {}


class Nested(msgspec.Struct):
    groups: list[dict[str, Group]] = []
    weights: dict[str, float] = {}


@pytest.mark.parametrize(
    ("document", "line"),
    [
        (b'{"items": [{"size": 0}]}', "items[0].size: a whole number of at least 1 expected"),
        (b'{"items": [{"colour": "blue"}]}', "items[0].colour: 'blue' is unknown; one of green, red"),
        (b'{"items": [{"sise": 1}]}', "items[0]: there is no key 'sise'; did you mean 'size'?"),
        (b'{"things": []}', "there is no key 'things'; known keys: items, weights"),
        (b'{"weights": {"a": "b"}}', "weights[...]: a number expected, and text found"),
        (b'{"weights": {"a": 1, "b": 2, "c": 3}}', "weights: at most 2 keys expected"),
        (b'[]', "a table expected, and a list found"),
        (b'{"items": ', "it is empty, or its end is missing"),
        (b'{items}', "it is not JSON: object keys must be strings (byte 1)"),
    ],
)  # fmt: skip
def test_a_fault_has_its_place_and_plain_words(document: bytes, line: str) -> None:
    with pytest.raises(msgspec.MsgspecError) as caught:
        msgspec.json.decode(document, type=Document)
    assert told(caught.value, Document) == line


@pytest.mark.parametrize(
    ("value", "line"),
    [
        ({"size": 0}, "bundle.size: a whole number of at least 1 expected"),
        (7, "bundle: a table expected, and a whole number found"),
    ],
)
def test_a_part_of_a_document_is_named_by_its_key(value: object, line: str) -> None:
    with pytest.raises(msgspec.ValidationError) as caught:
        msgspec.convert(value, Item)
    assert told(caught.value, Item, key="bundle") == line


@pytest.mark.parametrize(
    ("document", "line"),
    [
        ({"weights": {"b": 1.0, "a": "x", "c": "y"}}, "weights.a: a number expected, and text found"),
        ({"weights": {"research/eve": "x"}}, 'weights."research/eve": a number expected, and text found'),
        ({"weights": 3}, "weights: a table expected, and a whole number found"),
        ({"groups": [{}, {"a": {}, "b": {"size": 0}}]}, "groups[1].b.size: a whole number of at least 1 expected"),
        (
            {"groups": [{"a": {}, "b": {"limits": {"x": 1, "y": "z"}}}], "weights": {"c": "x"}},
            "groups[0].b.limits.y: a whole number expected, and text found",
        ),
    ],
)  # fmt: skip
def test_an_entry_of_a_table_is_named_by_its_key(document: object, line: str) -> None:
    with pytest.raises(msgspec.ValidationError) as caught:
        msgspec.convert(document, Nested)
    assert told(caught.value, Nested, document=document) == line


def test_a_text_of_another_form_is_refused_with_the_form() -> None:
    with pytest.raises(msgspec.ValidationError) as caught:
        msgspec.convert({"stream": "x"}, Named)
    assert told(caught.value, Named) == "stream: text that matches ^(stdout|stderr)$ expected"


def test_a_key_of_a_map_is_named_by_its_map() -> None:
    with pytest.raises(msgspec.ValidationError) as caught:
        msgspec.convert({"a": 1}, dict[int, int])
    assert told(caught.value, dict[int, int]) == "a whole number expected, and text found"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a = 1\nb = ?\n", "x.toml:2: Invalid value (column 5)"),
        ("a = 1\nb = [1,", "x.toml:2: Invalid value (column 8)"),
        ("a = 1\na = 2\n", "x.toml:2: Cannot overwrite a value (column 6)"),
    ],
)
def test_a_fault_of_syntax_is_one_line_with_line_and_column(text: str, line: str) -> None:
    with pytest.raises(tomllib.TOMLDecodeError) as caught:
        tomllib.loads(text)
    assert told_toml("x.toml", text, caught.value) == line
