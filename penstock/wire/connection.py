"""One end of a MessagePack-RPC connection: bytes in, messages out, no I/O.

MessagePack has no frame lengths, so a garbled stream cannot be resynchronized: it yields one :class:`Closed` with the
error to send, and nothing after it. A frame that is valid MessagePack but no valid message is answered if it has a
request's id, and the stream continues. A stream whose first byte begins no array is another protocol's and is closed:
the bytes of an HTTP request are valid MessagePack, and what follows them must not be served.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Hashable, Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar, cast

import msgspec

from penstock.wire.errors import ErrorBody, ErrorCode, RpcError, bad_request
from penstock.wire.rpc import NOTIFICATION, REQUEST, RESPONSE, Id, Message, Notification, Request, Response
from penstock.wire.utf8 import shown

if TYPE_CHECKING:  # imported for the first read that is not a few frames: commands seldom have one
    import msgpack

#: Larger frames are refused; a batch of 10,000 monotasks is about 1 MB.
MAX_FRAME_BYTES = 8 * 1024 * 1024
#: Between agent and master, which trust each other: a node that registers names all its tasks in one message.
LINK_FRAME_BYTES = 48 * 1024 * 1024
#: How much a read may add to the buffer beyond a frame (asyncio reads at most 256 KiB at once).
_READ_SLACK_BYTES = 1024 * 1024
#: First size of a splitter's buffer, which grows with the frame. msgpack's own default is 1 MiB.
_SPLITTER_BYTES = 4096
#: Larger errors of other servers are not parsed just to show them.
_SHOWN_BYTES = 16 * 1024
#: Types that MessagePack carries natively (msgspec would encode them as base64 text).
_NATIVE = (bytes,)
_ENCODER = msgspec.msgpack.Encoder()
NO_TYPES: Mapping[str, type[Any]] = MappingProxyType({})
_Frame = Request[msgspec.Raw] | Response[msgspec.Raw] | Notification[msgspec.Raw]
_FRAME: msgspec.msgpack.Decoder[_Frame] = msgspec.msgpack.Decoder(_Frame)
_FRAMES = msgspec.msgpack.Decoder(list[msgspec.Raw])
_ERROR: msgspec.msgpack.Decoder[ErrorBody | None] = msgspec.msgpack.Decoder(ErrorBody | None)
#: As many frames of one read, up to this size together, are split without msgpack: an answer and its notifications.
_FEW, _FEW_BYTES = 3, 4096
#: The errors of a decoder: for another type, text that is not UTF-8, and deep nesting.
_INVALID = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
#: The first bytes of messages: an array of four or three, then the message's type.
_REQUEST_HEAD, _NOTIFICATION_HEAD = b"\x94\x00", b"\x93\x02"
#: Size of a request's id by its first byte (MessagePack's unsigned integers); any other first byte is the whole id.
_ID_BYTES = {0xCC: 2, 0xCD: 3, 0xCE: 5}
#: Arrays, maps, strings and binaries with a four-byte length.
_WIDE = (b"\xdd", b"\xdf", b"\xdb", b"\xc6")

_EXPECTED = "[0, id, method, [params]], [1, id, error, result] or [2, method, [params]]"
_NO_MESSAGE = ErrorBody(ErrorCode.BAD_REQUEST, f"not a MessagePack-RPC message; expected {_EXPECTED}", "frame")

T = TypeVar("T")


class Closed(msgspec.Struct, frozen=True):
    """The stream is unusable; send ``error`` and close."""

    error: ErrorBody


class Malformed(msgspec.Struct, frozen=True):
    """A valid frame that is no valid message. ``reply_to`` is the request's id, if there was one."""

    reply_to: int | None
    error: ErrorBody


