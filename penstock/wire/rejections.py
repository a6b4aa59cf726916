"""PURE. The answer to a refused ``submit`` that was sent as a notification: its client waits for the monotasks."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from penstock.model.container import MOST_AT_ONCE
from penstock.model.work import MonotaskId
from penstock.wire.agent_api import Rejected, Submit
from penstock.wire.connection import read_params
from penstock.wire.errors import RpcError


def rejection(asked: Submit, error: RpcError) -> Rejected:
    """Return the rejection of a submission that was decoded: it names all its monotasks."""
    return Rejected(job=asked.job, ids=[spec.id for spec in asked.monotasks], error=error.body)


def rejection_of_raw(params: Any, error: RpcError) -> Rejected | None:
    """Return the rejection of a submission that was not decoded; it names the monotasks whose ids can be read.

    Returns:
        None if the job cannot be read: a client with several jobs could not tell to which one the monotasks belong.
    """
    try:
        job = read_params(params, _Job).job
    except RpcError:
        return None
    try:
        monotasks = read_params(params, _Monotasks).monotasks
    except RpcError:
        monotasks = []
    ids = [one for each in monotasks if (one := _id(each)) is not None]
    return Rejected(job=job, ids=ids, error=error.body)


class _Job(msgspec.Struct):
    job: str


class _Monotasks(msgspec.Struct):
    monotasks: Annotated[list[msgspec.Raw], msgspec.Meta(max_length=MOST_AT_ONCE)]


class _Identified(msgspec.Struct):
    id: MonotaskId


_IDENTIFIED = msgspec.msgpack.Decoder(_Identified)


def _id(monotask: msgspec.Raw) -> MonotaskId | None:
    try:
        return _IDENTIFIED.decode(monotask).id
    except msgspec.DecodeError:
        return None
