"""PURE. The declaration of a method. Servers, the protocol's page and tests are made from declarations."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic, TypeVar

import msgspec

P = TypeVar("P", bound=msgspec.Struct)
R = TypeVar("R", bound=msgspec.Struct)


class Caller(enum.StrEnum):
    """The callers of a method; all others are refused, and nothing changes. The values are the protocol page's text."""

    EVERYBODY = "every user"  # the call touches nothing of other users
    OWNER = "the owner of the job, container or reservation, and operators"
    PROCESS_OWNER = "the owner of the process, and root"
    OPERATORS = "operators"
    AGENT = "agents"
    MASTER = "the master"


#: The callers of methods that frameworks and commands call.
USERS = (Caller.EVERYBODY, Caller.OWNER, Caller.PROCESS_OWNER, Caller.OPERATORS)


class Method(msgspec.Struct, Generic[P, R], frozen=True, eq=False):
    """A request, which its ``caller`` may also send as a notification if no answer is wanted.

    ``about`` replaces the docstring of ``params`` on the page; ``answer`` is the answer to ``example``.
    """

    name: str
    params: type[P]
    result: type[R]
    caller: Caller
    about: str = ""
    example: P | None = None
    answer: R | None = None

    def served_by(self, handler: Callable[[Any, P], object]) -> Served:
        """Return this method and its handler, which gets the server's object and the parameters."""
        return self, handler


def declare(name: str, example: P, answer: R, caller: Caller, about: str = "") -> Method[P, R]:
    """Declare a method by the example of a call and its answer, whose types are those of parameters and result."""
    return Method(name, type(example), type(answer), caller, about, example, answer)


#: A method, and the function that returns its answer, or a coroutine of it.
Served = tuple[Method[Any, Any], Callable[[Any, Any], object]]


def methods_of(module: Mapping[str, object], *callers: Caller) -> dict[str, Method[Any, Any]]:
    """Return the methods that a module's variables declare for these callers, by name, in their order."""
    found = [each for each in module.values() if isinstance(each, Method)]
    return {each.name: each for each in found if each.caller in callers}


def handlers(declared: Iterable[Method[Any, Any]], served: Iterable[Served]) -> dict[str, Served]:
    """Return the rows of a server by the methods' names.

    Raises:
        TypeError: a declared method has no handler, or a handler no declared method.
    """
    rows = dict(served)
    unmatched = sorted(method.name for method in rows.keys() ^ set(declared))
    if unmatched:
        raise TypeError(f"not both declared and served: {', '.join(unmatched)}")
    return {method.name: (method, handler) for method, handler in rows.items()}
