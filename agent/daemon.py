"""The agent's process: assembles the parts, runs until told to stop, and takes over the work of an earlier agent."""

from __future__ import annotations

import asyncio
import errno
import gc
import os
import secrets
import signal
import time
from functools import partial
from pathlib import Path
from typing import Any

import structlog
import uvloop

from agent import cgroup_root, disk_scheduler, last_report, not_enforced, previous_agent, process
from agent.cgroups import CgroupTree, blk_throttle_workaround, limited_disks, whole_disks
from agent.check.facts import Fact, enforcement
from agent.check.facts import Host as CheckedHost
from agent.config import AgentConfig
from agent.core import Node
from agent.core import events as e
from agent.core.records import ContainerState
from agent.executor import Executor
from agent.frameworks import Frameworks
from agent.http import status_site
from agent.http_documents import LinkStatus, Status
from agent.journal import Journal
from agent.jvm import JvmHeaps
from agent.launcher import Exited, Launcher, LauncherGone
from agent.launcher_supervisor import LauncherSupervisor
from agent.limit_enforcer import LimitEnforcer
from agent.master_link import MasterLink
from agent.monitor import HostMonitor, MemoryWatch, Sampler
from agent.network import NetworkLimiter, links_out
from agent.nice import can_rank
from agent.output import remove_outputs
from agent.periodic import Periodic
from agent.shell import Shell
from agent.status import status_document
from agent.stdio import Stdio
from penstock import paths, sdnotify
from penstock.config.endpoint import endpoint
from penstock.config.live_config import LiveConfig
from penstock.config.settings import SettingsError, host_port
from penstock.daemon import StartError, write_port_file
from penstock.model import Capacity
from penstock.security import doors
from penstock.security.certificates import CertificateWatch
from penstock.security.http_access import HttpAccess, access_of
from penstock.trouble import Troubles

log = structlog.get_logger()


def run(live_config: LiveConfig[AgentConfig], port_file: Path | None = None) -> None:
    """Run until SIGTERM or SIGINT.

    Raises:
        StartError: a required directory, socket or port is unavailable.
    """
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_main(live_config, port_file))


async def _main(live_config: LiveConfig[AgentConfig], port_file: Path | None) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for signum in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(signum, stop.set)
    live_config.listen()
    agent = Agent(live_config)
    try:
        try:
            await agent.start()
        except (OSError, ValueError, SettingsError) as error:
            raise StartError(str(error)) from error
        if port_file is not None:
            write_port_file(port_file, agent.addresses())
        await agent.serve(stop)
    finally:
        sdnotify.notify("STOPPING=1")
        await agent.close()


