"""The state that a master stores for the next one."""

from __future__ import annotations

from master.core.drains import Drains
from master.core.events import StateRestored
from master.core.finished_jobs import FinishedJobs
from master.core.history import History
from master.core.instructions import Keep
from master.core.order import HandOrders
from master.ordering import JobSizes
from master.placement.lengths import TaskLengths


class StoredState:
    """The requests of operators and users, the finished jobs, and sizes and lengths learnt from jobs and tasks."""

    def __init__(self) -> None:
        self.drains = Drains()
        self.hand_orders = HandOrders()
        self.past = FinishedJobs()
        self.sizes = JobSizes()
        self.history = History()
        self.task_lengths = TaskLengths()

    def restore(self, event: StateRestored) -> None:
        """Restore the state stored by the previous master."""
        self.drains.restore(event.drains)
        self.hand_orders.restore(event.orders)
        self.past.restore(event.jobs)
        self.sizes.restore(event.sizes)
        for view in [past.view for past in event.jobs] if not event.sizes else ():  # stored by a master without sizes
            if view.outcome in {"succeeded", "failed"}:
                self.sizes.learn(view.user, view.name, view.service_container_s)
        self.history.restore(event.needed)
        self.task_lengths.restore(event.lengths)

    def take_changes(self) -> Keep | None:
        """Return the changes to be stored since the last call; None: there are none, as after most events."""
        lengths = self.task_lengths.take_changes()
        changed = self.drains.unstored or self.hand_orders.unstored or self.past.unstored
        if not (changed or self.sizes.unstored or self.history.unstored or lengths):
            return None
        return Keep(
            self.drains.unstored.take(), self.past.unstored.take(), self.sizes.unstored.take(),
            self.hand_orders.unstored.take(), self.history.unstored.take(), lengths,
        )  # fmt: skip
