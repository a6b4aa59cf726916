"""One end of a MessagePack-RPC connection: bytes in, messages out, no I/O.

MessagePack has no frame lengths, so a stream that was garbled cannot be followed any further: such a stream yields
one :class:`Closed` that carries the error to send, and nothing after it. A frame that is sound MessagePack but not a
message is answered where it can be (a request has an id), and the stream goes on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeVar

import msgpack
import msgspec

from penstock.wire.errors import ErrorBody, ErrorCode, RpcError, bad_request
from penstock.wire.rpc import NOTIFICATION, REQUEST, RESPONSE, Message, Notification, Request, Response

#: Frames above this are refused; a batch of 10,000 monotasks is about 1 MB.
MAX_FRAME_BYTES = 8 * 1024 * 1024
#: How much a read may add to the buffer beyond a frame (asyncio reads at most 256 KiB at once).
_READ_SLACK_BYTES = 1024 * 1024
#: What MessagePack carries as it is (msgspec would make base64 text of it).
_NATIVE = (bytes,)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Closed:
    """The stream cannot be followed any further; send ``error`` and close."""

    error: ErrorBody


@dataclass(frozen=True, slots=True)
class Malformed:
    """A sound frame that is no valid message. ``reply_to`` is the id to answer, if there was one."""

    reply_to: int | None
    error: ErrorBody


class RpcConnection:
    """The protocol state of one connection. Feed it what was read; write what its ``send_…`` methods return."""

    def __init__(self, max_frame_bytes: int = MAX_FRAME_BYTES) -> None:
        self._max_frame_bytes = max_frame_bytes
        self._unpacker = msgpack.Unpacker(
            max_buffer_size=max_frame_bytes + _READ_SLACK_BYTES,
            strict_map_key=False,  # a wrong key is the field's error, not the stream's
        )
        self._packer = msgpack.Packer()
        self._fed_bytes = 0
        self._frame_start = 0  # where the frame that is being read began
        self._next_id = 0
        self._closed = False

    def receive(self, data: bytes) -> list[Message | Malformed | Closed]:
        """What the bytes complete, in order. After a :class:`Closed` every further call returns nothing."""
        out: list[Message | Malformed | Closed] = []
        if self._closed:
            return out
        step = _READ_SLACK_BYTES
        for start in range(0, len(data), step):
            chunk = data[start : start + step]
            self._fed_bytes += len(chunk)
            self._unpacker.feed(chunk)
            if not self._drain(out):
                break
        return out

    def _drain(self, out: list[Message | Malformed | Closed]) -> bool:
        """Whether the stream can be followed further."""
        unpacker = self._unpacker
        while True:
            try:
                frame = unpacker.unpack()
            except msgpack.OutOfData:
                if self._fed_bytes - self._frame_start > self._max_frame_bytes:
                    out.append(self._close(f"frame larger than {self._max_frame_bytes} bytes", "frame"))
                return not self._closed
            except (ValueError, TypeError) as error:  # msgpack's own errors are ValueErrors
                out.append(self._close(f"not MessagePack: {error or type(error).__name__}", "frame"))
                return not self._closed
            after = unpacker.tell()
            if after - self._frame_start > self._max_frame_bytes:
                out.append(self._close(f"frame larger than {self._max_frame_bytes} bytes", "frame"))
                return not self._closed
            self._frame_start = after
            out.append(_parse(frame))

    def _close(self, message: str, field: str) -> Closed:
        self._closed = True
        return Closed(ErrorBody(ErrorCode.BAD_REQUEST, message, field))

    def send_request(self, method: str, params: object = None) -> tuple[int, bytes]:
        """A request's id and bytes. Ids rise by one and wrap at 2³²."""
        request_id = self._next_id
        self._next_id = (request_id + 1) & 0xFFFFFFFF
        return request_id, self._pack([REQUEST, request_id, method, pack_params(params)])

    def send_response(self, request_id: int, result: object = None) -> bytes:
        """The bytes of a response that carries a result."""
        return self._pack([RESPONSE, request_id, None, to_wire(result)])

    def send_error(self, request_id: int, error: ErrorBody) -> bytes:
        """The bytes of a response that carries an error."""
        return self._pack([RESPONSE, request_id, to_wire(error), None])

    def send_notification(self, method: str, params: object = None) -> bytes:
        """The bytes of a notification."""
        return self._pack([NOTIFICATION, method, pack_params(params)])

    def _pack(self, frame: list[object]) -> bytes:
        packed: bytes = self._packer.pack(frame)
        if len(packed) > self._max_frame_bytes:
            raise RpcError(ErrorCode.INTERNAL, f"message of {len(packed)} bytes exceeds the frame limit", field="frame")
        return packed


def _parse(frame: object) -> Message | Malformed:
    match frame:
        case [0, int(request_id), str(method), list(params)] if 0 <= request_id <= 0xFFFFFFFF:
            return Request(request_id, method, params)
        case [1, int(request_id), error, result]:
            if error is None:
                return Response(request_id, None, result)
            try:
                return Response(request_id, msgspec.convert(error, ErrorBody), None)
            except msgspec.ValidationError:
                # Other servers may send any error; keep what they said.
                return Response(request_id, ErrorBody(ErrorCode.INTERNAL, str(error)), None)
        case [2, str(method), list(params)]:
            return Notification(method, params)
    expected = "[0, id, method, [params]], [1, id, error, result] or [2, method, [params]]"
    error = ErrorBody(ErrorCode.BAD_REQUEST, f"not a MessagePack-RPC message; expected {expected}", "frame")
    if isinstance(frame, list) and len(frame) > 1 and frame[0] == REQUEST and isinstance(frame[1], int):
        return Malformed(frame[1], error)
    return Malformed(None, error)


def to_wire(value: object) -> Any:
    """Structs to maps, enums to strings: what ``msgpack.Packer`` takes."""
    return msgspec.to_builtins(value, builtin_types=_NATIVE)


def pack_params(params: object) -> list[Any]:
    """``None`` → ``[]``; a struct or mapping → ``[map]``."""
    return [] if params is None else [to_wire(params)]


def read_params(params: list[Any], of: type[T]) -> T:
    """The typed parameters of a method.

    Raises:
        RpcError: ``bad_request`` that names the field at fault.
    """
    if len(params) > 1:
        raise bad_request(f"expected one map of named parameters, got {len(params)} values", field="params")
    return read(params[0] if params else {}, of)


def read(value: object, of: type[T]) -> T:
    """A typed value from what ``msgpack.Unpacker`` yields.

    Raises:
        RpcError: ``bad_request`` that names the field at fault.
    """
    try:
        return msgspec.convert(value, of, builtin_types=_NATIVE)
    except msgspec.ValidationError as error:
        message, _, path = str(error).partition(" - at `$")
        field = path.removesuffix("`").lstrip(".")
        if not field and "`" in message:  # "Object missing required field `kind`", "… unknown field `x`"
            field = message.split("`")[1] if "field" in message else "params"
        raise bad_request(message, field=field or "params") from None