class RpcConnection:
    """The protocol state of one connection. Feed it the received bytes; send what its ``send_…`` methods return.

    ``typed`` maps frequent methods to their parameters' types: these are decoded directly from the bytes, and such
    messages carry the typed parameters. All other parameters and results stay bytes (:class:`msgspec.Raw`): parsing an
    untyped array is slow, whereas decoding into a type stops at the first invalid value. :func:`read_params` accepts
    both forms.
    """

    def __init__(self, max_frame_bytes: int = MAX_FRAME_BYTES, typed: Mapping[str, type[Any]] = NO_TYPES) -> None:
        self._max_frame_bytes = max_frame_bytes
        # Exists only while a frame is unfinished: the object takes 24 kB, and its buffer never shrinks.
        self._splitter: msgpack.Unpacker | None = None
        self._pieces: list[bytes] = []  # the received parts of the current frame
        self._fed_bytes = 0
        self._frame_start = 0  # stream offset of the current frame
        self._decoders = _decoders(typed)
        self._next_id = 0
        self._begun = False  # the stream's first byte was that of an array
        self._closed = False

    @property
    def unfinished_bytes(self) -> int:
        """Return the size of the unfinished frame's received part."""
        return self._fed_bytes - self._frame_start

    def receive(self, data: bytes) -> list[Message | Malformed | Closed]:
        """Return the messages that the bytes complete, in order; nothing after a :class:`Closed`."""
        return list(self.messages(data))

    def messages(self, data: bytes) -> Iterator[Message | Malformed | Closed]:
        """As :meth:`receive`, but parse each message lazily. Exhaust the iterator before the next call."""
        message = self.whole_message(data)  # most reads are one frame
        return self.split(data) if message is None else iter((message,))

    def whole_message(self, data: bytes) -> Message | None:
        """Return the message if the bytes are exactly one; otherwise None: use :meth:`split`."""
        if self._splitter is not None or len(data) > self._max_frame_bytes or self._closed:
            return None
        message = self._message(data)
        if message is not None:
            self._begun = True
        return message

    def split(self, data: bytes) -> Iterator[Message | Malformed | Closed]:
        """As :meth:`messages`, for bytes that are not exactly one message."""
        if not self._begun and data and not self._closed:
            if not _is_array(data[0]):
                yield self._close(f"not MessagePack-RPC: the first byte is 0x{data[0]:02x}, not an array's")
                return
            self._begun = True
        if few := self._few_messages(data):
            yield from few
            return
        for start in range(0, 0 if self._closed else len(data), _READ_SLACK_BYTES):
            yield from self._fed(data[start : start + _READ_SLACK_BYTES])
            if self._closed:
                return

    def _few_messages(self, data: bytes) -> list[Message]:
        """Return the messages if the bytes are exactly two or three valid ones; otherwise none."""
        if self._splitter is not None or self._closed or len(data) > min(_FEW_BYTES, self._max_frame_bytes):
            return []
        for count in range(2, _FEW + 1):
            try:
                frames = _FRAMES.decode(bytes((0x90 | count,)) + data)  # as one array of this many
            except _INVALID:
                continue
            messages = [message for frame in frames if (message := self._message(bytes(frame))) is not None]
            return messages if len(messages) == count else []
        return []

    def _message(self, frame: bytes) -> Message | None:
        """Decode one frame; None: it is no message."""
        head = frame[:2]
        try:
            if head == _NOTIFICATION_HEAD:
                decoders = self._decoders.get(frame[2 : 3 + (frame[2] & 0x1F)])
                if decoders is not None:
                    _, method, params = decoders[1].decode(frame)
                    return Notification(method, params[0])
            elif head == _REQUEST_HEAD:
                at = 2 + _ID_BYTES.get(frame[2], 1)
                decoders = self._decoders.get(frame[at : at + 1 + (frame[at] & 0x1F)])
                if decoders is not None:
                    _, request_id, method, params = decoders[0].decode(frame)
                    return Request(request_id, method, params[0])
        except (*_INVALID, IndexError):
            pass
        return _untyped(frame)

    def _fed(self, data: bytes) -> Iterator[Message | Malformed | Closed]:
        import msgpack

        splitter = self._splitter
        if splitter is None:
            most = self._max_frame_bytes + _READ_SLACK_BYTES
            splitter = self._splitter = msgpack.Unpacker(max_buffer_size=most, read_size=min(_SPLITTER_BYTES, most))
            self._fed_bytes = self._frame_start = 0
        before = self._fed_bytes
        self._fed_bytes += len(data)
        splitter.feed(data)
        begin = 0
        while True:
            try:
                splitter.skip()
            except msgpack.OutOfData:
                break
            except (ValueError, TypeError) as error:  # msgpack's own errors are ValueErrors
                yield self._close(f"not MessagePack: {_garbled(error)}")
                return
            after = splitter.tell()
            if after - self._frame_start > self._max_frame_bytes:
                yield self._close(f"frame larger than {self._max_frame_bytes} bytes")
                return
            self._pieces.append(data[begin : after - before])
            begin = after - before
            self._frame_start = after
            frame = b"".join(self._pieces) if len(self._pieces) > 1 else self._pieces[0]
            self._pieces.clear()
            yield self._message(frame) or Malformed(_request_id(frame), _NO_MESSAGE)
        if begin < len(data):
            self._pieces.append(data[begin:])
            if self._too_large():
                yield self._close(f"frame larger than {self._max_frame_bytes} bytes")
        else:
            self._splitter = None

    def _too_large(self) -> bool:
        """Whether the frame's size, or the element count claimed by its head, exceeds the limit."""
        if self._fed_bytes - self._frame_start > self._max_frame_bytes:
            return True
        head = self._pieces[0][:5]
        return head[:1] in _WIDE and len(head) == 5 and int.from_bytes(head[1:], "big") > self._max_frame_bytes

    def _close(self, message: str) -> Closed:
        self._closed = True
        self._splitter = None
        self._pieces.clear()
        self._fed_bytes = self._frame_start = 0
        return Closed(ErrorBody(ErrorCode.BAD_REQUEST, message, "frame"))

    def send_request(self, method: str, params: object = None) -> tuple[int, bytes]:
        """Return a new request's id and bytes. Ids rise by one and wrap at 2³².

        Raises:
            RpcError: it has text that is not UTF-8 or a number of more than 64 bits, or is too large.
        """
        request_id = self._next_id
        self._next_id = (request_id + 1) & 0xFFFFFFFF
        return request_id, self._pack((REQUEST, request_id, method, () if params is None else (params,)))

    def send_response(self, request_id: int, result: object = None) -> bytes:
        """Return the bytes of a response with a result."""
        return self._pack((RESPONSE, request_id, None, result))

    def send_error(self, request_id: int, error: ErrorBody) -> bytes:
        """Return the bytes of a response with an error."""
        return self._pack((RESPONSE, request_id, error, None))

    def send_notification(self, method: str, params: object = None) -> bytes:
        """Return the bytes of a notification."""
        return self._pack((NOTIFICATION, method, () if params is None else (params,)))

    def _pack(self, frame: tuple[object, ...]) -> bytes:
        try:
            packed = _ENCODER.encode(frame)
        except (UnicodeEncodeError, OverflowError, TypeError) as error:
            if frame[0] == RESPONSE:
                raise  # no fault of the caller, who is told of an internal error
            if isinstance(error, UnicodeEncodeError):
                raise bad_request(f"{shown(error.object)} is not UTF-8, as text in messages must be") from None
            if isinstance(error, TypeError):
                raise bad_request(f"{error}; convert it to a plain number or text first") from None
            raise bad_request("a number exceeds the 64 bits that it has in messages; write a smaller one") from None
        if len(packed) > self._max_frame_bytes:
            over = f"a message of {len(packed)} bytes exceeds the frame limit of {self._max_frame_bytes}"
            raise RpcError(ErrorCode.INTERNAL, over, field="frame", remedy="ask for less in one command or request")
        return packed


