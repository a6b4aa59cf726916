"""The JSON that commands print."""

from __future__ import annotations

import sys

import msgspec


def print_json(document: object, *, indent: int = 0) -> None:
    """Print a document as JSON, in UTF-8 also where the locale has another encoding (RFC 8259 §8.1).

    ``indent`` 0: as one line. A number that JSON lacks (NaN, infinity) is null.
    """
    encoded = msgspec.json.encode(document)
    sys.stdout.flush()
    sys.stdout.buffer.write((msgspec.json.format(encoded, indent=indent) if indent else encoded) + b"\n")
