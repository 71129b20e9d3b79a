"""Every error Penstock raises: a stable code and a one-line meaning each.

The message says what happened, to which thing, and what to do next.
"""

from __future__ import annotations

from collections.abc import Sequence


class PenstockError(Exception):
    """Base of all errors; `code` is stable, the text is for people."""

    code = "PENSTOCK_ERROR"


class ProgramError(PenstockError):
    """The SQL program is wrong; names the statement, line and column."""

    code = "PROGRAM_ERROR"

    def __init__(
        self,
        message: str,
        *,
        line: int | None = None,
        column: int | None = None,
        statement: str | None = None,
    ) -> None:
        self.message = message
        self.line = line
        self.column = column
        self.statement = statement
        where = "" if line is None else f"line {line}, column {column}: "
        what = "" if statement is None else f" (in {statement})"
        super().__init__(f"{where}{message}{what}")


class BadRowError(PenstockError):
    """A row given to insert or delete does not fit its table; nothing of the call took effect."""

    code = "BAD_ROW"


class ConnectorError(PenstockError):
    """A connector's configuration is wrong, or its input or output cannot be read or written."""

    code = "CONNECTOR_ERROR"


class UnreachableError(ConnectorError):
    """A source or a sink does not answer; it is tried again after a pause."""

    code = "UNREACHABLE"


class NoSchemaError(ConnectorError):
    """A schema registry does not have the schema of a message, or not one that can be used."""

    code = "NO_SCHEMA"


class ReplayError(PenstockError):
    """What is read in a replay is not what was read before the restart."""

    code = "REPLAY_MISMATCH"


class DataExpiredError(ConnectorError):
    """Messages that have to be read, perhaps again, are not in their Kafka topic any more."""

    code = "DATA_EXPIRED"


class DataCompactedError(ConnectorError):
    """Messages that have to be read again were removed by the compaction of their Kafka topic."""

    code = "DATA_COMPACTED"


class TopicRecreatedError(ConnectorError):
    """A Kafka topic is not the one that was read before, or it lost messages at its end."""

    code = "TOPIC_RECREATED"


class PartitionsMissingError(ConnectorError):
    """A Kafka topic has fewer partitions than were read before, or is gone."""

    code = "PARTITIONS_MISSING"


class PlanError(PenstockError):
    """A query plan contains something the circuit compiler does not know."""

    code = "PLAN_ERROR"


class EvaluationError(PenstockError):
    """Spark failed while evaluating a transaction, which therefore did not take effect."""

    code = "EVALUATION_ERROR"

    def __init__(self, message: str, reason: str | None = None) -> None:
        super().__init__(message)
        self.reason = reason  # the failure alone, without what to do about it


class StateError(PenstockError):
    """The pipeline is not in a state that allows the call."""

    code = "STATE_ERROR"


class StorageError(PenstockError):
    """A file of the pipeline's storage is missing, damaged or cannot be written."""

    code = "STORAGE_ERROR"


class DamagedError(StorageError):
    """Files of a checkpoint are missing or not what they were; `faults` has all of them, one text each."""

    code = "DAMAGED"

    def __init__(
        self,
        message: str,
        faults: Sequence[str] = (),
        *,
        bucket: str | None = None,
        key: str | None = None,
    ) -> None:
        super().__init__(message)
        self.faults = tuple(faults) or (message,)
        self.bucket = bucket  # of an object in an object store
        self.key = key


class SyncError(PenstockError):
    """The object store for checkpoints refuses, does not answer, or has not what is asked for."""

    code = "SYNC_ERROR"

    def __init__(
        self,
        message: str,
        *,
        bucket: str | None = None,
        key: str | None = None,
        status: int | None = None,
        passing: bool = False,
    ) -> None:
        super().__init__(message)
        self.bucket = bucket
        self.key = key
        self.status = status  # of HTTP
        self.passing = passing  # it may be another time


class NotOwnerError(SyncError):
    """The place in the object store belongs to another pipeline."""

    code = "NOT_OWNER"


class FencedError(SyncError):
    """Another run of the pipeline has taken over its place in the object store; this one must end."""

    code = "FENCED"


class ShardError(PenstockError):
    """The store of a shard refuses, does not answer, or has not what it must have."""

    code = "SHARD_ERROR"

    def __init__(self, message: str, *, passing: bool = False) -> None:
        super().__init__(message)
        self.passing = passing  # it may be another time


class BoundsError(ShardError):
    """Times that a batch or a reader of a shard cannot have."""

    code = "SHARD_BOUNDS"


class TimeGoneError(ShardError):
    """What a reader asks of a shard lies before the time from which it can be read."""

    code = "SHARD_TIME_GONE"


class LeaseExpiredError(ShardError):
    """Nothing was heard of a reader or writer of a shard for so long that it is not waited for any more."""

    code = "SHARD_LEASE_EXPIRED"


class DivergedError(ShardError):
    """Two writers that should compute the same computed different changes for one transaction."""

    code = "DIVERGED"


class HostError(PenstockError):
    """A host of a pipeline on several hosts is not one of it, or could not do what it was asked to."""

    code = "HOST_ERROR"

    def __init__(self, message: str, *, host: int | None = None) -> None:
        super().__init__(message)
        self.host = host


class HostLostError(HostError):
    """A host gives no sign of life, or does not answer: it may come back."""

    code = "HOST_LOST"
