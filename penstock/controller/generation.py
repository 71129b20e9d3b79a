"""What a new generation of replicas does until it is promoted, and when it takes over."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from penstock.connectors import NOTHING
from penstock.connectors.output.shard import ShardOutput
from penstock.controller.checkpoints import Checkpoints
from penstock.controller.inputs import InputRunner
from penstock.controller.outputs import OutputRunner
from penstock.controller.transactions import Transactions
from penstock.controller.work import Ask, Request, WorkQueue, drop
from penstock.failpoints import failpoint
from penstock.replica.computed import Computed
from penstock.replica.group import Group

RETRY_SECONDS = 2.0
"""A generation that was promoted and could not take over tries again after so long."""


class Generation:
    """A replica's part in a cut-over."""

    def __init__(
        self,
        group: Group,
        transactions: Transactions,
        checkpoints: Checkpoints,
        inputs: Sequence[InputRunner],
        outputs: Sequence[OutputRunner],
        queue: WorkQueue,
    ) -> None:
        self._group = group
        self._transactions = transactions
        self._checkpoints = checkpoints
        self._inputs = inputs
        self._outputs = outputs
        self._queue = queue
        self._asked: Request | None = None
        self._next_attempt = 0.0

    def follow(self) -> None:
        """While another generation writes: do as it does, drop what it has written, and what is of no use."""
        t = self._transactions
        self._group.confirm(t.machine.last, t.dropped)
        for output in self._outputs:
            if output.follows and isinstance(output.output, ShardOutput) and not output.whole:
                self._compare(output, output.output)

    @staticmethod
    def _compare(output: OutputRunner, shard: ShardOutput) -> None:
        """What the other generation wrote must be what this one computed; then nobody needs it here."""
        computed = output.computed  # before what waits is looked at, so that all up to there is known
        begin = max(output.delivered, output.hydrated or NOTHING) + 1
        output.reached(shard.follow(output.waiting(), begin, computed))
        output.written = shard.written

    def promoted(self) -> None:
        """Have the thread of transactions take over, and again after a while if it could not."""
        asked = self._asked
        if asked is not None and (not asked.done.is_set() or time.monotonic() < self._next_attempt):
            return
        self._next_attempt = time.monotonic() + RETRY_SECONDS
        self._asked = Request(Ask.TAKE_OVER)
        for output in self._outputs:
            output.unbind()  # nobody else makes room any more
        self._queue.ask(self._asked)

    def take_over(self, evaluate: Callable[[], None]) -> bool:
        """Write from now on, first a transaction that has nothing: readers need not wait for input. False if
        it was done before."""
        group, t = self._group, self._transactions
        if group.settled:
            return False
        while group.has(t.machine.number):  # the generation before decides nothing any more
            t.step([])
            evaluate()
        failpoint("replica.caught-up")
        if group.read_only:
            group.verdicts.insist(t.machine.last, t.dropped)
            group.activate()
        failpoint("replica.activated")
        before = group.before
        self._take_shards_over(before)
        failpoint("replica.fenced")
        if before is not None:
            t.step([])
            evaluate()
        failpoint("replica.announced")
        for runner in self._inputs:  # another replica may have been faster: not before
            if (position := t.positions.get(runner.name)) is not None:
                drop(runner.rewind(position))
        group.settled = True
        for output in self._outputs:
            output.unbind(False)
        return True

    def _take_shards_over(self, before: Computed | None) -> None:
        computed = self._transactions.computed(self._checkpoints.saved)
        for output in self._outputs:
            if isinstance(output.output, ShardOutput):
                if before is not None and computed.keeps(output.name, before):
                    output.output.take_over()
                if output.follows:
                    output.lead(True)
