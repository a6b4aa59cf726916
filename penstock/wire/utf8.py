"""Text that is not UTF-8: arguments, variables and paths are bytes to the kernel, and text in messages is UTF-8.

Python reads such bytes as lone surrogates, which no message can carry.
"""

from __future__ import annotations

import msgspec

from penstock.model.container import ContainerSpec
from penstock.wire.errors import bad_request

#: As much of a text as is shown (characters).
_SHOWN = 100


def sendable(spec: ContainerSpec) -> tuple[ContainerSpec, str]:
    """Return the specification without the variables that are not UTF-8, and a warning that names them, or "".

    They come from whoever started this process, and seldom matter; a command without an argument is another command.

    Raises:
        RpcError: an argument or the directory is not UTF-8; the message has the remedy.
    """
    if is_utf8("".join((*spec.argv, spec.cwd, *spec.env, *spec.env.values()))):
        return spec, ""  # the rule; looked at one by one they take longer than the rest of a request
    for number, argument in enumerate(spec.argv):
        if not is_utf8(argument):
            which = f"argument {number}, {shown(argument)}," if number else shown(argument)
            remedy = "rename what it names, or let a shell find that by a pattern: sh -c 'cat caf*'"
            raise bad_request(f"{which} is not UTF-8", field="command", remedy=remedy)
    if not is_utf8(spec.cwd):
        remedy = "rename it, or give another directory"
        raise bad_request(f"{shown(spec.cwd)} is not UTF-8", field="cwd", remedy=remedy)
    env = {name: value for name, value in spec.env.items() if is_utf8(name) and is_utf8(value)}
    names = ", ".join(shown(name)[1:-1] for name in spec.env if name not in env)
    return msgspec.structs.replace(spec, env=env), f"left out of the environment, as not UTF-8: {names}"


def shown(text: str) -> str:
    r"""Return text in quotes, with bytes that are not UTF-8 as ``\xe9``."""
    text = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
    try:
        raw = text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:  # a surrogate that stands for no byte
        raw = text.encode("utf-8", "backslashreplace")
    return f"'{raw.decode('utf-8', 'backslashreplace')}'"


def is_utf8(text: str) -> bool:
    """Return whether a message can carry the text."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
