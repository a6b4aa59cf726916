"""The master's process: assembles the parts and runs until it is stopped."""

from __future__ import annotations

import asyncio
import gc
import os
import random
import secrets
import signal
import time
from dataclasses import replace
from pathlib import Path

import structlog
import uvloop
from prometheus_client import CollectorRegistry

from master.config import MasterConfig
from master.core import Cluster
from master.core.resource_totals import resources
from master.explain.recording import record
from master.forecaster import Forecaster
from master.http import status_site
from master.http_documents import Status
from master.http_reservations import ReservationSite
from master.overview import Overview
from master.profiles import Profiles
from master.reservation_service import ReservationService
from master.reservations.reservation_manager import ReservationManager
from master.service import MasterService
from master.state_writer import StateWriter
from master.status import status_document
from master.store.database import Database, StoreError, file_of
from master.store.reservations import ReservationStore
from master.training import models
from penstock import __version__, paths, sdnotify
from penstock.config.endpoint import endpoint
from penstock.config.live_config import LiveConfig
from penstock.config.settings import Loaded, SettingsError, host_port
from penstock.daemon import StartError, write_port_file
from penstock.locking import AlreadyOwnedError, claim
from penstock.security import doors, tls
from penstock.security.certificates import CertificateWatch
from penstock.security.http_access import access_of
from penstock.trouble import Troubles

log = structlog.get_logger()


def run(live_config: LiveConfig[MasterConfig], port_file: Path | None = None) -> None:
    """Run until SIGTERM or SIGINT.

    Raises: StartError: a required port is not available.
    """
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_main(live_config, port_file))


async def _main(live_config: LiveConfig[MasterConfig], port_file: Path | None) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for signum in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(signum, stop.set)
    live_config.listen()
    master = Master(live_config.current, live_config)
    try:
        await master.start()
        if port_file is not None:
            write_port_file(port_file, {"listen": master.service.address, "http": master.site.address})
        beside = [loop.create_task(live_config.run()), loop.create_task(master.certificates.run())]
        await master.serve(stop)
        for task in beside:
            task.cancel()
    finally:
        sdnotify.notify("STOPPING=1")
        await master.close()


