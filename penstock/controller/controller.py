"""One thread runs transactions, another merges and compiles, and each connector has one of its own.

Everything that changes the state of transactions happens in the one thread; others ask for it through the
queue.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Hashable, Sequence
from typing import Any
from weakref import WeakSet

from penstock.checkpoint.model import Entry
from penstock.checkpoint.store import Restored
from penstock.connectors.output.shard import ShardOutput
from penstock.controller import outputs as delivering
from penstock.controller.changes import Change, Changes, Slow, with_change_type
from penstock.controller.checkpoints import RETRY_SECONDS, Checkpoints, Policy
from penstock.controller.generation import Generation
from penstock.controller.inputs import InputRunner
from penstock.controller.machine import Event, State
from penstock.controller.offered import Offered
from penstock.controller.outputs import OutputRunner
from penstock.controller.pace import Pace
from penstock.controller.replaying import Durations, Replayer
from penstock.controller.storage import Storage
from penstock.controller.transactions import Transactions
from penstock.controller.work import Ask, Request, Work, WorkQueue
from penstock.engine.engine import Engine
from penstock.engine.relations import CLOCK, TableRelation, ViewRelation
from penstock.errors import (
    DamagedError,
    DivergedError,
    FencedError,
    PenstockError,
    StateError,
    StorageError,
)
from penstock.journal.arrival import Arrival
from penstock.journal.record import Kind
from penstock.replica.group import Group

_log = logging.getLogger("penstock")

_LOOK_SECONDS = 0.05
"""How often clients are looked after while there is no room for another transaction."""


class Controller:
    """Drives an engine: takes input, runs transactions, delivers changes."""

    def __init__(
        self,
        engine: Engine,
        storage: Storage,
        restored: Restored,
        queue: WorkQueue,
        inputs: Sequence[InputRunner],
        outputs: Sequence[OutputRunner],
        durations: Durations,
        policy: Policy,
        group: Group | None = None,
    ) -> None:
        self.engine = engine
        self._inputs = inputs
        self._outputs = outputs
        self._queue = queue
        self._stopping = threading.Event()
        self._between = threading.Lock()  # held while anything happens to a transaction
        saved = restored.checked.saved
        self._group = group
        self._led = [output for output in outputs if group is not None and not output.output.by_every_replica]
        self.undone: PenstockError | None = None
        """Why something that was accepted is in no transaction."""
        self._wanted = False
        if group is not None:
            for runner in inputs:
                runner.input.replica = group.member
            for output in self._led:
                output.follows = output.led = True
                output.may_write = group.may_write
            for output in outputs:
                output.hydrated = saved.first
                output.begun = saved.first > 0 or saved.transaction >= 0
                output.wants = self._want
                if output.output.remembers and group.read_only:
                    output.follows = True
                if isinstance(output.output, ShardOutput):
                    output.output.fence = group.fence
                    output.output.running = lambda: group.running_generation
        self._transactions = Transactions(engine, storage, saved, inputs, outputs, self._stopping, group)
        self._replayer = Replayer(self._transactions, restored, durations)
        self.checkpoints = Checkpoints(self._transactions, saved, self._between, policy)
        self._offered = Offered(self._transactions, inputs, queue)
        self._generation: Generation | None = None
        if group is not None:
            self._generation = Generation(group, self._transactions, self.checkpoints, inputs, outputs, queue)
        self._passed_over = restored.passed_over
        self._paused = False
        self._awaited: str | None = None
        """What the thread of transactions waits for before it takes anything."""
        self._unflushed: list[Work] = []
        self._unflushed_lock = threading.Lock()
        self._changed = threading.Condition()
        self._failure: PenstockError | None = None
        self._untidy = threading.Event()
        self._recovered = threading.Event()
        self._did_not_start = False
        self._threads = [self._thread(self._run, "transactions"), self._thread(self._tidy, "tidying")]
        self._threads += [self._thread(runner.run, runner.name) for runner in inputs]
        self._pace = Pace(self._where)
        self._pacer = self._thread(self._keep_pace, "pace")
        self._deliverers = [self._thread(runner.run, runner.name) for runner in outputs]

    @staticmethod
    def _thread(target: Callable[[], None], name: str) -> threading.Thread:
        return threading.Thread(target=target, name=f"penstock {name}", daemon=True)

    def start(self) -> None:
        """Begin to recover, unless it was stopped already; `recovered` waits for the end of it."""
        if self._stopping.is_set():
            return
        for thread in [*self._deliverers, self._threads[0], self._pacer]:
            thread.start()

    def catch_up(self) -> None:
        """Replay what was recorded, take a checkpoint there, and end."""
        for thread in self._deliverers:
            thread.start()
        try:
            self._replayer.recover()
            for output in self._outputs:
                output.settle()
            self.checkpoints.take_after_replay(*self._replayer.end())
        finally:
            self.stop(drop=True)

    def interrupt(self) -> None:
        """Let a catching up end soon."""
        self._stopping.set()
        for output in self._outputs:
            output.unbind()
            output.stop(drop=True)

    def recovered(self, timeout: float | None = None) -> bool:
        """Wait until the pipeline is running or paused; raises what kept it from either."""
        if not self._recovered.wait(timeout):
            return False
        if self._did_not_start:
            assert self.error is not None
            raise self.error
        return True

    @property
    def error(self) -> PenstockError | None:
        """Why the pipeline is paused, or did not start, or cannot go on."""
        return self._transactions.broken or self._transactions.error

    @property
    def stalled(self) -> dict[str, str]:
        """The outputs that get nothing though there is input, and why."""
        why = self._why_stalled
        found = {output.name: output.stalled or why for output in self._outputs}
        return {name: reason for name, reason in found.items() if reason is not None}

    @property
    def _why_stalled(self) -> str | None:
        """Why no output gets anything though there is input; None: they do, or there is none."""
        return self._transactions.stalled or (self._waited_for if self._pace.is_stuck else None)

    def _where(self) -> Hashable | None:
        """Where transactions stand; None if there is nothing to do, or somebody wants it to wait."""
        machine, group = self._transactions.machine, self._group
        if machine.replaying or machine.state in (State.OPEN, State.FAILED) or self._is_stuck():
            return None
        decided = group is not None and group.has(machine.number)
        begun = machine.state is not State.READY
        if not (begun or decided or self._queue.busy or self._queue.waits):
            return None
        tasks = self.engine.tasks() if machine.state is State.EVALUATING else None
        return machine.last, machine.state, tasks

    @property
    def _waited_for(self) -> str:
        """What the next transaction waits for."""
        machine, awaited = self._transactions.machine, self._awaited
        if awaited is not None:
            why = f"waits for {awaited}"
        elif machine.state is State.EVALUATING:
            why = "is being evaluated, and Spark has finished no task for a while"
        elif machine.state is State.COMMITTED:
            why = "was run, and its changes cannot be read"
        elif self._queue.busy and self._group is not None:
            why = "waits for its group, which gives no answer"
        else:
            why = "does not begin though there is input"
        return f"transaction {machine.number} {why}"

    def _keep_pace(self) -> None:
        while not self._stopping.wait(delivering.STALL_SECONDS / 10):
            try:
                self._pace.look()
            except Exception:  # the JVM may be gone; whoever runs the transaction says so
                _log.debug("it cannot be seen where transactions stand", exc_info=True)

    def release_outputs(self, checkpoint: Entry) -> None:
        """Give held outputs everything that this checkpoint has."""
        for output in self._outputs:
            output.release(checkpoint.id, checkpoint.transaction)

    # -- what it is doing -----------------------------------------------------------------------

    @property
    def state(self) -> str:
        if self._transactions.broken is not None or self._did_not_start:
            return "Stopped"
        if self._transactions.machine.replaying:
            return "Replaying"
        return "Paused" if self._paused or self._transactions.machine.state is State.FAILED else "Running"

    @property
    def transaction(self) -> int:
        """The last transaction that ended."""
        return self._transactions.machine.last

    @property
    def open_transaction(self) -> int | None:
        """The number of the transaction that a client opened."""
        return self._transactions.machine.number if self._transactions.machine.client else None

    def refuse_queries(self) -> None:
        """Views can be read between transactions, and not before the last one is there again."""
        if self._transactions.broken is not None:
            raise self._transactions.broken
        if self._transactions.machine.replaying:
            raise StateError(
                f"the pipeline is replaying its journal ({self._replayer.progress}); ask again when it runs"
            )

    # -- input ----------------------------------------------------------------------------------

    def submit(self, arrivals: Sequence[Arrival], *, alone: bool) -> Work:
        """Accept rows; they are in the views after `flush`."""
        if self._stays_read_only():
            raise StateError(
                "this replica is read-only, for its generation was not promoted yet: send rows to one of the"
                " generation that runs"
            )
        work = Work(arrivals, alone)
        if not self._queue.put(work, waits=lambda: not self._is_stuck()):
            raise self.error or StateError("the pipeline is stopped; start it again to send rows")
        with self._unflushed_lock:
            self._unflushed = [w for w in self._unflushed if not w.done.is_set() or w.error]
            self._unflushed.append(work)
        return work

    def given_by(self, connector: str) -> Work | None:
        """What an input connector gave last."""
        runner = next((runner for runner in self._inputs if runner.name == connector), None)
        if runner is None:
            raise StateError(f"there is no input connector {connector}")
        return runner.given

    def has_completed(self, transaction: int) -> bool:
        """Whether a transaction has ended, and every output has it. Raises if it ended without effect."""
        if transaction in self._transactions.dropped:
            raise self._without_effect(transaction)
        return self.transaction >= transaction and not any(o.lacks(transaction) for o in self._outputs)

    @staticmethod
    def _without_effect(transaction: int) -> StateError:
        return StateError(f"transaction {transaction} was rolled back or skipped: nothing of it took effect")

    def flush(self) -> None:
        """Wait until everything accepted so far is in the views and in the outputs that can be reached.

        Raises what kept a part of it out. What was accepted into an open transaction is in the journal.
        """
        with self._unflushed_lock:
            waiting = list(self._unflushed)
        for work in waiting:
            with self._changed:
                while not work.done.is_set() and not self._is_stuck():
                    self._changed.wait()
        ended = [work for work in waiting if work.done.is_set()]
        with self._unflushed_lock:
            self._unflushed = [work for work in self._unflushed if work not in ended]
        for work in ended:
            if work.error is not None:
                raise work.error
        if len(ended) < len(waiting) and self.error is not None:
            raise self.error
        for output in self._outputs:
            output.settle()
        self._raise_failure()

    def _is_stuck(self) -> bool:
        return (
            self._transactions.broken is not None
            or self._transactions.machine.state is State.FAILED
            or self._did_not_start
        )

    @property
    def inputs_ended(self) -> bool:
        return all(runner.finished for runner in self._inputs)

    @property
    def has_everything(self) -> bool:
        """Whether every input ended and all of it is in the views and the outputs."""
        return (
            self._recovered.is_set()
            and self.inputs_ended
            and self._idle
            and not self._is_stuck()
            and not any(output.behind for output in self._outputs)
        )

    def wait(self, timeout: float | None) -> bool:
        """Wait until every input ended and all of it is in the views and the outputs."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            self._raise_failure()
            if self._is_stuck() and self.error is not None:
                raise self.error
            if self._stopping.is_set():
                raise StateError("the pipeline was stopped")
            if self._recovered.is_set() and self.inputs_ended and self._idle:
                for output in self._outputs:
                    output.settle()
                if not any(output.is_held for output in self._outputs):
                    return True
            if deadline is not None and time.monotonic() >= deadline:
                return False
            time.sleep(0.02)

    @property
    def _idle(self) -> bool:
        """Whether nothing that was accepted waits."""
        return self._queue.idle and not self._offered.waits

    def failed(self, error: PenstockError) -> None:
        """A connector cannot go on."""
        if isinstance(error, FencedError):
            self.fenced(error)
            return
        if isinstance(error, DivergedError) and self._group is not None:
            self._write_no_more(error)
            return
        _log.error("%s", error)
        self._failure = error

    def _raise_failure(self) -> None:
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    # -- what clients ask for -------------------------------------------------------------------

    def ask(self, ask: Ask, number: int | None = None, **note: Any) -> int:
        """Have the transaction thread do something in its turn; raises why it could not."""
        request = Request(ask, number, note)
        if not self._queue.ask(request):
            raise StateError("the pipeline is stopped; start it again")
        request.done.wait()
        if request.error is not None:
            raise request.error
        return request.answer

    def pause(self, paused: bool) -> None:
        """Hold all input connectors, or let them go on."""
        self._paused = paused
        for runner in self._inputs:
            runner.hold(paused or (self._group is not None and not self._group.settled))

    def _stays_read_only(self) -> bool:
        """One whose generation was promoted is waited for: it takes over now."""
        group = self._group
        if group is None:
            return False
        with self._changed:
            while group.read_only and group.is_promoted and not self._is_stuck():
                if self._stopping.is_set():
                    break
                self._changed.wait(0.1)
        return group.read_only

    def _answer(self, request: Request) -> None:
        try:
            request.answer = self._do(request)
        except StorageError as error:
            self._break(error)
            request.error = self.error
        except DivergedError as error:
            self._write_no_more(error)
            request.error = self.error
        except PenstockError as error:
            request.error = error
            if request.ask is Ask.TAKE_OVER:  # nobody waits for it; it is asked for again
                _log.error("this generation cannot take over yet: %s", error)
        except Exception as error:
            self._break(error)
            request.error = self.error
        request.done.set()

    def _do(self, request: Request) -> int:
        transactions = self._transactions
        machine = transactions.machine
        match request.ask:
            case Ask.BEGIN:
                if self._group is not None:
                    raise StateError(
                        "a replica cannot keep a transaction open, for the others do not know of it: send all"
                        " its rows at once, in a block of `with pipeline.transaction()`"
                    )
                transactions.begin()
            case Ask.COMMIT:
                self._expect(request)
                machine.after(Event.EVALUATE)
                if not machine.client:
                    raise StateError("no transaction is open; start one first")
                self._evaluate()
            case Ask.ROLL_BACK:
                self._expect(request)
                transactions.end(Event.ROLL_BACK, Kind.ROLL_BACK, {})
            case Ask.SKIP:
                self._expect(request)
                self._skip()
            case Ask.RETRY:
                if machine.state is State.FAILED:
                    self._evaluate()
            case Ask.TAKE_OVER:
                assert self._generation is not None, "it is a replica"
                if self._generation.take_over(self._evaluate):
                    self.pause(self._paused)
            case Ask.CONNECTOR:
                transactions.pause_connector(request.note["connector"], request.note["paused"])
        return machine.number

    def _skip(self) -> None:
        """Go on without the transaction that failed; so do all replicas."""
        transactions, group = self._transactions, self._group
        machine = transactions.machine
        machine.after(Event.SKIP)
        if group is not None:
            group.skip(machine.number)
        reason = getattr(self.error, "reason", None) or str(self.error)
        transactions.end(Event.SKIP, Kind.SKIP, {"reason": reason})
        _log.warning("transaction %d was skipped: %s", machine.number, reason)

    def _skip_with_others(self) -> None:
        """Other replicas may go on without the transaction that failed here."""
        group, machine = self._group, self._transactions.machine
        assert group is not None, "it is a replica"
        if machine.state is State.FAILED and group.has_skipped(machine.number):
            self._queue.ask(Request(Ask.SKIP, machine.number))

    def _evaluate(self) -> None:
        self._transactions.evaluate()
        if self.error is not None:
            raise self.error

    def _expect(self, request: Request) -> None:
        if request.number is not None and request.number != self._transactions.machine.number:
            raise StateError(
                f"transaction {request.number} is not under way; the one that is, or comes next, is"
                f" {self._transactions.machine.number}"
            )

    # -- transactions ---------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._replayer.recover()
            with self._between:
                self._replayer.complete()
            if self._must_save_first and self.checkpoints.hindrance is None:
                self.checkpoints.take()
        except BaseException as error:
            match error:
                case DamagedError():
                    self._transactions.error = self._transactions.storage.checkpoints.damage(error)
                case PenstockError():
                    self._transactions.error = error
                case _:
                    self._transactions.error = StorageError(f"the pipeline could not be recovered: {error}")
                    _log.exception("recovery failed")
            self._did_not_start = True
            self._queue.close(drop=True)
            self._recovered.set()
            self._notify()
            return
        if self._group is not None:
            self.pause(self._paused)  # before inputs begin: one that is read-only takes nothing in
        for thread in self._threads[1:]:
            thread.start()
        if self._group is not None and self._generation is not None:
            if any(output.wants_whole for output in self._outputs):
                self._want()
            self._watch(self._group, self._generation)
        self._recovered.set()
        while True:
            taken: Sequence[Work] | Request | None
            if self._transactions.machine.state is State.FAILED:
                taken = self._queue.take_request()
            elif not self._has_room():
                if (taken := self._queue.take_ahead()) is None:
                    continue
            else:
                taken = self._queue.take()
            if taken is None:
                self._finish_ahead()
                self._notify()
                return
            with self._between:
                if isinstance(taken, Request):
                    self._answer(taken)
                else:
                    self._transact(taken)
            self._queue.finish()
            self._notify()
            self._untidy.set()

    def _has_room(self) -> bool:
        """Whether another transaction may end. What is taken into one that a client opened needs no room."""
        if not self._transactions.machine.client:
            for output in self._outputs:
                self._awaited = f"the output {output.name}, for which too much waits already"
                if not output.wait_for_room(_LOOK_SECONDS):
                    return False
            for reader in self._transactions.all_readers():
                self._awaited = f"a reader of {reader.view}, for which too much waits already"
                if not reader.wait_for_room(_LOOK_SECONDS):
                    return False
        self._awaited = None
        return True

    def _notify(self) -> None:
        with self._changed:
            self._changed.notify_all()
        self._queue.wake()

    # -- other replicas -------------------------------------------------------------------------

    def _watch(self, group: Group, generation: Generation) -> None:
        """Go by what other replicas decide, and write what only one may write while this one leads."""

        def lead(leads: bool) -> None:
            for output in self._led:
                output.lead(leads)

        def reached(name: str, transaction: int) -> None:
            for output in self._led:
                if output.name == name:
                    output.reached(transaction)

        group.start(
            last=lambda: self.transaction,
            everywhere=self._everywhere,
            news=self._queue.nudge,
            lead=lead,
            frontiers=lambda: {output.name: output.delivered for output in self._led},
            computed=lambda: {o.name: o.computed for o in self._outputs if not o.internal},
            reached=reached,
            ousted=self._write_no_more,
            promoted=generation.promoted,
            lost=self._lose,
            able=lambda: not self._is_stuck(),
            free=lambda: not any(output.is_full for output in self._outputs),
            follow=generation.follow,
            skip=self._skip_with_others,
        )

    @property
    def generation(self) -> int | None:
        """Of replicas; None if this is none."""
        return None if self._group is None else self._group.generation

    def _lose(self, error: PenstockError) -> None:
        """The group does not know this replica any more."""
        self._break(error)
        self._notify()

    def _want(self) -> None:
        """An output waits for a transaction."""
        self._wanted = True
        self._queue.nudge()

    def _everywhere(self) -> int:
        """The last transaction that every output has, but for those that each replica has for itself."""
        t = self._transactions
        last = t.machine.delivered
        if self._must_save_first:
            last = min(last, t.first)  # until then a restart would have to begin there again
        return min([last, *(o.frontier(last) for o in self._outputs if o.output.remembers)])

    @property
    def _must_save_first(self) -> bool:
        """Whether a replica began in the middle, and only its group knows with what."""
        t = self._transactions
        return 0 < t.first > self.checkpoints.saved.transaction and not t.storage.temporary

    def _may_go_on_without_input(self, number: int) -> bool:
        if self._group is None:
            return False
        return self._group.has(number) or (self._wanted and not self._group.read_only)

    def _finish_ahead(self) -> None:
        """Run up to what was decided on ahead, or say that it was not run here."""
        while self._offered.waits and not self._is_stuck() and not self._queue.dropped:
            with self._between:
                self._transact([])
        self._offered.end()

    # -- transactions, again --------------------------------------------------------------------

    def _transact(self, works: Sequence[Work]) -> None:
        """Take input in, and unless a client's transaction is open evaluate it."""
        number = self._transactions.machine.number
        if not works and not self._may_go_on_without_input(number):
            return
        self._wanted = False
        due = self._offered.due(number)
        try:
            decision = self._transactions.step([arrival for work in works for arrival in work.arrivals])
            if decision is not None and not decision.mine:
                works = self._offered.go_by(decision, works)
            if decision is not None:
                due += self._offered.found_again(decision.positions)
            if not self._transactions.machine.client:
                self._transactions.evaluate()
        except Exception as error:
            self._break(error)
            self.undone = self.error
        skipped = number in self._transactions.dropped
        for work in [*due, *works]:
            work.error = self._without_effect(number) if skipped else self.error
            work.transaction = number
            work.done.set()
        if any(output.wants_whole for output in self._outputs):
            self._want()
        if self._group is not None and self._group.has(number + 1):
            self._queue.nudge()

    def damaged(self, error: DamagedError) -> PenstockError:
        """A reader found that the state on disk is damaged; returns what there is to say of it."""
        self._break(error)
        self._notify()
        assert self.error is not None
        return self.error

    def fenced(self, error: FencedError) -> None:
        """Another run has taken over."""
        self._write_no_more(error)

    def _write_no_more(self, error: PenstockError) -> None:
        """No output gets anything more from this run: it may not write, or others know better."""
        self._break(error)
        for output in self._outputs:
            output.unbind()
            output.stop(drop=True)
        self._notify()

    def _break(self, error: Exception) -> None:
        """What is on disk and what is in memory may differ now: take nothing more, and save nothing."""
        broken: PenstockError = StateError(f"the pipeline cannot go on: {error} Stop it and start it again.")
        if isinstance(error, FencedError | DivergedError):
            broken = type(error)(str(error))  # starting it again does not help
        self._transactions.broken = broken  # before anything else: no checkpoint is taken of it
        if isinstance(error, DamagedError):
            broken = self._transactions.broken = self._transactions.storage.checkpoints.damage(error)
        broken.__cause__ = error
        _log.error("%s", broken, exc_info=not isinstance(error, PenstockError))
        self._queue.close(drop=True)

    # -- readers --------------------------------------------------------------------------------

    def subscribe(self, view: str, *, follow: bool, slow: Slow, snapshot: bool) -> Changes:
        """A reader that begins with the view's rows as they are now, unless it wants no snapshot."""
        reader = Changes(view, follow=follow, slow=slow)
        with self._between:  # so that no change is missed or seen twice
            transaction = self.transaction
            rows = self.engine.rows(view) if snapshot else None
            if rows is not None and rows.num_rows:
                reader.deliver(Change(transaction, with_change_type(rows), snapshot=True))
            reader.advance(transaction)
            self._transactions.readers.setdefault(self.engine.relation(view).name, WeakSet()).add(reader)
        if self._stopping.is_set():
            reader.unbind()
        return reader

    # -- background -----------------------------------------------------------------------------

    def _tidy(self) -> None:
        while not self._stopping.is_set() and self._transactions.broken is None:
            self._untidy.wait(self.checkpoints.seconds_left)
            self._untidy.clear()
            try:
                more = True
                while more and not self._stopping.is_set() and self._transactions.broken is None:
                    self.checkpoints.take_if_due()
                    more = self.engine.tidy()
            except DamagedError as error:
                self._break(error)
                self._notify()
            except Exception:
                if not self._stopping.is_set():
                    _log.exception("tidying up failed; it will be tried again")
                    self._stopping.wait(RETRY_SECONDS)

    # -- end ------------------------------------------------------------------------------------

    def stop(self, *, drop: bool) -> None:
        """Finish what is queued (or drop it) and end all threads."""
        ends = not drop and self._ends_for_good
        self._stopping.set()
        for runner in self._inputs:
            runner.stop()
        for output in self._outputs:
            output.unbind()
        for reader in self._transactions.all_readers():
            reader.unbind()
        self._queue.close(drop=drop)
        self._untidy.set()
        self._join([*self._threads, self._pacer])
        for output in self._outputs:
            output.stop(drop=drop)
        self._join(self._deliverers)
        for reader in self._transactions.all_readers():
            reader.close()
        if ends:
            self._finish_shards()
        for output in self._outputs:
            output.output.close()
        leaves = self._transactions.storage.temporary and (
            self._group is None or self._group.may_be_forgotten()
        )
        if self._group is not None:  # whoever leads then needs them
            self._group.close()
        for runner in self._inputs:
            if leaves:
                runner.input.leave()
            runner.end()

    @property
    def _ends_for_good(self) -> bool:
        """Whether all inputs have ended, and nobody can go on with what this pipeline has."""
        return self._transactions.storage.temporary and self._group is None and self.has_everything

    def _finish_shards(self) -> None:
        """Those who read the shards of this pipeline have everything when they have what is there."""
        for output in self._outputs:
            if not isinstance(output.output, ShardOutput) or output.error is not None or output.behind:
                continue
            try:
                output.output.finish()
            except PenstockError as error:
                _log.warning("the shard of connector %s stays open: %s", output.name, error)

    @staticmethod
    def _join(threads: Sequence[threading.Thread]) -> None:
        for thread in threads:
            if thread.is_alive():
                thread.join()

    @property
    def replica(self) -> dict[str, Any] | None:
        """What it is to its group; None if it has none."""
        return None if self._group is None else self._group.stats()

    def stats(self, state: str) -> dict[str, Any]:
        """What `Pipeline.stats` returns."""
        relations = [r for r in self.engine.relations.values() if r.name != CLOCK]
        tables = [r for r in relations if isinstance(r, TableRelation)]
        views = [r for r in relations if isinstance(r, ViewRelation)]
        return {
            "state": state,
            "error": None if self.error is None else str(self.error),
            "transactions": max(self.transaction, 0),
            "transaction": self._transactions.under_way(),
            "replay": str(self._replayer.progress) if self._transactions.machine.replaying else None,
            "recovery": self._replayer.stats(),
            "checkpoint": {**self.checkpoints.stats(), "passed_over": list(self._passed_over)},
            "queued_rows": self._queue.rows,
            "complete": self.has_everything,
            "latency_ms": self._transactions.statistics.latencies(),
            "tables": {t.name: self._transactions.statistics.table(t.name) for t in tables},
            "views": {v.name: self._transactions.statistics.view(v.name) for v in views},
            "inputs": {runner.name: runner.stats() for runner in self._inputs},
            "outputs": {o.name: o.stats(self._why_stalled) for o in self._outputs if not o.internal},
            "group": self.replica,
            "traces": self.engine.trace_stats(),
        }

    def on_hosts(self) -> list[dict[str, int]]:
        """What each host has taken in and keeps."""
        processed = self._transactions.statistics.processed()
        found = [{"processed_records": rows, "batches": 0, "rows": 0, "bytes": 0} for rows in processed]
        for batches in self.engine.state.sizes().values():
            for size in batches.values():
                share = found[size.host]
                share["batches"] += 1
                share["rows"] += size.rows
                share["bytes"] += size.bytes
        return found
