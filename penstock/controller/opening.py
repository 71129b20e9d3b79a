"""From a storage directory to a controller that goes on where the pipeline was, with this program."""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyspark.sql import SparkSession

from penstock.checkpoint.check import refuse_other_hosts
from penstock.checkpoint.model import Saved
from penstock.checkpoint.store import Restored
from penstock.connectors import CallbackOutput, create_input, create_output
from penstock.controller import bootstrap
from penstock.controller.checkpoints import Policy
from penstock.controller.controller import Controller
from penstock.controller.inputs import InputRunner, InputSettings
from penstock.controller.outputs import OutputRunner
from penstock.controller.programs import connectors_of, refuse_changed_connectors
from penstock.controller.replaying import Durations
from penstock.controller.storage import Storage
from penstock.controller.work import LIMITS, Limits, WorkQueue
from penstock.engine.engine import Engine
from penstock.engine.fingerprints import identities
from penstock.engine.programs import relations_of
from penstock.engine.relations import is_stored
from penstock.engine.session import application
from penstock.errors import DamagedError, PenstockError, StateError
from penstock.failpoints import failpoint
from penstock.hosts.config import ClusterConfig
from penstock.hosts.messages import ID_FILE
from penstock.hosts.private import kept_secret
from penstock.replica.config import GroupConfig
from penstock.replica.group import Group, refuse_replica
from penstock.sql import Program, parse_program
from penstock.sync.config import SyncConfig
from penstock.sync.copying import Stop
from penstock.sync.filling import fill
from penstock.sync.ownership import follows
from penstock.sync.parts import Parts, Several
from penstock.sync.syncer import Safe, in_both

if TYPE_CHECKING:
    from penstock.hosts.cluster import Cluster

_log = logging.getLogger("penstock")

_NOT_STATE = ("spark", "storage", "group", "hosts", "coordinator")
"""Settings that may be others on another machine; `storage` may also have secrets."""