class Master:
    """One master; :meth:`start`, :meth:`serve`, :meth:`close`.

    It stores no unfinished work: the agents know all of it. The store contains reservations, executors' use, drains,
    and how jobs ended.
    """

    def __init__(self, config: MasterConfig, live_config: LiveConfig[MasterConfig] | None = None) -> None:
        """``live_config`` is the source of ``config`` and its changes; without it the configuration is never read
        again.
        """
        self._config = config
        self._live_config = live_config or LiveConfig(Loaded(config, {}), lambda: Loaded(config, {}))
        self._live_config.apply = self.reconfigure
        self.certificates = CertificateWatch(doors.shown_by(config))
        self._started_at = time.time()
        registry = CollectorRegistry()
        self.service = MasterService(Cluster(config.cluster_settings(), random.random), registry)
        self.forecaster = Forecaster(config.database(), config.forecast_settings(), self.service.dispatch)
        self.service.forecaster = self.forecaster
        self.service.state_writer = self.state_writer = StateWriter(config.database())
        self.service.live_config = self._live_config
        self._live_config.also += [self.certificates.look, self.service.check_certificates]
        self.service.overview = Overview(self.status)
        self.reservation_service: ReservationService | None = None
        self._store_lock = -1
        self._troubles = Troubles()
        #: The models at the start: to look for their libraries takes a descriptor, and a master may have none left.
        self._models = models()
        reservations = ReservationSite(
            lambda: self.reservation_service.manager if self.reservation_service is not None else None,
            self.service.on_behalf,
        )
        pages = [*Profiles(self.forecaster).routes(), *reservations.routes()]
        cluster = self.service.cluster
        self.site = status_site(
            self.status, lambda: resources(cluster.nodes.values()), self.service.explainer,
            lambda: record(cluster, time.monotonic()), registry, pages,
        )  # fmt: skip

    async def start(self) -> None:
        """Open both ports, and restore reservations and stored state.

        Raises: StartError: a port is not available, its certificate is unusable, or another master uses the store.
        """
        self._own_store()
        try:
            place = endpoint(self._config.listen, "listen")
            self.service.contexts = doors.contexts(self._config, "listen", place)
            access = access_of(self._config)
        except (SettingsError, tls.TlsError) as error:
            raise StartError(str(error)) from None
        await self._take_reservations()
        self.service.dispatch(await self.state_writer.start())
        try:
            await self.service.listen(place)
        except OSError as error:
            raise StartError(f"listen: cannot listen on {place}: {error.strerror or error}") from error
        try:
            await self.site.listen_when_free(*host_port(self._config.http, "http"), access, self._troubles)
        except OSError as error:
            raise StartError(f"http: cannot listen on {self._config.http}: {error.strerror or error}") from error
        log.info("master started", listen=self.service.address, http=self.site.address, version=__version__)
        for model, why_not in self._models.items():
            if why_not:
                log.warning("forecasts are made without a model", model=model, reason=why_not)

    def _own_store(self) -> None:
        """Lock the store's file: two masters would each list and change the other one's reservations.

        A missing directory does not prevent the start; it is logged when the store is opened.
        """
        file = file_of(self._config.database())
        if file is None:
            return
        try:
            if not self._config.store:  # a directory named in the configuration exists, or is a mistake
                paths.make_private(paths.service_state_dir())
            file = file.resolve()
            self._store_lock = claim(
                file.with_name(f"{file.name}.lock"),
                f"another master uses {file}; stop it, or set `store` to another file",
            )
        except AlreadyOwnedError as error:
            raise StartError(f"store: {error}") from None
        except OSError as error:
            log.warning("the store is not locked", why=str(error))

    async def _take_reservations(self) -> None:
        """Restore the reservations before any request is accepted."""
        try:
            if not self._config.store:
                paths.make_private(paths.service_state_dir())
            store = ReservationStore(await asyncio.to_thread(Database, self._config.database()))
            reservation_service = ReservationService(
                ReservationManager(self._config.reservation_settings()),
                store,
                self.service.cluster,
                lead_s=self._config.reservation_lead_s,
                fresh_id=lambda: f"r-{secrets.token_hex(4)}",
                wake=self.service.wake,
            )
            await reservation_service.start()
        except (StoreError, OSError) as error:  # the existing reservations are unknown, so no new ones may be accepted
            log.error("no reservations are taken until the master is restarted", why=str(error))
            return
        self.reservation_service = reservation_service
        self.service.reservations = reservation_service.call

    async def serve(self, stop: asyncio.Event) -> None:
        """Serve until ``stop`` is set; notify the service manager's watchdog."""
        gc.collect()
        gc.freeze()  # objects from start-up stay: garbage collection skips them from now on
        sdnotify.notify("READY=1")
        watchdog_s = sdnotify.watchdog_interval_s()
        while not stop.is_set():
            try:
                async with asyncio.timeout(watchdog_s / 2 if watchdog_s else None):
                    await stop.wait()
            except TimeoutError:
                sdnotify.notify("WATCHDOG=1")
        log.info("master stops")

    def reconfigure(self, config: MasterConfig) -> None:
        """Apply new settings, as far as a running master can change them."""
        self._config = config
        self.service.reconfigure(config.cluster_settings())
        if self.reservation_service is not None:
            manager, now = self.reservation_service.manager, config.reservation_settings()
            manager.settings = replace(manager.settings, bundles=now.bundles, tenants=now.tenants)

    async def close(self) -> None:
        """Close both ports."""
        await self.site.close()
        await self.service.close()
        await self.forecaster.close()
        await self.state_writer.close()
        if self.reservation_service is not None:
            await self.reservation_service.close()
        if self._store_lock >= 0:
            os.close(self._store_lock)
            self._store_lock = -1

    def status(self) -> Status:
        """Return the document of ``GET /status``."""
        return status_document(
            self.service.cluster,
            time.monotonic(),
            started_at=self._started_at,
            listen=self.service.address,
            http=self.site.address,
            configuration=self._live_config.by_hand(),
            certificates=self.certificates.rows(),
            degraded=self._troubles.rows(),
            reservations=self.reservation_service.counts if self.reservation_service is not None else {},
            models=self._models,
        )