@functools.cache
def _decoders_of(of: Hashable) -> tuple[Any, Any]:
    """Return the decoders of requests and of notifications with these parameters."""
    requests = msgspec.msgpack.Decoder(tuple[int, Id, str, tuple[of]])  # type: ignore[valid-type]
    return requests, msgspec.msgpack.Decoder(tuple[int, str, tuple[of]])  # type: ignore[valid-type]


def _decoders(typed: Mapping[str, type[Any]]) -> dict[bytes, tuple[Any, Any]]:
    """Return the decoders by encoded method name (at most 31 bytes)."""
    return {
        bytes([0xA0 | len(method)]) + method.encode(): _decoders_of(cast(Hashable, of)) for method, of in typed.items()
    }


def _garbled(error: Exception) -> str:
    """Return the error of a splitter; two of msgpack's have no text."""
    words = {"FormatError": "a byte that begins no value", "StackError": "nested too deeply"}
    return str(error) or words.get(type(error).__name__, type(error).__name__)


def _is_array(first: int) -> bool:
    return first & 0xF0 == 0x90 or first in (0xDC, 0xDD)


def _untyped(frame: bytes) -> Message | None:
    try:
        message = _FRAME.decode(frame)
    except _INVALID:
        return None
    if isinstance(message, Response):
        return Response(message.id, _error(message.error), message.result)
    return message if _is_array(memoryview(message.params)[0]) else None


