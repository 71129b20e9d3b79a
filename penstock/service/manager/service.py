"""Everything that the routes use, put together."""

from __future__ import annotations

from fastapi import Request

from penstock.service.manager.compiler import Compiler
from penstock.service.manager.database import Database
from penstock.service.manager.health import Health
from penstock.service.manager.keys import ApiKeys
from penstock.service.manager.logs import Logs
from penstock.service.manager.pipelines import Pipelines
from penstock.service.manager.proxy import Proxy
from penstock.service.manager.reconcile import Reconciler
from penstock.service.manager.replicas import Replicas
from penstock.service.manager.runner_client import RunnerClient
from penstock.service.manager.runners import Runners
from penstock.service.manager.settings import Settings
from penstock.service.manager.spares import Spares
from penstock.service.manager.supervisor import Say, Supervisor


class Service:
    """The parts of a manager; nothing runs before `start`."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.database = Database(settings.database_url)
        self.database.hold()
        self.database.open()
        self.keys = ApiKeys(self.database)
        self.pipelines = Pipelines(self.database)
        self.runners = Runners(self.database, settings)
        self.client = RunnerClient()
        self.spares = Spares(self.runners, self.client, settings.spares, settings.spare_workers)
        self.logs = Logs(settings.pipelines)
        self.compiler = Compiler(self.pipelines, self.spares, self.client)
        self.replicas = Replicas(settings, self.pipelines, self.runners, self.spares, self.client, self.logs)
        self.reconciler = Reconciler(
            settings, self.pipelines, self.runners, self.replicas, self.client, self.logs
        )
        self.supervisor = Supervisor(
            settings,
            self.pipelines,
            self.runners,
            self.spares,
            self.client,
            self.reconciler,
            self.replicas,
            self.compiler,
        )
        self.health = Health(self.database, self.spares, self.supervisor)
        self.proxy = Proxy(self.pipelines, self.runners)

    def start(self) -> None:
        self.supervisor.start()
        self.health.start()

    def end(self, say: Say, *, at_once: bool = False) -> None:
        """Stop every pipeline in order; or leave at once, and leave the processes for the next manager."""
        self.health.end()
        self.supervisor.end(say, at_once=at_once)
        self.client.close()
        self.database.close()


def service_of(request: Request) -> Service:
    found: Service = request.app.state.service
    return found