class Agent:
    """One agent, with :meth:`start`, :meth:`serve` and :meth:`close`."""

    def __init__(self, live_config: LiveConfig[AgentConfig]) -> None:
        self._live_config, self._config = live_config, live_config.current
        live_config.apply = self.reconfigure
        self._certificates = CertificateWatch(doors.shown_by(self._config))
        live_config.also += [self._certificates.look, self._check_certificates]
        self._started_at = time.time()
        self._outputs = self._config.state() / "outputs"
        self._exits: list[Exited] = []
        self._taken_back = self._stopping = False
        self._launcher_supervisor: LauncherSupervisor
        self._tree: CgroupTree | None = None
        self._shell: Shell
        self._executor: Executor
        self._frameworks: Frameworks
        self._sampler: Sampler
        self._stdio: Stdio
        self._link: MasterLink | None = None
        self._limit_enforcer: LimitEnforcer
        self._watch: MemoryWatch | None = None
        self._heaps: JvmHeaps
        self._enforcement: dict[str, Fact] = {}
        self._closers: list[Any] = []
        self._troubles = Troubles()

    # ------------------------------------------------------------ start

    async def start(self) -> None:
        """Start all parts, in the order of their dependencies.

        Raises:
            OSError: a required directory, socket or port is unavailable.
        """
        config = self._config
        access = access_of(config)
        paths.make_configured("runtime_dir", config.runtime(), 0o755)
        paths.make_configured("state_dir", config.state())
        before_at = process.lock(config.state(), config.runtime(), config.socket_path())
        self._outputs.mkdir(mode=0o700, exist_ok=True)
        instance = secrets.token_hex(4)
        disks = whole_disks()
        kept = disk_scheduler.kept(config.state())
        for disk, why in disk_scheduler.choose(config.disk_scheduler, [disk.name for disk in disks], kept).items():
            log.warning("disk scheduler not changed", disk=disk, why=why)
        journal = self._open_journal(config, before_at)
        self._launcher_supervisor = LauncherSupervisor(
            config, journal, instance, self._troubles, self._launcher_exited, self._launcher_lost
        )  # fmt: skip
        launcher = await self._launcher_supervisor.connect()
        self._closers.append(self._launcher_supervisor.close)
        self._tree = self._prepare_tree(launcher.cgroup_root)
        seen = CheckedHost(links=partial(links_out, config.network_link_bytes_per_s))
        self._enforcement = enforcement(self._tree, seen)
        network = self._limit_network()
        # 0: the rate of one of them is unknown
        link = min((each.rate_bytes_per_s for each in seen.links()), default=0) if network is not None else 0
        node = self._new_node(config, instance, len(disks), link)
        self._stdio = Stdio(config.socket_path().with_name("stdio.sock"))
        self._closers.append(self._stdio.close)
        self._limit_enforcer = LimitEnforcer(
            self._tree,
            network,
            lambda *confined: self._shell.dispatch(e.Confined(*confined)),
            holds_disks=blk_throttle_workaround.needed(os.uname().release),
            pids_max=lambda: self._config.container_pids_max,
        )
        self._executor = Executor(launcher, self._tree, self._limit_enforcer, self._stdio, self._outputs)
        self._shell = Shell(node, journal, self._executor)
        self._heaps = JvmHeaps(self._tree, self._shell.note, config.jvm_heap_share)
        self._closers.append(self._heaps.close)
        self._sampler = Sampler(self._tree, HostMonitor([disk.name for disk in disks], config.network_link_bytes_per_s))
        if self._tree is not None:
            self._watch_over(self._tree, node.settings.capacity)
        if config.master:
            self._link = self._link_to_master(config, node.settings.node, journal)
        await self._take_back(journal, launcher)
        await self._open_site(node, access)
        enforced = sorted(name for name, fact in self._enforcement.items() if fact.ok)
        self._frameworks = Frameworks(
            self._shell, self._executor, status=self.status, outputs=self._outputs, enforced=enforced,
            max_frame_bytes=config.max_frame_bytes, operators=config.operators,
            connections=lambda: self._config.user_max_connections, live_config=self._live_config,
            containers_go_on=not config.spawn_launcher,
        )  # fmt: skip
        await self._frameworks.listen(config.socket_path())
        self._closers.append(self._frameworks.close)
        log.info("agent started", node=node.settings.node, socket=str(config.socket_path()), http=self._site.address)

    def _new_node(self, config: AgentConfig, instance: str, disks: int, link_bytes_per_s: int) -> Node:
        # Without a tree, the use of containers is unknown.
        ranked = self._tree is not None and can_rank(self._tree.controllers)
        return Node(
            config.node_settings(instance=instance, disks=disks, link_bytes_per_s=link_bytes_per_s, ranked=ranked)
        )

    async def _open_site(self, node: Node, access: HttpAccess) -> None:
        http = self._config.http
        self._site = status_site(self.status, lambda: node.slack.by_resource(node.ledger()))
        self._closers.append(self._site.close)
        try:
            await self._site.listen_when_free(*host_port(http, "http"), access, self._troubles)
        except OSError as error:
            raise StartError(f"http: cannot listen on {http}: {error.strerror or error}") from error

    def _link_to_master(self, config: AgentConfig, name: str, journal: Journal) -> MasterLink:
        master = endpoint(config.master, "master")
        contexts = doors.contexts(config, "master", master, name)
        return MasterLink(self._shell, master, journal, contexts, config.master_name)

    def _prepare_tree(self, root: Path | None) -> CgroupTree | None:
        if root is None:
            log.warning("no cgroup v2 tree: limits are not enforced", remedy="penstock check")
            return None
        process.raise_descriptors()
        tree = CgroupTree(root, limited_disks(), owns_root=not cgroup_root.is_delegated(root))
        tree.prepare()
        return tree

    def _watch_over(self, tree: CgroupTree, capacity: Capacity) -> None:
        """Limit all containers together to the node's capacity, and watch their memory."""
        cores = capacity.cores if capacity.cores < (os.cpu_count() or 1) else None
        pids = process.pids_for_containers()
        capped = self._limit_enforcer.parent.cap(memory_bytes=capacity.memory_bytes, cores=cores, pids=pids)
        not_enforced.warn(tree.missing, capped)
        above_bytes = self._memory_worth_a_look(capacity)
        self._watch = MemoryWatch(tree, self._config.memory_look_interval_s, above_bytes, self._look)
        self._shell.watch_memory = self._watch.switch
        self._closers.append(self._watch.close)

    def _limit_network(self) -> NetworkLimiter | None:
        if (network := self._enforcement.get("network")) is None or not network.ok:
            return None
        limiter = NetworkLimiter(link_bytes_per_s=self._config.network_link_bytes_per_s)
        self._closers.append(limiter.close)
        return limiter

    def _look(self, pressed: tuple[str, ...]) -> bool:
        """Check memory between two samples; return whether anything was done about it."""
        node = self._shell.node
        before = node.preemption.acts.total()
        snapshot = self._sampler.look(list(node.containers.live))
        self._shell.dispatch(e.MemoryChecked(snapshot, pressed, time.time()))
        return node.preemption.acts.total() > before

    def _launcher_exited(self, exited: Exited) -> None:
        """Report an exit; those that come before the journal has been read are kept until then."""
        if self._taken_back:
            self._executor.exited(exited)
        else:
            self._exits.append(exited)

    def _launcher_lost(self) -> None:
        """Start another launcher for new work, or let the service manager restart it and the agent."""
        if not self._taken_back:
            log.critical("the launcher is gone; stopping so that the agent is restarted")
            signal.raise_signal(signal.SIGTERM)
            return
        log.critical("the launcher is gone: its containers continue within their limits, without exit statuses")
        self._executor.launcher_lost()
        self._shell.dispatch(e.LauncherLost())
        if self._stopping:
            self._executor.give_up()
        elif self._config.spawn_launcher:
            self._launcher_supervisor.replace(self._use)
        else:
            signal.raise_signal(signal.SIGTERM)

    def _use(self, launcher: Launcher) -> None:
        """Use another launcher, after systemd may have removed the scope of the former one with the tree in it."""
        try:
            if self._tree is not None and (repaired := self._tree.repair()):
                log.warning("the containers' cgroups were repaired", repaired=repaired)
        except OSError as error:  # each start says so, too
            log.error("the containers' cgroups cannot be made again", why=str(error))
        self._executor.use(launcher)

    def _open_journal(self, config: AgentConfig, before_at: float | None) -> Journal:
        directory = config.state() / "journal"
        try:
            journal = Journal(directory)
            journal.start()
        except OSError as error:
            why = error.strerror or error
            remedy = "make room there, or set another" if error.errno in (errno.ENOSPC, errno.EDQUOT) else "set another"
            raise StartError(f"state_dir: no journal in {directory}: {why}; {remedy}") from error
        self._closers.append(journal.close)
        last_report.take_over(journal, before_at)
        return journal

    async def _take_back(self, journal: Journal, launcher: Launcher) -> None:
        """Take over the work in the journal that, by the launcher or the cgroups, still runs."""
        try:
            runs = await launcher.running()
        except LauncherGone:
            raise StartError("the launcher died while the agent was starting; start the agent again") from None
        exits = frozenset(exited.container for exited in self._exits)
        same = self._launcher_supervisor.same_as_before(launcher)
        recovered = previous_agent.recovered_state(journal, runs, exits, self._tree, same_launcher=same)
        await self._limit_enforcer.take_back(previous_agent.confinements(recovered.containers, recovered.running))
        live = {record.container for record in recovered.containers if record.ended is None}
        removed_by_core = live | recovered.running.keys() | exits
        self._shell.dispatch(recovered)
        self._launcher_supervisor.settled(launcher, self._tree.root if self._tree is not None else None)
        self._taken_back = True
        for exited in self._exits:
            self._executor.exited(exited)
        for stray in set(self._tree.existing()) - removed_by_core if self._tree is not None else ():
            self._executor.kill(stray)
            self._executor.remove(stray)
        kept = self._shell.node.containers
        remove_outputs(self._outputs, kept.live.keys() | kept.ended.by_id.keys())

    # ------------------------------------------------------------ serve

    async def serve(self, stop: asyncio.Event) -> None:
        """Sample, watch and report until told to stop."""
        gc.collect()
        gc.freeze()  # objects from start-up stay: garbage collection skips them from now on
        sdnotify.notify("READY=1")
        works = [self._periodic().run(), self._live_config.run(), self._certificates.run()]
        if self._watch is not None:
            works.append(self._watch.run())
        if self._link is not None:
            works.append(self._link.run())
        if (watchdog_s := sdnotify.watchdog_interval_s()) is not None:
            works.append(process.watchdog(watchdog_s))
        async with asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(work) for work in works]
            await stop.wait()
            log.info("agent stops")
            self._shell.report_last()
            for task in running:
                task.cancel()

    def reconfigure(self, config: AgentConfig) -> None:
        """Apply settings that can change while the agent runs."""
        self._config, before = config, self._shell.node.settings
        slots = before.capacity.disk_slots
        self._shell.dispatch(e.Reconfigured(config.node_settings(instance=before.instance, disks=slots), time.time()))
        if self._watch is not None:
            self._watch.reconfigure(config.memory_look_interval_s, self._memory_worth_a_look(before.capacity))

    def _check_certificates(self) -> None:
        if self._link is not None:
            self._link.check_certificates()

    def _memory_worth_a_look(self, capacity: Capacity) -> float:
        return self._config.t_preempt_memory * capacity.memory_bytes

    def _periodic(self) -> Periodic:
        return Periodic(
            self._shell, self._executor, self._sampler, self._limit_enforcer, self._heaps, self._watch, self._outputs,
            lambda: self._config, self._troubles, self._site.resources_changed,
        )  # fmt: skip

    def status(self) -> Status:
        """Return the status document."""
        link = self._link
        master = LinkStatus(address=link.address if link else "", linked=link.linked if link else False)
        return status_document(
            self._shell.node,
            started_at=self._started_at,
            enforcement=self._enforcement,
            master=master,
            events=self._shell.events,
            configuration=self._live_config.by_hand(),
            certificates=self._certificates.rows(),
            journal_writes=self._shell.journal_writes,
            degraded=self._troubles.rows(),
        )

    def addresses(self) -> dict[str, str]:
        """Return the addresses for a caller that started the agent with port 0."""
        return {"http": self._site.address, "socket": str(self._config.socket_path())}

    async def close(self) -> None:
        """Close everything; containers continue under the launcher. An unused launcher of the agent's ends too."""
        self._stopping = True
        if hasattr(self, "_frameworks"):
            await self._launcher_supervisor.stop_replacing()
            self._frameworks.close()
            if self._launcher_supervisor.launcher is None:
                self._executor.give_up()
            await self._wait_for_killed()
            await self._executor.settle()
            await self._launcher_supervisor.release(unused=not self._shell.node.containers.live)
        elif hasattr(self, "_launcher_supervisor") and not self._exits:
            await self._launcher_supervisor.release_idle()
        if self._taken_back:  # also where the start failed later; containers have ended since the last report
            self._shell.record_service()
        for closer in reversed(self._closers):
            closing = closer()
            if asyncio.iscoroutine(closing):
                await closing

    async def _wait_for_killed(self) -> None:
        """Wait for containers that are being killed; the launcher ends with the agent only after that."""
        deadline = time.monotonic() + 5.0
        node, going = self._shell.node, {ContainerState.STOPPING}
        if self._launcher_supervisor.launcher is not None:
            going.add(ContainerState.STARTING)
        # A poll, once, at the end, for milliseconds: not worth an event.
        while self._shell.peers or any(record.state in going for record in node.containers.live.values()):
            if time.monotonic() > deadline:
                return
            await asyncio.sleep(0.01)
            self._executor.look_at_orphans()