def _request_id(frame: bytes) -> int | None:
    """Return the id of a request that is no valid one."""
    import msgpack

    head = msgpack.Unpacker()
    head.feed(frame[:16])
    try:
        head.read_array_header()
        kind, request_id = head.unpack(), head.unpack()
    except (ValueError, msgpack.OutOfData):
        return None
    return request_id if (kind, type(kind), type(request_id)) == (REQUEST, int, int) else None


def _error(error: msgspec.Raw) -> ErrorBody | None:
    try:
        return _ERROR.decode(error)
    except _INVALID:  # other servers may send any value as error; keep it as text
        text = f"an error of {len(memoryview(error))} bytes"
    if len(memoryview(error)) <= _SHOWN_BYTES:
        with contextlib.suppress(*_INVALID):
            text = str(msgspec.msgpack.decode(error))
    return ErrorBody(ErrorCode.INTERNAL, text)


def to_wire(value: object) -> Any:
    """Convert structs to maps and enums to strings, for ``msgpack.Packer``."""
    return msgspec.to_builtins(value, builtin_types=_NATIVE)


def read_params(params: Any, of: type[T]) -> T:
    """Return the typed parameters of a method, from the bytes of the array, or already decoded ones.

    Raises:
        RpcError: ``bad_request`` that names the invalid field.
    """
    if type(params) is of:
        return params
    data = memoryview(params)
    length_bytes = {0xDC: 2, 0xDD: 4}.get(data[0], 0)
    count = int.from_bytes(data[1 : 1 + length_bytes], "big") if length_bytes else data[0] & 0x0F
    if count > 1:
        raise bad_request(f"expected one map of named parameters, got {count} values", field="params")
    return read(msgspec.Raw(data[1 + length_bytes :]) if count else {}, of)


@functools.cache
def _decoder(of: Hashable) -> Any:
    return msgspec.msgpack.Decoder(of)


def read(value: object, of: type[T]) -> T:
    """Return a typed value from maps and lists, or from its bytes (:class:`msgspec.Raw`).

    Raises:
        RpcError: ``bad_request`` that names the invalid field.
    """
    try:
        if not isinstance(value, msgspec.Raw):
            return msgspec.convert(value, of, builtin_types=_NATIVE)
        most, size = getattr(of, "MOST_BYTES", LINK_FRAME_BYTES), len(memoryview(value))
        if size > most:
            raise bad_request(f"{size} bytes; there may be {most} of them", field="params")
        return cast(T, _decoder(cast(Hashable, of)).decode(value))
    except RecursionError:
        raise bad_request("nested too deeply", field="params") from None
    except msgspec.ValidationError as error:
        from penstock.model.decode_errors import explained  # only errors need it

        field, wrong = explained(error, of)
        if not field and " key '" in wrong:  # a missing or unknown field
            field = wrong.split("'")[1]
        raise bad_request(wrong, field=field or "params") from None
    except msgspec.DecodeError as error:
        raise bad_request(f"not MessagePack: {error}", field="params") from None
