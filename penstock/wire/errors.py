"""Errors on the wire say whose fault they are (docs/architecture.md, rule 5)."""

from __future__ import annotations

import enum

import msgspec


class ErrorCode(enum.StrEnum):
    """Whose fault an error is."""

    BAD_REQUEST = "bad_request"  # theirs: a message that does not make sense
    REFUSED = "refused"  # policy: understood, and not granted
    UNAVAILABLE = "unavailable"  # the host's: something needed is not there (now)
    INTERNAL = "internal"  # ours


class ErrorBody(msgspec.Struct, frozen=True, omit_defaults=True):
    """The error element of a response: a map. ``field`` names the parameter at fault, ``remedy`` what to do.

    ``exit_status`` is what a shell would end with where a command could not be run: 127 if there is no such command,
    126 if it cannot be executed; 0 for everything else.
    """

    code: ErrorCode
    message: str
    field: str = ""
    remedy: str = ""
    exit_status: int = 0


class RpcError(Exception):
    """An error that goes to, or came from, the other side."""

    def __init__(
        self, code: ErrorCode, message: str, *, field: str = "", remedy: str = "", exit_status: int = 0
    ) -> None:
        super().__init__(message)
        self.body = ErrorBody(code, message, field, remedy, exit_status)

    @classmethod
    def of(cls, body: ErrorBody) -> RpcError:
        """What the other side said."""
        error = cls(body.code, body.message)
        error.body = body
        return error

    @property
    def code(self) -> ErrorCode:
        """Whose fault it is."""
        return self.body.code

    def __str__(self) -> str:
        text = self.body.message
        if self.body.field:
            text = f"{self.body.field}: {text}"
        return f"{text} ({self.body.remedy})" if self.body.remedy else text


def bad_request(message: str, *, field: str = "", remedy: str = "") -> RpcError:
    """An error of the caller's."""
    return RpcError(ErrorCode.BAD_REQUEST, message, field=field, remedy=remedy)


def refused(message: str, *, field: str = "", remedy: str = "") -> RpcError:
    """Understood, and not granted."""
    return RpcError(ErrorCode.REFUSED, message, field=field, remedy=remedy)


def unavailable(message: str, *, remedy: str = "", exit_status: int = 0) -> RpcError:
    """Something that the host would need is not there."""
    return RpcError(ErrorCode.UNAVAILABLE, message, remedy=remedy, exit_status=exit_status)
