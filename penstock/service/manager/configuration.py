"""The two configurations of a pipeline: every field known, every default filled in."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)

from penstock.controller.settings import HELD_FOR_EVER
from penstock.errors import StateError, SyncError
from penstock.hosts.config import ClusterConfig
from penstock.references import has_reference
from penstock.replica.config import GroupConfig
from penstock.service.errors import ApiError
from penstock.service.manager.units import duration, size
from penstock.sync.config import SyncConfig

_LARGEST = 2**63 - 1

Count = Annotated[int, Field(ge=0, le=_LARGEST)]


class _Section(BaseModel):
    """A part of the configuration; a field that it does not have is refused by name."""

    model_config = ConfigDict(extra="forbid", strict=True)


def _spelling(new: str, old: str, convert: Callable[[str, str], int], unit: str) -> Callable[[Any], Any]:
    """Reads a setting also by its newer name, where it is a text with a unit."""

    def read(given: Any) -> Any:
        if not isinstance(given, dict) or new not in given:
            return given
        value = given[new]
        rest = {name: setting for name, setting in given.items() if name != new}
        if rest.get(old) is not None and value is not None:
            raise ValueError(f"{new} and {old} are the same setting: give one of them")
        if isinstance(value, str):
            rest[old] = convert(value, unit)
        elif value is not None or new == "checkpoint_interval":  # there null means never
            rest[old] = value
        return rest

    return read


def _spellings(given: Any, readers: Sequence[Callable[[Any], Any]]) -> Any:
    for reader in readers:
        given = reader(given)
    return given


class FaultTolerance(_Section):
    model: Literal["none", "at_least_once", "exactly_once"] = "exactly_once"
    checkpoint_interval_secs: Count | None = 60

    @model_validator(mode="before")
    @classmethod
    def _spelled(cls, given: Any) -> Any:
        return _spellings(
            given, [_spelling("checkpoint_interval", "checkpoint_interval_secs", duration, "s")]
        )

    @field_validator("model", mode="before")
    @classmethod
    def _none(cls, given: Any) -> Any:
        return "none" if given is None else given


class Resources(_Section):
    cpu_cores_min: float | None = None
    cpu_cores_max: float | None = None
    memory_mb_min: Count | None = None
    memory_mb_max: Count | None = None
    storage_mb_min: Count | None = Field(default=None, exclude_if=lambda value: value is None)
    storage_mb_max: Count | None = None
    storage_class: str | None = None
    volume_attributes_class: str | None = Field(default=None, exclude_if=lambda value: value is None)
    service_account_name: str | None = None
    namespace: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _spelled(cls, given: Any) -> Any:
        names = ("memory_min", "memory_max", "storage_min", "storage_max")
        return _spellings(given, [_spelling(name, name.replace("_", "_mb_"), size, "M") for name in names])


class Backend(_Section):
    name: Literal["default", "file", "object"] = "default"
    config: dict[str, Any] | None = Field(default=None, exclude_if=lambda value: value is None)

    @model_validator(mode="after")
    def _complete(self) -> Backend:
        if self.name == "object":
            raise ValueError("state is kept in files, not in an object store")
        sync = (self.config or {}).get("sync")
        if sync is not None:
            try:
                SyncConfig.of(sync)
            except SyncError as error:
                raise ValueError(str(error)) from error
        return self


class Storage(_Section):
    backend: Backend = Backend()
    min_storage_bytes: Count | None = None
    min_step_storage_bytes: Count | None = None
    compression: Literal["default", "none", "snappy"] = "default"
    cache_mib: Count | None = None

    @model_validator(mode="before")
    @classmethod
    def _spelled(cls, given: Any) -> Any:
        return _spellings(given, [_spelling("min_spill_size", "min_storage_bytes", size, "")])


def _storage(given: Any) -> Any:
    return {True: {}, False: None}[given] if isinstance(given, bool) else given


_OURS = ("LD_", "DYLD_", "PYTHON", "JAVA", "JDK_", "_JAVA", "SPARK", "PYSPARK", "PENSTOCK_")
_SPARK = ("spark.sql.", "spark.driver.memory", "spark.executor.memory", "spark.memory.")
_OF_OWN_GROUP = ("lease_seconds",)
_NOT_SPARK = ("extensions", "catalog", "warehouse", "hive", "jars", "class")


class RuntimeConfig(_Section):
    """How the pipeline is run."""

    workers: Annotated[int, Field(ge=1, le=1024)] = 8
    hosts: Annotated[int, Field(ge=1, le=1024)] = 1
    coordinator: dict[str, Any] | None = Field(default=None, exclude_if=lambda value: value is None)
    max_rss_mb: Count | None = None
    datafusion_memory_mb: Count | None = None
    storage: Annotated[Storage | None, BeforeValidator(_storage)] = Storage()
    fault_tolerance: FaultTolerance = FaultTolerance(model="none")
    cpu_profiler: bool = True
    tracing: bool = False
    tracing_endpoint_jaeger: str = "127.0.0.1:6831"
    min_batch_size_records: Count = 0
    max_buffering_delay_usecs: Count = 0
    resources: Resources = Resources()
    clock_resolution_usecs: Count | None = 1_000_000
    clock_timezone_offset: str | None = None
    pin_cpus: list[Count] = []
    provisioning_timeout_secs: Count | None = None
    max_parallel_connector_init: Count | None = None
    init_containers: None = None
    checkpoint_during_suspend: bool = True
    http_workers: Count | None = None
    io_workers: Count | None = None
    env: dict[str, str] = {}
    dev_tweaks: dict[str, Any] = {}
    logging: str | None = None
    pipeline_template_configmap: None = None
    spark: dict[str, str] = Field(default={}, exclude_if=lambda value: not value)
    replicas: Annotated[int, Field(ge=1, le=16)] = Field(default=1, exclude_if=lambda value: value == 1)
    group: dict[str, Any] | None = Field(default=None, exclude_if=lambda value: value is None)

    @model_validator(mode="before")
    @classmethod
    def _spelled(cls, given: Any) -> Any:
        return _spellings(
            given,
            [
                _spelling("max_buffering_delay", "max_buffering_delay_usecs", duration, "us"),
                _spelling("clock_resolution", "clock_resolution_usecs", duration, "us"),
                _spelling("provisioning_timeout", "provisioning_timeout_secs", duration, "s"),
                _spelling("max_rss", "max_rss_mb", size, "M"),
                _spelling("datafusion_memory", "datafusion_memory_mb", size, "M"),
            ],
        )

    @model_validator(mode="after")
    def _released(self) -> RuntimeConfig:
        """Outputs that get only what was pushed must get it some day."""
        sync = ((self.storage.backend.config or {}) if self.storage else {}).get("sync")
        never = not self.fault_tolerance.checkpoint_interval_secs
        if sync is not None and never and SyncConfig.of(sync).holds_outputs:
            raise ValueError(HELD_FOR_EVER)
        return self

    @model_validator(mode="after")
    def _replicated(self) -> RuntimeConfig:
        """Those that share a group have each other instead of copies, and are started again when they die."""
        if self.replicas == 1 and self.group is None:
            return self
        if ((self.storage.backend.config or {}) if self.storage else {}).get("sync") is not None:
            raise ValueError(
                "replicas keep no copies in an object store, for each of them has everything: remove"
                " storage.backend.config.sync, or replicas and group"
            )
        if self.replicas > 1 and self.fault_tolerance.model == "none":
            raise ValueError(
                "a replica that dies is started again, which a pipeline without fault tolerance is not: set"
                " fault_tolerance.model to exactly_once, or replicas to 1"
            )
        return self

    @model_validator(mode="after")
    def _on_hosts(self) -> RuntimeConfig:
        """The coordinator is the runner; its hosts are started by whoever has them."""
        if self.hosts == 1:
            if self.coordinator is not None:
                raise ValueError("coordinator is for pipelines on several hosts: set hosts too")
            return self
        if self.replicas > 1 or self.group is not None:
            raise ValueError("replicas and group are for pipelines on one machine: remove them, or hosts")
        if "master" in (self.coordinator or {}):
            raise ValueError(
                "coordinator.master cannot be set for a pipeline of the service, which has a Spark cluster of"
                " its own; for one that is there already use 'penstock run --master'"
            )
        try:
            ClusterConfig.of(self.hosts, self.coordinator or {})
        except StateError as error:
            raise ValueError(str(error)) from error
        return self

    @field_validator("group")
    @classmethod
    def _reachable(cls, given: dict[str, Any] | None) -> dict[str, Any] | None:
        """Checked as the runner will; but secrets are the runner's, so what refers to one is left to it."""
        if given is None:
            return None
        if "uri" not in given and (odd := [name for name in given if name not in _OF_OWN_GROUP]):
            raise ValueError(
                f"{', '.join(odd)}: this is about a group elsewhere, so say where, with uri; without it the"
                " group lies beside the storage of the pipeline"
            )
        referring = {name for name, value in given.items() if isinstance(value, str) and has_reference(value)}
        if "secret_key" in referring:
            referring.add("access_key")
        known = {name: value for name, value in given.items() if name not in referring}
        try:
            GroupConfig.of({"uri": "group", **known}, "pipeline")
        except StateError as error:
            raise ValueError(str(error)) from error
        return given

    @field_validator("fault_tolerance", mode="before")
    @classmethod
    def _off(cls, given: Any) -> Any:
        return {"model": "none"} if given is None else given

    @field_validator("resources", "env", "dev_tweaks", mode="before")
    @classmethod
    def _absent(cls, given: Any) -> Any:
        return {} if given is None else given

    @field_validator("env")
    @classmethod
    def _harmless(cls, given: dict[str, str]) -> dict[str, str]:
        """What the process itself starts by is not for a pipeline to set: any program could be run so."""
        for name, value in given.items():
            if not name or "=" in name or "\0" in name + value:
                raise ValueError(f"{name!r} is no variable of an environment")
            if name.upper().startswith(_OURS) or name.upper() in ("PATH", "HOME", "TMPDIR"):
                raise ValueError(f"{name} is set by Penstock itself")
        return given

    @field_validator("spark")
    @classmethod
    def _of_sql(cls, given: dict[str, str]) -> dict[str, str]:
        for name in given:
            if not name.startswith(_SPARK) or any(part in name.lower() for part in _NOT_SPARK):
                raise ValueError(f"{name} cannot be set for a pipeline; those of spark.sql and memory can")
        return given


