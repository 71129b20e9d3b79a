"""The states of a pipeline, in the words of the reference, and those that are derived from others."""

from __future__ import annotations

from enum import StrEnum


class ProgramStatus(StrEnum):
    """How far the program is compiled."""

    PENDING = "Pending"
    COMPILING_SQL = "CompilingSql"
    SUCCESS = "Success"
    SQL_ERROR = "SqlError"
    SYSTEM_ERROR = "SystemError"


class StorageStatus(StrEnum):
    """Whether the pipeline has state on disk."""

    CLEARED = "Cleared"
    IN_USE = "InUse"
    CLEARING = "Clearing"


class ResourcesStatus(StrEnum):
    """Whether there is a process for the pipeline."""

    STOPPED = "Stopped"
    PROVISIONING = "Provisioning"
    PROVISIONED = "Provisioned"
    STOPPING = "Stopping"


class ResourcesDesiredStatus(StrEnum):
    """Whether there should be a process for the pipeline."""

    STOPPED = "Stopped"
    PROVISIONED = "Provisioned"


class RuntimeStatus(StrEnum):
    """What the pipeline in its process is doing."""

    UNAVAILABLE = "Unavailable"
    COORDINATION = "Coordination"
    STANDBY = "Standby"
    AWAITING_APPROVAL = "AwaitingApproval"
    INITIALIZING = "Initializing"
    BOOTSTRAPPING = "Bootstrapping"
    CONCURRENT_BOOTSTRAPPING = "ConcurrentBootstrapping"
    SYNCHRONIZING = "Synchronizing"
    REPLAYING = "Replaying"
    PAUSED = "Paused"
    RUNNING = "Running"
    SUSPENDED = "Suspended"


class RuntimeDesiredStatus(StrEnum):
    """What the pipeline in its process should be doing."""

    UNAVAILABLE = "Unavailable"
    COORDINATION = "Coordination"
    STANDBY = "Standby"
    PAUSED = "Paused"
    RUNNING = "Running"
    SUSPENDED = "Suspended"


class BootstrapPolicy(StrEnum):
    """What a start does when the program is not the one of the checkpoint."""

    ALLOW = "allow"
    REJECT = "reject"
    AWAIT_APPROVAL = "await_approval"


def combined_status(resources: str, runtime: str | None) -> str:
    """The one status that people look at: the process's until it is there, then the pipeline's.

    >>> combined_status("Stopped", None), combined_status("Provisioned", "Paused")
    ('Stopped', 'Paused')
    """
    if resources == ResourcesStatus.PROVISIONED:
        return runtime or RuntimeStatus.UNAVAILABLE.value
    return resources


def combined_desired_status(resources: str, runtime: str | None, initial: str | None) -> str:
    """What is wanted: until the pipeline itself says it, what the start asked for.

    >>> combined_desired_status("Provisioned", None, "Paused")
    'Paused'
    """
    if resources == ResourcesDesiredStatus.STOPPED:
        return resources
    return runtime or initial or RuntimeDesiredStatus.UNAVAILABLE.value
