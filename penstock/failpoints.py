"""Places where a test can pull the plug: one before and one after each thing that becomes durable.

`PENSTOCK_FAILPOINT=name` kills the process with SIGKILL when it gets there; `name:3` at the third time;
`name/sums` only where it is about what is called sums. With `PENSTOCK_FAILPOINT_AFTER=path` it lives until
that file is there.
"""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Mapping

FAILPOINTS: Mapping[str, str] = {
    "journal.begin.written": "a client's transaction was written to the journal, and not synced",
    "journal.begin.synced": "a client's transaction is durably open",
    "journal.payload.written": "the rows of a step lie beside the journal, which does not name them yet",
    "journal.step.written": "a step was written to the journal, and not synced",
    "journal.step.synced": "a step is durable, and was not evaluated",
    "engine.evaluated": "the batches of a transaction are written, and no trace has them",
    "engine.added": "the batches of a transaction are in their traces, and its commit is not in the journal",
    "journal.commit.written": "a commit was written to the journal, and not synced",
    "journal.commit.synced": "a transaction is durable, and no output has it",
    "output.before": "an output is about to be given a transaction",
    "kafka.sent": "the messages of a transaction are with the broker, and not committed",
    "output.after": "an output has a transaction, and nobody was told",
    "journal.roll-back.written": "a roll-back was written to the journal, and not synced",
    "journal.roll-back.synced": "a roll-back is durable, and inputs were not set back",
    "journal.skip.written": "a skip was written to the journal, and not synced",
    "journal.skip.synced": "a skip is durable",
    "merge.written": "a merged batch is written, and its parts are still in place",
    "merge.replaced": "a merged batch is in place of its parts",
    "checkpoint.batches": "the batches of a checkpoint are durable, and nothing lists them",
    "checkpoint.files": "the state files of a checkpoint are durable, and nothing lists them",
    "checkpoint.manifest": "the manifest of a checkpoint is durable, and the catalog does not have it",
    "checkpoint.saved": "a checkpoint is in the catalog, and nothing was let go of",
    "cleanup.catalogued": "old checkpoints are not in the catalog any more, and their files are still there",
    "cleanup.removed": "the directories of old checkpoints are gone, and their batches are still there",
    "checkpoint.trimmed": "the journal before the oldest kept checkpoint is gone",
    "bootstrap.caught-up": "a checkpoint has what the old program committed, and nothing of the new one",
    "bootstrap.filled": "the views of a changed program are filled, and no checkpoint has them",
    "sync.batches": "the batches of a checkpoint are in the object store, and nothing there lists them",
    "sync.files": "its state files are there too",
    "sync.manifest": "its manifest is there too, and the catalog there does not have it",
    "sync.catalogued": "a checkpoint is in the catalog of the object store, and nothing was let go of",
    "sync.retired": "old checkpoints are not in that catalog any more, and their objects are still there",
    "sync.taken-over": "the owner's record has a new holder, and the catalog has the epoch before",
    "sync.fetched-batches": "the batches of a checkpoint were fetched, and nothing lists them",
    "sync.fetched-manifest": "its manifest was fetched too, and the catalog does not have it",
    "sync.fetched": "a fetched checkpoint is in the catalog",
    "sync.activated": "a standby holds the place and has a journal, and is still marked as one that follows",
    "host.synced": "a host has made its batches of a checkpoint durable, and its coordinator was not told",
    "host.swept": "a host has deleted what no checkpoint needs, and its coordinator was not told",
    "host.sent": "a host's batches of a checkpoint are in the object store, and its coordinator was not told",
    "host.fetched": "a host has fetched its batches of a checkpoint, and its coordinator was not told",
    "shard.uploaded": "the rows of an append are in the store, and no batch of the shard has them",
    "shard.appended": "an append is durable, and whoever asked for it was not told",
    "shard.merged": "a merged batch of a shard is in the store, and its parts are still in place",
    "shard.deleted": "what was merged is gone from the store, and the shard still lists it as dropped",
    "binding.uploaded": "the rows of a transaction are with the group, which has not decided on it",
    "binding.decided": "the group has decided on a transaction, and the journal of no replica has it",
    "replica.promoted": "only a new generation may decide from now on, and whoever asked for it was not told",
    "replica.caught-up": "a new generation has what was decided before it, and does not decide yet",
    "replica.activated": "it may decide, and shards that it keeps may still be written by the one before",
    "replica.fenced": "shards that it keeps are its own, and it has decided nothing",
    "replica.announced": "its first transaction is committed, and it has not begun to take input",
    "replay.transaction": "a recorded transaction was run again",
    "replay.ended": "all recorded transactions were run again, and the pipeline is not yet running",
}

_hits: Counter[str] = Counter()


def failpoint(name: str, of: str = "") -> None:
    """Die here if a test asked for it, perhaps only for what is called `of`."""
    if name not in FAILPOINTS:
        raise KeyError(f"the failpoint {name} is not listed")
    wanted, _, time = os.environ.get("PENSTOCK_FAILPOINT", "").partition(":")
    if wanted in (name, f"{name}/{of}") and _is_armed():
        _hits[name] += 1
        if _hits[name] == int(time or 1):
            os.kill(os.getpid(), signal.SIGKILL)


def _is_armed() -> bool:
    after = os.environ.get("PENSTOCK_FAILPOINT_AFTER")
    return after is None or os.path.exists(after)