class ProgramConfig(_Section):
    """How the program is compiled; there is one compiler, so little of it matters here."""

    profile: Literal["dev", "unoptimized", "optimized", "optimized_symbols"] | None = None
    cache: bool = True
    runtime_version: str | None = None
    use_platform_compiler: bool = False


def runtime_config(given: Any) -> dict[str, Any]:
    """A runtime configuration as it is stored."""
    return _read(RuntimeConfig, "InvalidRuntimeConfig", "runtime", given)


def program_config(given: Any) -> dict[str, Any]:
    """A program configuration as it is stored."""
    return _read(ProgramConfig, "InvalidProgramConfig", "program", given)


def _read(model: type[_Section], code: str, what: str, given: Any) -> dict[str, Any]:
    try:
        return model.model_validate({} if given is None else given).model_dump(mode="json")
    except ValidationError as error:
        found = [
            {"field": ".".join(str(part) for part in problem["loc"]), "problem": _words(problem)}
            for problem in error.errors(include_input=False, include_url=False)
        ]
        text = "; ".join(f"{one['field'] or 'it'}: {one['problem']}" for one in found)
        message = f"The {what} configuration is not valid: {text}"
        raise ApiError(400, code, message, {"error": found}) from error


def _words(problem: Mapping[str, Any]) -> str:
    if problem["type"] == "extra_forbidden":
        return "there is no such field"
    return str(problem["msg"]).removeprefix("Value error, ")
