"""The numbers of a queue, for the status document."""

from __future__ import annotations

from penstock.documents import Document, Histogram


class QueueHead(Document, frozen=True, kw_only=True):
    """The job whose turn is next, the task of its first monotask, and how long it has waited: since its last grant, or
    since it began to wait. ``held_by`` has held a slot of this kind for longest, for ``held_s``; "": none is held.
    """

    job: str
    task: str
    waits_s: float
    held_by: str = ""
    held_s: float = 0.0


class QueueCounts(Document, frozen=True, kw_only=True):
    """The queue of one kind (Ursa §4.2.3).

    ``withheld`` of the ``slots`` are not granted, because their cores are promised (docs/limits.md). Monotasks hold a
    slot (``running``), share one (``sharing``: small ones of a disk that run together), bypass the queue
    (``bypassing``: small ones of the network), run on after their slot was taken back (``overdue``) or wait
    (``queued``).
    ``pending_bytes`` is the work not done, ``rate_bytes_per_s`` the processing rate X/T, 0 while unknown. Since the
    start of the agent: ``slot_seconds`` of monotasks that ended, ``taken_back`` slots that were held too long, and
    ``granted`` slots, without those held over its restart or taken by a promotion. ``waits``: how long the granted
    monotasks had waited. ``head`` null: no job waits.
    """

    slots: int
    withheld: int
    running: int
    sharing: int
    bypassing: int
    overdue: int
    taken_back: int
    queued: int
    pending_bytes: int
    rate_bytes_per_s: float
    slot_seconds: float
    granted: int
    waits: Histogram
    head: QueueHead | None
