"""The public API: a pipeline in this process, on Spark, with no server."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from penstock.connectors import CallbackOutput, parse_pushed, to_arrow
from penstock.controller.changes import Changes, Slow
from penstock.controller.checkpoints import Policy
from penstock.controller.controller import Controller
from penstock.controller.opening import Opening
from penstock.controller.sent import Sent
from penstock.controller.settings import (
    HELD_FOR_EVER,
    checked,
    fault_tolerance,
    object_store,
    several_hosts,
)
from penstock.controller.storage import Storage
from penstock.controller.stored import go_back, listed, repair
from penstock.controller.work import Ask, Work
from penstock.engine.engine import Engine
from penstock.engine.programs import explain_view
from penstock.engine.relations import CLOCK
from penstock.errors import (
    DamagedError,
    EvaluationError,
    ProgramError,
    StateError,
)
from penstock.journal.arrival import Arrival
from penstock.replica.config import GroupConfig
from penstock.replica.promotion import promote
from penstock.sql import Program, Table, parse_insert, parse_program
from penstock.storage.location import Location
from penstock.sync.config import SyncConfig
from penstock.sync.follow import Following, Source
from penstock.sync.ownership import follows
from penstock.sync.remote import remote_checkpoints
from penstock.sync.standby import Standby
from penstock.sync.syncer import Safe, Syncer, safe

if TYPE_CHECKING:
    from penstock.hosts.cluster import Cluster

_log = logging.getLogger("penstock")


class Pipeline:
    """A SQL program kept up to date, from `start` to `stop`.

    `storage` is a directory that outlives the process; None means a temporary one. `config` may set
    `workers` (parallel tasks, default: the processors of this machine), `max_transaction_rows`,
    `max_queued_rows`, `min_batch_size_records` and `max_buffering_delay_usecs` (wait that long for that many
    rows), `max_gathering_delay_usecs` (wait that long for those who sent the last rows), `fault_tolerance` (a
    dict with `checkpoint_interval_secs`, `retention` and `verify`), `storage` (a dict whose
    `backend.config.sync` is an object store for checkpoints), `group` (a dict with the place of a group of
    replicas, `uri` and perhaps `log_uri`, of which this pipeline is one), `hosts` (a number of machines, each
    with `workers` tasks, that the pipeline runs on; `coordinator`, a dict with `address` and `port`, is where
    they find this process), and `spark`, a dict of Spark settings for an application that is not yet running.
    """

    def __init__(
        self,
        name: str,
        program: str,
        storage: str | os.PathLike[str] | None = None,
        config: Mapping[str, Any] | None = None,
    ) -> None:
        self.name = name
        self.registered = ""
        """What a service knows the pipeline by, whatever its name."""
        self.program: Program = parse_program(program)
        self._config = checked(config or {})
        self._policy: Policy = fault_tolerance(self._config.get("fault_tolerance", {}))
        self._sync: SyncConfig | None = object_store(self._config.get("storage", {}))
        group = self._config.get("group")
        self._group = None if group is None else GroupConfig.of(group, name)
        if self._group is not None and self._sync is not None:
            raise StateError(
                "a replica keeps no copies in an object store, for the others have everything: remove the"
                " setting 'storage' or the setting 'group'"
            )
        self._hosts = several_hosts(self._config, storage is not None)
        if self._sync is not None and storage is None:
            raise StateError(
                "an object store is for copies of a storage directory; give one with storage=..."
            )
        if self._sync is not None and self._sync.holds_outputs and self._policy.interval_s is None:
            raise StateError(HELD_FOR_EVER)
        self._storage_path = storage
        self._storage: Storage | None = None
        self._controller: Controller | None = None
        self._local = threading.local()
        self._stopping = False
        self._opening: Opening | None = None
        self._cluster: Cluster | None = None
        self._syncer: Syncer | None = None
        self._standby: Standby | None = None
        self._following: Following | None = None
        """While a start fetches its state."""
        self._activating = threading.Lock()
        self._error: str | None = None
        """Why the last start failed."""
        self._callbacks: list[tuple[str, CallbackOutput]] = []

    # -- life -----------------------------------------------------------------------------------

    def start(
        self,
        *,
        wait: bool = True,
        paused: bool = False,
        standby: bool = False,
        approve: Callable[[], None] = lambda: None,
        vet: Callable[[SparkSession], None] = lambda _: None,
    ) -> None:
        """Start Spark if need be, open the storage, and bring back what was there.

        Without `wait` it returns while recorded transactions are still being replayed. `paused`: take nothing
        from input connectors until `resume`. `standby`: only follow the checkpoints in the object store,
        until `activate`; a storage directory in which the pipeline ran goes on as it was instead. `approve`
        is called when the state is in the storage directory, before anything is made of it, and may raise;
        `vet` with Spark's session before the program gets there, and may raise too.
        """
        if self._controller is not None or self._standby is not None:
            raise StateError(f"the pipeline {self.name} is already running")
        if standby and (self._sync is None or self._sync.wanted is None):
            raise StateError(
                "a standby follows an object store: set storage.backend.config.sync with bucket and"
                " start_from_checkpoint"
            )
        self._error = None
        storage = Storage(self._storage_path)
        if self._sync is None and follows(storage.path):
            storage.close()
            raise StateError(
                f"{storage.path} only follows an object store, which is not configured any more: configure it"
                " to let the pipeline take over, or start with an empty directory"
            )
        self._opening = opening = Opening(
            self.name,
            self.program,
            self._config,
            self._policy,
            self._callbacks,
            self._group,
            self._hosts,
            self._sync,
            vet,
        )
        try:
            opening.refuse_other_hosts(storage)
            if self._sync is not None:
                several = opening.several(storage)
                following = Following(storage.checkpoints, self._sync, self.name, self.registered, several)
                if standby and (following.is_marked or storage.checkpoints.read() is None):
                    self._stand_by(storage, following, opening)
                    return
                self._bring(storage, following, opening)
            approve()
            self._open(storage, opening, paused)
        except BaseException as error:
            self._error = str(error)
            opening.close()
            self._opening = None
            storage.close()
            raise
        if wait:
            self._recovered(None)

    def _bring(self, storage: Storage, following: Following, opening: Opening) -> None:
        """Have the state in the storage, from wherever it is."""
        assert self._sync is not None, "it is followed"
        self._following = following
        try:
            following.bring()
            if self._sync.holds_outputs:
                opening.safe = safe(storage.checkpoints, self._sync)
        finally:
            self._following = None

    def _open(self, storage: Storage, opening: Opening, paused: bool) -> None:
        """From what is in the storage to a pipeline that recovers."""
        controller = opening.open(storage)
        if self._sync is not None:
            self._syncer = Syncer(
                storage.checkpoints,
                self._sync,
                self.name,
                self.registered,
                pushed=controller.release_outputs,
                fenced=controller.fenced,
                parts=opening.parts,
            )
        self._storage, self._controller, self._cluster = storage, controller, opening.cluster
        self._opening = None
        controller.pause(paused)
        controller.start()
        if self._syncer is not None:
            self._syncer.start()

    # -- standing by ----------------------------------------------------------------------------

    def _stand_by(self, storage: Storage, following: Following, opening: Opening) -> None:
        self._storage = storage
        opening.standing_by = True
        self._standby = Standby(following)
        self._standby.start()

        def prepare() -> None:
            try:
                opening.prepare(storage)
            except Exception as error:  # it is told when the standby is activated
                _log.warning("the standby could not compile its program ahead: %s", error)

        threading.Thread(target=prepare, name="penstock prepare", daemon=True).start()

    def activate(
        self, *, wait: bool = True, paused: bool = False, approve: Callable[[], None] = lambda: None
    ) -> None:
        """Let a standby go on with the newest checkpoint there is; whoever ran before may not write any more.

        If that checkpoint cannot be fetched, or the place not be taken over, the standby stays. `approve` as
        for `start`.
        """
        with self._activating:
            standby, storage, opening = self._standby, self._storage, self._opening
            if standby is None or storage is None or opening is None:
                raise StateError(
                    f"the pipeline {self.name} does not stand by, so there is nothing to activate"
                )
            # Whatever may fail comes before the one that runs is fenced.
            opening.prepare_if_need_be(storage)
            approve()
            followed = standby.activate()
            opening.standing_by = False
            if self._sync is not None and self._sync.holds_outputs:
                there = followed is not None and followed.source is Source.BUCKET
                opening.safe = Safe(followed.transaction, True) if followed and there else Safe()
            self._standby = None
            try:
                self._open(storage, opening, paused)
            except BaseException as error:
                self._error = str(error)
                opening.close()
                self._opening = self._storage = None
                storage.close()
                raise
        if wait:
            self._recovered(None)

    def recovered(self, timeout: float | None = None) -> bool:
        """Wait until everything that was recorded is replayed; False if the time ran out first.

        Raises what makes that impossible; the pipeline is stopped then.
        """
        return self._recovered(timeout)

    def _recovered(self, timeout: float | None) -> bool:
        try:
            return self._running().recovered(timeout)
        except BaseException as error:
            self.kill()
            self._error = str(error)
            raise

    def stop(self) -> None:
        """Finish what was accepted, make the state durable, and let go of the storage."""
        self._interrupt()
        self._end_standby()
        controller, storage, syncer = self._controller, self._storage, self._syncer
        if controller is None or storage is None:
            return
        self._stopping = True
        cluster = self._cluster
        if cluster is not None:
            cluster.end_without_lost_hosts()
        try:
            controller.stop(drop=False)
            if controller.checkpoints.hindrance is None:
                controller.checkpoints.take()
                if syncer is not None:
                    syncer.push_last()
            if self._group is not None and controller.undone is not None:
                raise controller.undone
        except DamagedError as error:
            raise controller.damaged(error) from error
        finally:
            if syncer is not None:
                syncer.close()
            self._controller = self._storage = self._syncer = self._cluster = None
            self._stopping = False
            _let_go(cluster, storage)

    def kill(self) -> None:
        """Drop everything at once, as a crash would: nothing is finished, nothing is saved."""
        self._interrupt()
        self._end_standby()
        controller, storage, syncer = self._controller, self._storage, self._syncer
        if controller is None or storage is None:
            return
        cluster = self._cluster
        self._controller = self._storage = self._syncer = self._cluster = None
        if cluster is not None:
            cluster.interrupt()
        if syncer is not None:
            syncer.close(wait_s=10)
        controller.stop(drop=True)
        _let_go(cluster, storage)

    def _end_standby(self) -> None:
        with self._activating:  # or the directory would be let go of while it is taken over
            standby, storage = self._standby, self._storage
            if standby is None or storage is None:
                return
            standby.stop()
            if self._opening is not None:
                self._opening.close()
            self._standby = self._storage = self._opening = None
            storage.close()

    def _interrupt(self) -> None:
        """If another thread is starting the pipeline, let that fail soon."""
        if (following := self._following) is not None:
            following.interrupt()
        if (standby := self._standby) is not None:
            standby.interrupt()
        if (opening := self._opening) is not None:
            opening.interrupt()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        self.stop()

    @property
    def state(self) -> str:
        """Stopped, Standby, Bootstrapping, Replaying, Running, Paused or Stopping."""
        if self._standby is not None:
            return "Standby"
        if self._controller is None:
            return "Stopped" if self._filling is None else "Bootstrapping"
        return "Stopping" if self._stopping else self._controller.state

    @property
    def fetching(self) -> str | None:
        """How far a start has come that fetches its state from an object store."""
        following = self._following
        return None if following is None else str(following.copied)

    @property
    def last_transaction(self) -> int:
        """The number of the last transaction that ended."""
        return self._running().transaction

    @property
    def failure(self) -> str | None:
        """Why it is paused or broken, if it is because of a failure."""
        error = None if self._controller is None else self._controller.error
        return None if error is None else str(error)

    @property
    def failure_code(self) -> str | None:
        """The code of that failure."""
        error = None if self._controller is None else self._controller.error
        return None if error is None else error.code

    def promote(self, *, force: bool = False) -> None:
        """Let the generation of this replica take over, if one of its replicas is ready, or by `force`; the
        one that ran may write no more. Returns at once: `stats()["group"]["read_only"]` tells when it writes.
        """
        generation = self._running().generation
        if self._group is None or generation is None:
            raise StateError(f"the pipeline {self.name} is no replica, so there is nothing to promote")
        promote(self._group, generation, force=force)

    @property
    def replica(self) -> dict[str, Any] | None:
        """What `stats()["group"]` has, which is cheaper alone; None also while it is not up."""
        return None if self._controller is None else self._controller.replica

    @property
    def stalled(self) -> dict[str, str]:
        """The outputs that get nothing though there is input for them, and why."""
        return {} if self._controller is None else self._controller.stalled

    @property
    def waits_for(self) -> str | None:
        """Which of its hosts are not there, and what to do; None if all are, and on one machine."""
        cluster = self._cluster or (None if self._opening is None else self._opening.cluster)
        return None if cluster is None else cluster.waits_for

    @property
    def _filling(self) -> Engine | None:
        return None if self._opening is None else self._opening.bootstrapping

    def pause(self) -> None:
        """Take nothing more from input connectors. Rows sent to `insert` and `delete` go on."""
        self._running().pause(True)

    def resume(self, *, skip_transaction: int | None = None) -> None:
        """Go on after a pause.

        After a transaction could not be evaluated, evaluate it again; or with `skip_transaction`, its number,
        go on without it, for good.
        """
        controller = self._running()
        controller.pause(False)
        if skip_transaction is None:
            controller.ask(Ask.RETRY)
        else:
            controller.ask(Ask.SKIP, skip_transaction)

    def pause_connector(self, connector: str) -> None:
        """Take nothing more from one input connector, over restarts too."""
        self._running().ask(Ask.CONNECTOR, connector=connector, paused=True)

    def resume_connector(self, connector: str) -> None:
        """Go on with an input connector."""
        self._running().ask(Ask.CONNECTOR, connector=connector, paused=False)

    def checkpoint(self, name: str | None = None) -> int:
        """Save the state now, between two transactions; returns the number of the last one in it.

        One with a name is kept until it is deleted.
        """
        controller = self._running()
        try:
            return controller.checkpoints.take(name).transaction
        except DamagedError as error:
            raise controller.damaged(error) from error

    def checkpoints(self) -> list[dict[str, Any]]:
        """All checkpoints, oldest first: id, name, at, transaction, rows, processed_records (rows that were
        taken in before it), processed_by_host, bytes, own_bytes (what no other one has), program (a mark of
        what it computes), verified, suspect, aside."""
        self._running()
        assert self._storage is not None
        return [item.plain() for item in listed(self._storage.checkpoints)]

    def verify_checkpoint(self, reference: str) -> None:
        """Read every byte of a checkpoint, by id or name; DamagedError lists every file that is not as it was
        written. If the pipeline itself has one of them, it cannot go on."""
        controller = self._running()
        try:
            controller.checkpoints.verify(reference)
        except DamagedError as error:
            if controller.checkpoints.shares_damage(reference):
                raise controller.damaged(error) from error
            raise

    def delete_checkpoint(self, reference: str) -> None:
        """Delete a checkpoint, by id or name, and what only it has."""
        self._running().checkpoints.delete(reference)

    # -- copies of checkpoints ------------------------------------------------------------------

    def sync_checkpoint(self, reference: str | None = None, *, wait: bool = True) -> str:
        """Copy a checkpoint, the newest if none is named, to the object store; returns its id.

        Without `wait` it returns when the copy has begun, and `stats` tells how it went.
        """
        self._running()
        assert self._storage is not None
        entry = None if reference is None else self._storage.checkpoints.find(reference)
        syncer = self._synced()
        return (syncer.push_and_wait(entry) if wait else syncer.push(entry)).id

    @property
    def sync_failure(self) -> str | None:
        """Why the last copy to the object store failed; None if it did not."""
        failure = None if self._syncer is None else self._syncer.status.failure
        return None if failure is None else failure.error

    def remote_checkpoints(self) -> list[dict[str, Any]]:
        """The checkpoints in the object store, oldest first: id, at, transaction, rows, bytes, name. It need
        not run."""
        return [
            {
                "id": entry.id,
                "name": entry.name,
                "at": entry.at.isoformat(),
                "transaction": entry.transaction,
                "rows": entry.rows,
                "processed_records": entry.processed_records,
                "bytes": entry.bytes,
            }
            for entry in remote_checkpoints(Location(self._configured(), self._configured().bucket))
        ]

    def _synced(self) -> Syncer:
        self._running()
        self._configured()
        assert self._syncer is not None, "it has one while it runs"
        return self._syncer

    def _configured(self) -> SyncConfig:
        if self._sync is None:
            raise StateError(
                f"the pipeline {self.name} has no object store; set storage.backend.config.sync in its"
                " configuration"
            )
        return self._sync

    # -- transactions ---------------------------------------------------------------------------

    def start_transaction(self) -> int:
        """Open a transaction and return its number.

        Everything that arrives before it is committed, from whomever, takes effect with it or not at all. It
        stays open when the pipeline is stopped or crashes.
        """
        return self._running().ask(Ask.BEGIN)

    def commit_transaction(self, number: int | None = None) -> int:
        """Let the open transaction take effect; raises EvaluationError if it cannot, and it stays open."""
        return self._running().ask(Ask.COMMIT, number)

    def rollback_transaction(self, number: int | None = None) -> int:
        """End the open transaction without effect. What connectors gave to it they give again."""
        return self._running().ask(Ask.ROLL_BACK, number)

    @property
    def open_transaction(self) -> int | None:
        """The number of the transaction that `start_transaction` opened, if it is still open."""
        return self._running().open_transaction

    # -- input ----------------------------------------------------------------------------------

    def insert(self, table: str, rows: Any) -> None:
        """Insert rows: a list of dicts, a pyarrow Table or RecordBatch, or a pandas DataFrame.

        In a table with a key a row replaces the one with the same key. A bad row raises BadRowError,
        and nothing of the call takes effect.
        """
        self._send(table, rows, delete=False)

    def delete(self, table: str, rows: Any) -> None:
        """Delete rows by key, or by the whole row in a table without a key."""
        self._send(table, rows, delete=True)

    def push(self, table: str, data: bytes | str, format: str = "json", **config: Any) -> int:
        """Take in records of a format (json, csv, parquet, avro), with the settings that a connector's format
        has: `push("t", body, "json", update_format="insert_delete")`. Returns how many.

        A bad record raises BadRowError, and nothing of the call takes effect.
        """
        return self.send(table, data, format, **config).rows

    def send(self, table: str, data: bytes | str, format: str = "json", **config: Any) -> Sent:
        """The same as `push`; what it returns can be asked later whether the records are in the views."""
        declared = self._table(table)
        controller = self._running()
        relation = controller.engine.table(table)
        content = data.encode() if isinstance(data, str) else data
        described = {"name": format, "config": config}
        rows = parse_pushed(content, described, declared, relation.arrow, relation.defaults)
        return Sent(rows.num_rows, controller, self._submit(declared.name, rows))

    def sent_by(self, connector: str) -> Sent:
        """What an input connector has given so far: ask it later whether all of it is in the views."""
        controller = self._running()
        given = controller.given_by(connector)
        return Sent(0 if given is None else given.rows, controller, given)

    def execute(self, sql: str) -> int:
        """Run `INSERT INTO table ...` with values or any query over tables and views; returns how many rows.

        The query sees one consistent snapshot, and its rows take effect as those of `insert` do.
        """
        return self.send_insert(sql).rows

    def send_insert(self, sql: str) -> Sent:
        """The same as `execute`; what it returns can be asked later whether the rows are in the views."""
        controller = self._running()
        statement = parse_insert(sql)
        declared = self._table(statement.table)
        rows = self.query(statement.query)
        names = statement.columns or tuple(column.name for column in declared.columns)
        if len(names) != rows.num_columns:
            raise ProgramError(
                f"INSERT INTO {declared.name} names {len(names)} columns ({', '.join(names)}), and its query"
                f" has {rows.num_columns}"
            )
        return Sent(rows.num_rows, controller, self._send(declared.name, rows.rename_columns(list(names))))

    def _send(self, table: str, rows: Any, *, delete: bool = False) -> Work | None:
        controller = self._running()
        declared = self._table(table)
        relation = controller.engine.table(table)
        if delete and declared.append_only:
            raise StateError(f"rows cannot be deleted from {declared.name}: it is declared append_only")
        converted = to_arrow(declared, relation.arrow, rows, delete=delete, defaults=relation.defaults)
        return self._submit(declared.name, converted)

    def _submit(self, table: str, rows: pa.Table) -> Work | None:
        """Accept rows; None if this waits for the end of a `transaction` block, or there are none."""
        opened: list[Arrival] | None = getattr(self._local, "opened", None)
        if opened is not None:
            opened.append(Arrival(table, rows))
        elif rows.num_rows:
            return self._running().submit([Arrival(table, rows)], alone=False)
        return None

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Everything this thread sends within the block takes effect together; an exception drops it all.

        It is a transaction of its own, unless `start_transaction` opened one: then it joins that one.
        """
        controller = self._running()
        if getattr(self._local, "opened", None) is not None:
            raise StateError("this thread is already in a transaction; transactions do not nest")
        self._local.opened = []
        try:
            yield
            inputs = self._local.opened
        finally:
            self._local.opened = None
        controller.submit(inputs, alone=True)

    def flush(self) -> None:
        """Wait until everything accepted so far is in the views and in the outputs that can be reached.

        Raises EvaluationError if a transaction could not be evaluated: it did not take effect, and the
        pipeline is paused until `resume`. What was accepted into an open transaction is safe in the journal.
        """
        self._running().flush()

    @property
    def inputs_ended(self) -> bool:
        """Whether every input connector has come to its end."""
        return self._running().inputs_ended

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until every input ended and all is processed; False if the time ran out first."""
        return self._running().wait(timeout)

    # -- output ---------------------------------------------------------------------------------

    def query(self, sql: str) -> pa.Table:
        """Any Spark SQL query over the tables and views, answered from one consistent snapshot."""
        controller = self._running()
        controller.refuse_queries()
        try:
            return controller.engine.query(sql)
        except DamagedError as error:
            raise controller.damaged(error) from error
        except PySparkException as error:
            message = str(error).strip().split("\n", 1)[0]
            raise EvaluationError(f"the query could not be answered: {message}") from error

    def changes(
        self, view: str, *, follow: bool = False, slow: Slow = Slow.KEPT, snapshot: bool = True
    ) -> Changes:
        """The rows of a view (or table) as they are now, as one change, and then each transaction's change.

        Iterating ends when it has caught up, and may be continued; with `follow` it waits for more. `slow`
        says what becomes of a reader that does not keep up. Without `snapshot` the next change is the first.
        """
        controller = self._running()
        controller.refuse_queries()
        relation = controller.engine.relations.get(view.lower())
        if relation is None or relation.name == CLOCK:
            raise StateError(f"there is no view {view}; the views are: {', '.join(self.views)}")
        try:
            return controller.subscribe(relation.name, follow=follow, slow=slow, snapshot=snapshot)
        except DamagedError as error:
            raise controller.damaged(error) from error

    def on_change(
        self, view: str, function: Callable[[int, pa.Table], object], *, name: str | None = None
    ) -> None:
        """Call `function(transaction, changes)` for each transaction that changes a view, from `start` on.

        At least once: a transaction that was being delivered when the process crashed comes again, with the
        same number. `changes` has the view's columns, `_change_type` and `_weight`.
        """
        if self._controller is not None:
            raise StateError(
                f"the pipeline {self.name} is already running; register functions before start()"
            )
        found = next((v.name for v in self.program.views if v.name.lower() == view.lower()), None)
        if found is None:
            raise StateError(f"there is no view {view}; the views are: {', '.join(self.views)}")
        taken = {output.name for _, output in self._callbacks} | set(self.program.connectors)
        called = name or f"{found}.callback"
        if called in taken:
            raise StateError(f"the name {called} is taken; give another one with name=...")
        self._callbacks.append((found, CallbackOutput(called, function)))

    def explain(self, view: str, format: str = "text") -> str:
        """The strategy of each operator of a view, and why; `format` is text, json or mermaid."""
        return explain_view(self._running().engine.relations, view, format)

    def stats(self) -> dict[str, Any]:
        """Counters, latencies, and the size of each trace."""
        if (standby := self._standby) is not None:
            warm = self._opening is not None and self._opening.is_prepared
            joined = None if self._opening is None else self._opening.cluster
            hosts = None if joined is None else joined.stats()
            told = {**standby.stats(), "warm": warm}
            return {"state": "Standby", "error": None, "standby": told, "hosts": hosts}
        if self._controller is None:
            filling = self._filling
            if filling is None:
                joining = None if self._opening is None else self._opening.cluster
                more = {} if joining is None else {"hosts": joining.stats()}
                return {"state": self.state, "error": self._error, **more}
            done, tasks = filling.tasks()
            return {"state": self.state, "error": None, "bootstrap": {"tasks_done": done, "tasks": tasks}}
        sync = None if self._syncer is None else self._syncer.stats()
        hosts = None if self._cluster is None else self._cluster.stats(self._controller.on_hosts())
        return {**self._controller.stats(self.state), "sync": sync, "hosts": hosts}

    # -- what it is -----------------------------------------------------------------------------

    @property
    def tables(self) -> list[str]:
        return [table.name for table in self.program.tables]

    @property
    def views(self) -> list[str]:
        return [view.name for view in self.program.views]

    @property
    def spark(self) -> SparkSession:
        """The Spark session of the application that the pipeline runs in."""
        return self._running().engine.spark

    @property
    def storage(self) -> str:
        """The storage directory."""
        if self._storage is None:
            raise StateError(f"the pipeline {self.name} is not running; call start() first")
        return str(self._storage.path)

    def _running(self) -> Controller:
        if self._controller is None:
            raise StateError(f"the pipeline {self.name} is not running; call start() first")
        return self._controller

    def _table(self, name: str) -> Table:
        for table in self.program.tables:
            if table.name.lower() == name.lower():
                return table
        raise StateError(f"there is no table {name}; the tables are: {', '.join(self.tables)}")


def _let_go(cluster: Cluster | None, storage: Storage) -> None:
    """Of the hosts first: whoever has the directory says in it where its coordinator is."""
    try:
        if cluster is not None:
            cluster.close()
    finally:
        storage.close()


def restore_checkpoint(storage: str | os.PathLike[str], reference: str) -> int:
    """Go back to a checkpoint, by id or name, of a pipeline that is stopped: the next start goes on from it.

    Returns its transaction. Nothing is deleted: the later journal and the other checkpoints are put aside.
    """
    return go_back(Path(storage), reference)[0].transaction


def repair_catalog(storage: str | os.PathLike[str], *, without_damaged: bool = False) -> int:
    """Make a catalog that is missing or damaged again from the checkpoints; returns how many it has."""
    return len(repair(Path(storage), without_damaged=without_damaged).checkpoints)
