"""What `penstock host` runs: an agent and a Spark worker, for one run of the coordinator after another."""

from __future__ import annotations

import platform
import secrets
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from penstock._version import __version__
from penstock.hosts.agent import create_app
from penstock.hosts.awake import AwakeClock
from penstock.hosts.beside import Beside
from penstock.hosts.contact import AwayError, Contact, OverError
from penstock.hosts.duty import Duty
from penstock.hosts.messages import LOST_SECONDS, SIGN_SECONDS, Admission, CheckIn, HostIndex
from penstock.hosts.serving import Server
from penstock.hosts.storage import HostStorage
from penstock.hosts.worker import SparkWorker, Worker
from penstock.trace import seen

_SAY_SECONDS = 30.0


@dataclass(frozen=True)
class Options:
    """How a host is started."""

    index: int
    coordinator: str
    """`coordinator.json`, the storage directory of the pipeline, or a URL."""
    storage: Path
    address: str = "127.0.0.1"
    secret_file: Path | None = None
    """What is known to those who may check in; needed with a URL."""
    memory: str = "2g"
    """Of the Spark worker, for all its executors."""
    count: int | None = None
    """Of how many hosts it is, if that shall be checked."""
    beside: Path | None = None
    """The file that tells executors of a cluster that is there already who they are beside; None: it runs a
    Spark worker of its own."""


class Host:
    """A host, from the start of its process to its end."""

    def __init__(
        self,
        options: Options,
        say: Callable[[str], None] = lambda _: None,
        worker: Callable[[Path, int, str, str], Worker] = SparkWorker,
    ) -> None:
        HostIndex(options.index, options.index + 1 if options.count is None else options.count)
        self._options = options
        self._tell = say
        self._make_worker = worker
        self._process = secrets.token_hex(8)
        self._clock = AwakeClock()
        self._wake = threading.Event()
        self._ended = threading.Event()
        self._stopping = False
        self._over = False
        self._admission: Admission | None = None
        self._heard = 0.0
        self._away = False
        """The last check-in failed."""
        self._said = ""
        self._said_at = 0.0

    def stop(self) -> None:
        """Make `run` end in order; may be called from anywhere."""
        self._stopping = True
        self._wake.set()

    def run(self) -> None:
        """Until it is stopped; `HostError` if the coordinator refuses this host or Spark does not run."""
        options = self._options
        contact = Contact(options.coordinator, options.secret_file)
        storage = HostStorage(options.storage, options.index)
        self._clock.look(self._ended)
        try:
            worker = self._worker(storage)
            duty = Duty(storage.directory, options.address, worker=lambda: worker.pid, over=self._be_over)
            server = Server(options.address)
            at_once = False
            try:
                worker.begin()
                server.start(create_app(duty), "penstock agent")
                self._serve(contact, storage, duty, worker, server.url)
            except KeyboardInterrupt:
                at_once = True
                raise
            finally:
                worker.stop()
                duty.leave()
                if not at_once:
                    duty.part.wait()  # the directory is this process's as long as something is copied
                server.close()
        finally:
            self._ended.set()
            storage.close()
            contact.close()

    def _worker(self, storage: HostStorage) -> Worker:
        options = self._options
        if options.beside is not None:
            return Beside(options.beside.absolute(), storage.directory, options.index)
        return self._make_worker(storage.directory, options.index, options.address, options.memory)

    def _be_over(self) -> None:
        self._over = True
        self._wake.set()

    def _serve(self, contact: Contact, storage: HostStorage, duty: Duty, worker: Worker, url: str) -> None:
        while not self._stopping:
            self._wake.clear()
            if self._over:
                self._over = False
                self._leave(duty, worker, f"The run of {contact} is over; waiting for the next one.")
            try:
                admission = contact.check_in(self._introduction(storage, url))
            except AwayError as error:
                self._is_away(error, contact, duty, worker)
            else:
                self._is_there(admission, contact, storage, duty, worker)
            worker.look(self._say)
            if not self._over:
                self._wake.wait(SIGN_SECONDS)

    def _introduction(self, storage: HostStorage, url: str) -> CheckIn:
        options, owned = self._options, storage.owned
        return CheckIn(
            version=__version__,
            python=platform.python_version(),
            index=options.index,
            address=options.address,
            url=url,
            storage=owned.storage,
            process=self._process,
            count=options.count,
            pipeline=owned.pipeline,
            incarnation=None if self._admission is None else self._admission.incarnation,
        )

    def _is_there(
        self, admission: Admission, contact: Contact, storage: HostStorage, duty: Duty, worker: Worker
    ) -> None:
        joined = self._admission
        if joined is not None and joined.incarnation != admission.incarnation:
            if not self._away and self._silence() < LOST_SECONDS:
                self._say(
                    f"{contact} says that it is incarnation {admission.incarnation}; incarnation"
                    f" {joined.incarnation} may still live and is waited for"
                )
                return
            self._leave(duty, worker, f"Incarnation {joined.incarnation} of the coordinator is gone.")
            joined = None
        self._heard, self._away = self._clock.now(), False
        if joined is None:
            self._join(admission, contact, storage, duty, worker)

    def _join(
        self, admission: Admission, contact: Contact, storage: HostStorage, duty: Duty, worker: Worker
    ) -> None:
        membership = admission.membership(self._options.index)
        storage.belongs_to(admission.pipeline)
        self._admission = admission
        self._say(
            f"Joined {contact} as {membership.host}; the Spark worker starts, with {admission.workers} tasks"
            " at a time."
            if self._options.beside is None
            else f"Joined {contact} as {membership.host}; executors find it by {self._options.beside}."
        )
        seen.begin(storage.directory, admission.incarnation)
        duty.files.forget_copies()
        worker.start(admission)
        duty.take(membership, admission.token)

    def _is_away(self, error: AwayError, contact: Contact, duty: Duty, worker: Worker) -> None:
        self._away = True
        if isinstance(error, OverError):
            self._leave(duty, worker, f"The run of {contact} is over; waiting for the next one.")
        elif self._admission is not None and self._silence() >= LOST_SECONDS:
            self._leave(duty, worker, f"Lost the coordinator: {error}. The Spark worker is ended.")
        elif self._admission is not None:
            self._say(f"No sign of life of the coordinator: {error}")
            return
        self._say(f"Waiting for the coordinator: {error}")

    def _silence(self) -> float:
        return self._clock.now() - self._heard

    def _leave(self, duty: Duty, worker: Worker, why: str) -> None:
        """Belong to no incarnation any more."""
        if self._admission is None:
            return
        self._admission = None
        duty.leave()
        worker.stop()
        self._say(why)

    def _say(self, text: str) -> None:
        """What was said last is not said again, for a while."""
        now = self._clock.now()
        if text != self._said or now - self._said_at >= _SAY_SECONDS:
            self._said, self._said_at = text, now
            self._tell(text)
