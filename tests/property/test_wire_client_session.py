"""The client's session of monotasks, against a model of the agent that may die at any moment."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from penstock.client.monotask_session import MonotaskSession, SessionMonotask
from penstock.model.resources import ResourceKind


class SessionMachine(RuleBasedStateMachine):
    """``agent_queued`` and ``agent_running`` are the agent's state; messages travel in order, with delay."""

    def __init__(self) -> None:
        super().__init__()
        self.session: MonotaskSession[SessionMonotask] = MonotaskSession()
        self.monotasks: dict[int, SessionMonotask] = {}
        self.linked = False
        self.to_agent: list[tuple[str, object]] = []
        self.to_client: list[int] = []
        self.agent_queued: list[int] = []
        self.agent_running: set[int] = set()
        self.submitted: set[int] = set()
        self.granted: set[int] = set()
        self.ended: dict[int, str] = {}

    def live(self) -> list[int]:
        return sorted(self.submitted - set(self.ended))

    def finish(self, one: int, how: str) -> None:
        assert one not in self.ended
        self.ended[one] = how

    @initialize()
    def connect_first(self) -> None:
        self.connect()

    @rule(kind=st.sampled_from(ResourceKind), size=st.integers(0, 100))
    def submit(self, kind: ResourceKind, size: int) -> None:
        one = SessionMonotask(kind, size)
        self.session.submit(one)
        assert one.id not in self.submitted
        self.submitted.add(one.id)
        self.monotasks[one.id] = one

    @precondition(lambda self: self.granted - set(self.ended))
    @rule(data=st.data(), failed=st.booleans())
    def complete(self, data: st.DataObject, failed: bool) -> None:
        one = data.draw(st.sampled_from(sorted(self.granted - set(self.ended))))
        assert self.session.complete(self.monotasks[one], failed=failed) is None
        self.finish(one, "done")
        assert not self.session.cancel(self.monotasks[one])

    @precondition(lambda self: self.live())
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        one = data.draw(st.sampled_from(self.live()))
        assert self.session.cancel(self.monotasks[one])
        self.finish(one, "cancelled")

    @rule()
    def flush(self) -> None:
        out = self.session.take()
        assert self.linked or not (out.submit or out.complete or out.cancel)
        for spec in out.submit:
            assert spec.running == (spec.id in self.granted)
        if out.submit:
            self.to_agent.append(("submit", out.submit))
        if out.complete:
            self.to_agent.append(("complete", out.complete))
        if out.cancel:
            self.to_agent.append(("cancel", out.cancel))

    @precondition(lambda self: self.to_agent)
    @rule(refuse=st.booleans())
    def agent_reads(self, refuse: bool) -> None:
        method, body = self.to_agent.pop(0)
        known = set(self.agent_queued) | self.agent_running
        if method == "submit":
            ids = [spec.id for spec in body]
            assert not known & set(ids), "submitted twice on one connection"
            if refuse and not any(spec.running for spec in body):
                for refused in self.session.refuse(ids):
                    self.finish(refused.id, "refused")
                return
            self.agent_running |= {spec.id for spec in body if spec.running}
            self.agent_queued += [spec.id for spec in body if not spec.running]
        elif method == "complete":
            for completion in body:
                self.agent_running.remove(completion.id)  # it must have been running there
        else:
            for one in body:
                self.agent_running.discard(one)
                if one in self.agent_queued:
                    self.agent_queued.remove(one)

    @precondition(lambda self: self.agent_queued)
    @rule(twice=st.booleans())
    def agent_grants(self, twice: bool) -> None:
        one = self.agent_queued.pop(0)
        self.agent_running.add(one)
        self.to_client += [one, one] if twice else [one]

    @precondition(lambda self: self.to_client)
    @rule()
    def client_reads(self) -> None:
        one = self.to_client.pop(0)
        for granted in self.session.grant([one]):
            assert granted.id not in self.granted, "granted twice"
            assert granted.id not in self.ended, "granted after its end"
            self.granted.add(granted.id)

    @precondition(lambda self: self.linked)
    @rule()
    def all_messages_arrive(self) -> None:
        """And everything that may run is granted, so that a short run gets far."""
        self.flush()
        while self.to_agent:
            self.agent_reads(refuse=False)
        while self.agent_queued:
            self.agent_grants(twice=False)
        while self.to_client:
            self.client_reads()

    @precondition(lambda self: self.linked)
    @rule()
    def agent_dies(self) -> None:
        self.linked = False
        self.to_agent.clear()
        self.to_client.clear()
        self.agent_queued.clear()
        self.agent_running.clear()
        self.session.unlink()

    @precondition(lambda self: not self.linked)
    @rule()
    def connect(self) -> None:
        self.linked = True
        self.session.link()

    @invariant()
    def exactly_those_live_that_have_not_ended(self) -> None:
        assert len(self.session) == len(self.live())

    def teardown(self) -> None:
        """When all messages have arrived, client and agent agree on everything."""
        if not self.linked:
            self.connect()
        for _ in range(3):
            self.flush()
            while self.to_agent:
                self.agent_reads(refuse=False)
            while self.to_client:
                self.client_reads()
        assert sorted([*self.agent_queued, *self.agent_running]) == self.live()
        assert self.agent_running == self.granted - set(self.ended)
        assert {one.id for one in self.session.clear()} == set(self.live()) - self.granted
        assert len(self.session) == 0


SessionMachine.TestCase.settings = settings(max_examples=35, stateful_step_count=40)
TestSession = SessionMachine.TestCase
