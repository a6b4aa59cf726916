"""A program of users: ``send.py ADDRESS PORT BYTES FILE RESULT`` copies that much of a file over the network.

The file is sent again from its beginning where it ends. It is run as a file and imports nothing of the project.
"""

from __future__ import annotations

import socket
import sys
from pathlib import Path


def main(address: str, port: int, size_bytes: int, file: str, result: str) -> None:
    """Send, and record the number of bytes that the other side reports.

    Raises:
        OSError: it cannot be reached, or not all came.
    """
    left, whole = size_bytes, Path(file).stat().st_size
    with socket.create_connection((address, port)) as link, Path(file).open("rb") as data:
        while left:
            left -= link.sendfile(data, 0, min(left, whole))
        link.shutdown(socket.SHUT_WR)
        arrived = link.recv(64).decode("ascii")
    if int(arrived or 0) != size_bytes:
        raise OSError(f"{arrived} of {size_bytes} bytes arrived")
    Path(result).write_text(arrived, encoding="ascii")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), *sys.argv[4:])