class Opening:
    """One start of a pipeline. `bootstrapping` is the engine while views are filled for a changed program."""

    def __init__(
        self,
        name: str,
        program: Program,
        config: Mapping[str, Any],
        policy: Policy,
        callbacks: Sequence[tuple[str, CallbackOutput]],
        group: GroupConfig | None = None,
        hosts: ClusterConfig | None = None,
        sync: SyncConfig | None = None,
        vet: Callable[[SparkSession], None] = lambda _: None,
    ) -> None:
        self.bootstrapping: Engine | None = None
        self.safe: Safe | None = None
        """What is in the object store, if outputs get only that."""
        self._name = name
        self._program = program
        self._config = config
        self._policy = policy
        self._callbacks = callbacks
        self._group = None if group is None else Group(group, f"{name} on {socket.gethostname()}")
        self._hosts = hosts
        self._sync = sync
        self._vet = vet
        self.cluster: Cluster | None = None
        """The hosts that it runs on, if there are several."""
        self.standing_by = False
        """Whether the pipeline only follows as yet."""
        self._filling = Stop()
        self._owner = uuid.uuid4().hex
        self._catching_up: Controller | None = None
        self._interrupted = False
        self._preparing = threading.Lock()
        self._joining = threading.Lock()
        self._prepared: Engine | None = None

    def refuse_other_hosts(self, storage: Storage) -> None:
        """`StateError` if the state is on another number of hosts: nobody need be waited for. What only
        follows may yet be dealt anew."""
        if storage.checkpoints.read() is not None and not follows(storage.path):
            hosts = 1 if self._hosts is None else self._hosts.hosts
            refuse_other_hosts(storage.checkpoints.newest, hosts, storage.path)

    def prepare(self, storage: Storage) -> None:
        """Start Spark and compile the program ahead of `open`, which is faster then. Several hosts are waited
        for, and get what they lack, once it is known whose they are."""
        with self._preparing:
            if self._hosts is not None and storage.checkpoints.read() is not None:
                self._joined(storage, self._hosts)
                self._fill(storage)
            if (spark := self._session) is None:
                return
            engine = self._engine(storage, spark)
            engine.circuit.prepare()
            self._prepared = engine

    def prepare_if_need_be(self, storage: Storage) -> None:
        """The same, unless it is done; waits if it is being done."""
        with self._preparing:
            done = self._prepared is not None
        if not done:
            self.prepare(storage)

    @property
    def is_prepared(self) -> bool:
        """Whether `prepare` is done."""
        return self._prepared is not None

    @property
    def _workers(self) -> int:
        """How many tasks run at once, on all machines together."""
        each = int(self._config.get("workers", os.cpu_count() or 2))
        return each if self._hosts is None else each * self._hosts.hosts

    @property
    def _session(self) -> SparkSession | None:
        if self._hosts is None:
            return self._spark()
        return None if self.cluster is None or self.cluster.files is None else self.cluster.spark

    def _spark(self) -> SparkSession:
        return application(self._workers, self._config.get("spark", {}))

    def _engine(self, storage: Storage, spark: SparkSession) -> Engine:
        self._vet(spark)
        return Engine(self._program, spark, storage.checkpoints.files, self._workers)

    def open(self, storage: Storage) -> Controller:
        """Start Spark if need be, and make ready to go on from the newest checkpoint that is whole."""
        try:
            spark = None if self._hosts is None else self._joined(storage, self._hosts).spark
            self._fill(storage)
            restored = self._restored(storage)
            return self._opened(storage, restored, spark)
        except BaseException:
            if self._group is not None:
                self._group.close()
            self.close()
            raise

    def _fill(self, storage: Storage) -> None:
        """Have hosts fetch what they lost, if there is something to fetch it from."""
        parts = self.parts
        if parts is None or self._sync is None or storage.checkpoints.read() is None:
            return
        fill(storage.checkpoints, self._sync, parts, self._filling)
        pushed = in_both(storage.checkpoints, self._sync)
        storage.checkpoints.pushed = pushed[-1].id if pushed else None

    def close(self) -> None:
        """Let go of the hosts, if there are several."""
        cluster, self.cluster = self.cluster, None
        if cluster is not None:
            cluster.close()

    def several(self, storage: Storage) -> Several | None:
        """How many hosts there are, and how they get their batches from an object store."""
        hosts = self._hosts
        if hosts is None:
            return None

        def join(owner: str) -> Parts:
            self._join(storage, hosts, owner)
            assert self.parts is not None, "it has joined"
            return self.parts

        return Several(hosts.hosts, join, lambda: kept_secret(storage.path / ID_FILE))

    @property
    def parts(self) -> Parts | None:
        """The hosts as those who copy checkpoints; None on one machine, and without an object store."""
        if self.cluster is None or self._sync is None:
            return None
        return self.cluster.parts(self._sync, lambda: self.standing_by)

    def _joined(self, storage: Storage, hosts: ClusterConfig) -> Cluster:
        """All hosts, on which the batches are from now on."""
        catalog = storage.checkpoints.read()
        # Hosts know the pipeline before it has a first checkpoint, and after a start that never got there.
        self._owner = kept_secret(storage.path / ID_FILE) if catalog is None else catalog.owner
        return self._join(storage, hosts, self._owner)

    def _join(self, storage: Storage, hosts: ClusterConfig, owner: str) -> Cluster:
        from penstock.hosts.cluster import Cluster  # with a web server and its client

        with self._joining:
            return self._join_once(Cluster, storage, hosts, owner)

    def _join_once(self, make: type[Cluster], storage: Storage, hosts: ClusterConfig, owner: str) -> Cluster:
        if self.cluster is None:
            self.cluster = make(hosts, storage.path, owner, self._workers // hosts.hosts)
            try:
                self._refuse_if_interrupted()
                storage.checkpoints.files = self.cluster.open(self._config.get("spark", {}))
            except BaseException:
                self.close()
                raise
        elif (joined := self.cluster.coordinator.pipeline) != owner:
            raise StateError(
                f"the hosts have joined the pipeline {joined}, and the state in the object store is that of"
                f" {owner}: start again, with hosts that have empty directories"
            )
        return self.cluster

    def _opened(self, storage: Storage, restored: Restored | None, on: SparkSession | None) -> Controller:
        owner = self._owner
        if self._group is None:
            refuse_replica(storage.path)
        else:
            before = None if restored is None else storage.checkpoints.catalog.owner
            owner = self._group.open(storage.path, before, temporary=storage.temporary)
        began = time.monotonic()
        spark = on or self._spark()
        durations = Durations(time.monotonic() - began, time.monotonic())
        with self._preparing:
            engine = self._prepared or self._engine(storage, spark)
        if restored is None:
            nothing = self._nothing(engine)
            if self._group is not None and (entry := self._group.entry()) is not None:
                nothing = replace(
                    nothing, transaction=entry.at - 1, first=entry.at, positions=dict(entry.positions)
                )
            storage.begin(self._name, owner, nothing)
            restored = storage.read()
        elif (todo := bootstrap.needed(restored.checked.saved, engine)) is not None:
            if self._group is not None:
                raise StateError(
                    "the program of a replica cannot be changed: the others would compute something else."
                    " Start it with the program that it had."
                )
            restored = self._bootstrapped(todo, storage, restored, engine)
        elif restored.checked.saved.program != self._program.text:
            restored = self._rewritten(storage, restored)
        assert restored is not None, "a storage directory that was begun has a checkpoint"
        self._refuse_if_interrupted()
        return self._controlled(storage, restored, engine, self._program, durations)

    def interrupt(self) -> None:
        """Let `open` fail as soon as it can."""
        self._interrupted = True
        self._filling.ask()
        if (cluster := self.cluster) is not None:
            cluster.interrupt()
        if (catching_up := self._catching_up) is not None:
            catching_up.interrupt()

    def _refuse_if_interrupted(self) -> None:
        if self._interrupted:
            raise StateError("the pipeline was stopped while it was starting")

    @property
    def _configuration(self) -> dict[str, Any]:
        """What of the configuration belongs to the state."""
        return {key: value for key, value in self._config.items() if key not in _NOT_STATE}

    def _nothing(self, engine: Engine) -> Saved:
        """The state before the first transaction."""
        return Saved(
            self._program.text,
            relations=identities(engine.relations),
            connectors=connectors_of(self._program),
        )

    def _restored(self, storage: Storage) -> Restored | None:
        """The checkpoint to go on from."""
        restored = storage.load(self._name, deep=self._policy.eager)
        if restored is None:
            return None
        checked = restored.checked
        refuse_changed_connectors(storage.path, checked.saved, self._program)
        for fault in restored.passed_over:
            _log.error("%s", fault)
        if restored.passed_over:
            _log.error("the pipeline goes on from an older checkpoint, %s, with nothing lost", checked.entry)
        storage.checkpoints.sweep()
        return restored

    def _rewritten(self, storage: Storage, restored: Restored) -> Restored:
        """The checkpoint with the text that runs now, so that the next start compares connectors with it."""
        checked = restored.checked
        saved = replace(
            checked.saved,
            program=self._program.text,
            connectors=connectors_of(self._program, checked.saved),
        )
        storage.checkpoints.commit(saved, checked.manifest.traces, checked.changes)
        return _read_again(storage, restored)

    def _bootstrapped(
        self, todo: bootstrap.Bootstrap, storage: Storage, restored: Restored, engine: Engine
    ) -> Restored:
        """The checkpoint of another program, made one of this program."""
        self._refuse_if_interrupted()
        self.bootstrapping = engine
        try:
            then = parse_program(restored.checked.saved.program)
            if bootstrap.must_catch_up(storage, restored.checked.saved):
                self._catch_up(storage, restored, then, engine)
                restored = _read_again(storage, restored)
            bootstrap.bootstrap(
                todo, storage, restored, engine, self._program, self._outputs_of, lambda: relations_of(then)
            )
        except DamagedError as error:
            raise storage.checkpoints.damage(error) from error
        finally:
            self.bootstrapping = self._catching_up = None
        return _read_again(storage, restored)

    def _catch_up(self, storage: Storage, restored: Restored, then: Program, engine: Engine) -> None:
        """Replay what the old program left in the journal, for the outputs that there still are."""
        gone = [c.name for v in then.views for c in v.connectors if c.name not in self._outputs]
        if gone:
            _log.warning("not in the program any more, and not given what is replayed: %s", ", ".join(gone))
        # Functions that are new are given rows of the new program only.
        new = [o.name for _, o in self._callbacks if o.name not in restored.checked.saved.delivered]
        before = Engine(then, engine.spark, storage.checkpoints.files, engine.workers)
        moment = Durations(0, time.monotonic())
        self._catching_up = self._controlled(storage, restored, before, then, moment, without=[*gone, *new])
        self._refuse_if_interrupted()
        self._catching_up.catch_up()
        self._refuse_if_interrupted()
        failpoint("bootstrap.caught-up")

    def _outputs_of(self, view: str) -> list[str]:
        declared = [c.name for v in self._program.views if v.name == view for c in v.connectors]
        return declared + [output.name for name, output in self._callbacks if name == view]

    @property
    def _outputs(self) -> set[str]:
        return {name for view in self._program.views for name in self._outputs_of(view.name)}

    def _controlled(
        self,
        storage: Storage,
        restored: Restored,
        engine: Engine,
        program: Program,
        durations: Durations,
        *,
        without: Collection[str] = (),
    ) -> Controller:
        """The controller of a program, `without` some of its outputs."""
        queue = WorkQueue(Limits(**{k: v for k, v in self._config.items() if k in LIMITS}))
        owner = storage.checkpoints.catalog.owner

        def failed(error: PenstockError) -> None:
            controller.failed(error)

        inputs = [
            InputRunner(t.name, create_input(c, t), InputSettings.of(c), queue, failed)
            for t in program.tables
            for c in t.connectors
        ]
        for runner in inputs:
            runner.others = inputs
        given = [
            (v.name, create_output(c, v))
            for v in program.views
            for c in v.connectors
            if c.name not in without
        ]
        given += [(view, output) for view, output in self._callbacks if output.name not in without]
        outputs = [
            OutputRunner(view, output, owner, engine.relation(view).arrow, failed)
            for view, output in given
            if view.lower() in engine.relations
        ]
        if self._group is not None:
            stored = [relation for relation in engine.relations.values() if is_stored(relation)]
            outputs += [
                OutputRunner(r.name, self._group.table_output(r.name), owner, r.arrow, failed, internal=True)
                for r in stored
            ]
        if self.safe is not None:
            for output in outputs:
                output.limit = self.safe.transaction
                output.needs = None if self.safe.newest else storage.checkpoints.newest.id
        saved = replace(restored.checked.saved, configuration=self._configuration)
        restored = replace(restored, checked=replace(restored.checked, saved=saved))
        controller = Controller(
            engine, storage, restored, queue, inputs, outputs, durations, self._policy, self._group
        )
        return controller


def _read_again(storage: Storage, before: Restored) -> Restored:
    """The checkpoint that was just taken."""
    found = storage.read(deep=before.deep)
    assert found is not None, "a checkpoint was just taken"
    return replace(found, passed_over=before.passed_over)
