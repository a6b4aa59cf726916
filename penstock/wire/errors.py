"""Errors on the wire. Their code states which side is at fault (docs/architecture.md, rule 5)."""

import enum
from typing import ClassVar

import msgspec


class ErrorCode(enum.StrEnum):
    """The side at fault."""

    BAD_REQUEST = "bad_request"  # the caller: an invalid message
    REFUSED = "refused"  # policy: a valid request that is not granted
    UNAVAILABLE = "unavailable"  # the host: a required resource or service is missing (now)
    INTERNAL = "internal"  # this program


class ErrorBody(msgspec.Struct, frozen=True, omit_defaults=True):
    """The error element of a response: a map. ``field`` names the invalid parameter, ``remedy`` the user's next step.

    ``exit_status`` is a shell's exit status for a command that could not be run: 127 if there is no such command, 126
    if it cannot be executed; 0 for all other errors. ``cancelled_by`` is the user who cancelled the job that is to be
    joined. ``limit`` is the limit, as in ``not_enforced`` of a container, that the host does not enforce although
    limits are strict.
    """

    METHOD: ClassVar[str] = "error"  # the notification of an error that answers no request
    code: ErrorCode
    message: str
    field: str = ""
    remedy: str = ""
    exit_status: int = 0
    cancelled_by: str = ""
    limit: str = ""


class RpcError(Exception):
    """An error that is sent to, or was received from, the other side."""

    def __init__(
        self,
        code: ErrorCode,
        message: str,
        *,
        field: str = "",
        remedy: str = "",
        exit_status: int = 0,
        cancelled_by: str = "",
        limit: str = "",
    ) -> None:
        super().__init__(message)
        self.body = ErrorBody(code, message, field, remedy, exit_status, cancelled_by, limit)

    @classmethod
    def of(cls, body: ErrorBody) -> "RpcError":
        """Return the exception for a received error."""
        error = cls(body.code, body.message)
        error.body = body
        return error

    @property
    def code(self) -> ErrorCode:
        """The side at fault."""
        return self.body.code

    def __str__(self) -> str:
        text = self.body.message
        if self.body.field:
            text = f"{self.body.field}: {text}"
        return f"{text} ({self.body.remedy})" if self.body.remedy else text


def bad_request(message: str, *, field: str = "", remedy: str = "") -> RpcError:
    """Return an error in the caller's request."""
    return RpcError(ErrorCode.BAD_REQUEST, message, field=field, remedy=remedy)


def refused(message: str, *, field: str = "", remedy: str = "", cancelled_by: str = "", limit: str = "") -> RpcError:
    """Return the refusal of a valid request."""
    return RpcError(ErrorCode.REFUSED, message, field=field, remedy=remedy, cancelled_by=cancelled_by, limit=limit)


def unavailable(message: str, *, remedy: str = "", exit_status: int = 0, limit: str = "") -> RpcError:
    """Return an error for something that the host lacks."""
    return RpcError(ErrorCode.UNAVAILABLE, message, remedy=remedy, exit_status=exit_status, limit=limit)
