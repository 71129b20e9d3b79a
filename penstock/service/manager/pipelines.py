"""Pipelines in the database: made, found, changed and deleted by the rules of the reference."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from typing import Any

from sqlalchemy import Connection, Select, and_, delete, insert, not_, select, update
from sqlalchemy.exc import IntegrityError

from penstock._version import __version__
from penstock.service.errors import ApiError
from penstock.service.manager.clock import now
from penstock.service.manager.database import Database
from penstock.service.manager.events import record_if_changed
from penstock.service.manager.grouping import place_of_group
from penstock.service.manager.schema import pipeline_events, pipelines
from penstock.service.statuses import ProgramStatus, ResourcesDesiredStatus, ResourcesStatus, StorageStatus

Row = dict[str, Any]
Change = Callable[[Row], Mapping[str, Any]]
"""Looks at a pipeline and says which fields get which values; or refuses."""

NO_PROGRAM_ERROR = {"sql_compilation": None, "rust_compilation": None, "system_error": None}

_PROGRAM_FIELDS = ("program_code", "udf_rust", "udf_toml", "program_config")
_BOUND_TO_STORAGE = ("workers", "hosts", "fault_tolerance")
"""Settings that the state on disk depends on."""

_REMEMBERED = 1_000

_SINCE = (
    "program_status",
    "deployment_resources_status",
    "deployment_resources_desired_status",
    "deployment_runtime_status",
    "deployment_runtime_desired_status",
)

_PLACE = (
    pipelines.c.id,
    pipelines.c.name,
    pipelines.c.runner_id,
    pipelines.c.deployment_resources_status,
    pipelines.c.deployment_resources_desired_status,
    pipelines.c.deployment_runtime_status,
)


class Pipelines:
    """Every change is one transaction, with the times of changed states and an event for them."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._places: dict[str, tuple[int, Row]] = {}

    def all(self) -> list[Row]:
        return self._select(select(pipelines).order_by(pipelines.c.name))

    def get(self, name: str) -> Row:
        with self._database.read() as connection:
            return _by_name(connection, name, lock=False)

    def unsettled(self) -> list[Row]:
        """Those that are not at rest: they run, they should, or their storage is being cleared."""
        resting = and_(
            pipelines.c.deployment_resources_status == ResourcesStatus.STOPPED.value,
            pipelines.c.deployment_resources_desired_status == ResourcesDesiredStatus.STOPPED.value,
            pipelines.c.storage_status != StorageStatus.CLEARING.value,
        )
        return self._select(select(pipelines).where(not_(resting)))

    def uncompiled(self) -> list[Row]:
        """Those whose program is still to be compiled, the longest waiting first."""
        unfinished = (ProgramStatus.PENDING.value, ProgramStatus.COMPILING_SQL.value)
        query = select(pipelines).where(pipelines.c.program_status.in_(unfinished))
        return self._select(query.order_by(pipelines.c.program_status_since))

    def place(self, name: str) -> Row:
        """Of a pipeline only what says where it runs: asked for with every request that is passed on."""
        writes = self._database.writes
        found = self._select(select(*_PLACE).where(pipelines.c.name == name))
        if not found:
            raise _unknown(name)
        if len(self._places) >= _REMEMBERED:
            self._places.clear()
        self._places[name] = writes, found[0]
        return found[0]

    def remembered_place(self, name: str) -> Row | None:
        """The same without asking the database, if it was not written to since it was asked."""
        writes, row = self._places.get(name, (-1, None))
        return row if writes == self._database.writes else None

    def _select(self, query: Select[Any]) -> list[Row]:
        with self._database.read() as connection:
            return [dict(row._mapping) for row in connection.execute(query)]

    def get_by_id(self, id_: str) -> Row | None:
        with self._database.read() as connection:
            row = connection.execute(select(pipelines).where(pipelines.c.id == id_)).first()
            return None if row is None else dict(row._mapping)

    def create(self, fields: Mapping[str, Any]) -> Row:
        with self._database.write() as connection:
            return self._insert(connection, fields)

    def put(self, name: str, fields: Mapping[str, Any]) -> tuple[Row, bool]:
        """Change all of a pipeline, or make it; whether it was made."""
        with self._database.write() as connection:
            if connection.execute(select(pipelines.c.id).where(pipelines.c.name == name)).first() is None:
                if fields["name"] != name:
                    raise ApiError(
                        400,
                        "CannotRenameNonExistingPipeline",
                        f"Pipeline '{name}' does not exist, so it cannot be renamed to '{fields['name']}'",
                        None,
                    )
                return self._insert(connection, fields), True
            return _apply(connection, _by_name(connection, name), lambda row: edited(row, fields)), False

    def edit(self, name: str, fields: Mapping[str, Any]) -> Row:
        return self.change(name, lambda row: edited(row, fields))

    def change(self, name: str, change: Change) -> Row:
        """Change a pipeline by its name; refused if there is none."""
        with self._database.write() as connection:
            return _apply(connection, _by_name(connection, name), change)

    def change_by_id(self, id_: str, change: Change) -> Row | None:
        """Change a pipeline that may have been deleted meanwhile."""
        with self._database.write() as connection:
            query = select(pipelines).where(pipelines.c.id == id_).with_for_update()
            found = connection.execute(query).first()
            return None if found is None else _apply(connection, dict(found._mapping), change)

    def delete(self, name: str) -> Row:
        """Forget a pipeline, its events too."""
        with self._database.write() as connection:
            row = _by_name(connection, name)
            if not is_stopped(row):
                raise ApiError(
                    400,
                    "DeleteRestrictedToFullyStopped",
                    "Cannot delete a pipeline which is not fully stopped."
                    " Stop the pipeline first fully by invoking the '/stop' endpoint.",
                )
            if row["storage_status"] != StorageStatus.CLEARED:
                raise ApiError(
                    400,
                    "DeleteRestrictedToClearedStorage",
                    "Cannot delete a pipeline whose storage is not cleared."
                    " Clear its storage first by invoking the '/clear' endpoint.",
                )
            connection.execute(delete(pipeline_events).where(pipeline_events.c.pipeline_id == row["id"]))
            connection.execute(delete(pipelines).where(pipelines.c.id == row["id"]))
            return row

    def _insert(self, connection: Connection, fields: Mapping[str, Any]) -> Row:
        moment = now()
        row: Row = {column.name: None for column in pipelines.columns} | {
            **fields,
            "id": str(uuid.uuid4()),
            "created_at": moment,
            "version": 1,
            "refresh_version": 1,
            "program_version": 1,
            "platform_version": __version__,
            "program_status": ProgramStatus.PENDING.value,
            "program_status_since": moment,
            "program_error": NO_PROGRAM_ERROR,
            "storage_status": StorageStatus.CLEARED.value,
            "deployment_resources_status": ResourcesStatus.STOPPED.value,
            "deployment_resources_status_since": moment,
            "deployment_resources_desired_status": ResourcesDesiredStatus.STOPPED.value,
            "deployment_resources_desired_status_since": moment,
        }
        try:
            connection.execute(insert(pipelines).values(row))
        except IntegrityError as error:
            raise duplicate_name() from error
        record_if_changed(connection, None, row)
        return row


def is_stopped(row: Mapping[str, Any]) -> bool:
    """Whether a pipeline is stopped and is meant to be."""
    return bool(
        row["deployment_resources_status"] == ResourcesStatus.STOPPED
        and row["deployment_resources_desired_status"] == ResourcesDesiredStatus.STOPPED
    )


def duplicate_name() -> ApiError:
    return ApiError(409, "DuplicateName", "An entity with this name already exists")


def edited(row: Row, fields: Mapping[str, Any]) -> Mapping[str, Any]:
    """What an edit changes: nothing if nothing differs, and then the versions stay too."""
    if not is_stopped(row):
        raise ApiError(
            400,
            "UpdateRestrictedToStopped",
            "Pipeline can only be updated while stopped. Stop it first by invoking '/stop'.",
        )
    different = {name: value for name, value in fields.items() if row[name] != value}
    if not different:
        return {}
    if row["storage_status"] != StorageStatus.CLEARED and (refused := _bound(row, different)):
        raise ApiError(
            400,
            "EditRestrictedToClearedStorage",
            "The following pipeline edits are not allowed while storage is not cleared: "
            + ", ".join(refused),
            {"not_allowed": refused},
        )
    values = {**different, "version": row["version"] + 1, "refresh_version": row["refresh_version"] + 1}
    if any(name in different for name in _PROGRAM_FIELDS):
        values |= {
            "program_version": row["program_version"] + 1,
            "program_status": ProgramStatus.PENDING.value,
            "program_status_since": now(),
            "program_error": NO_PROGRAM_ERROR,
            "program_info": None,
            "platform_version": __version__,
        }
    return values


def _bound(row: Row, different: Mapping[str, Any]) -> list[str]:
    """What of an edit the stored state does not allow."""
    refused = ["`name`"] if "name" in different else []
    if (new := different.get("runtime_config")) is not None:
        old = row["runtime_config"]
        refused += [f"`runtime_config.{name}`" for name in _BOUND_TO_STORAGE if new[name] != old[name]]
        if place_of_group(new) != place_of_group(old):
            refused.append("`runtime_config.group` (`replicas` of more than 1 mean a group of its own)")
        if new["resources"]["storage_mb_max"] != old["resources"]["storage_mb_max"]:
            refused.append("`runtime_config.resources.storage_mb_max`")
    return refused


def _by_name(connection: Connection, name: str, *, lock: bool = True) -> Row:
    query = select(pipelines).where(pipelines.c.name == name)
    found = connection.execute(query.with_for_update() if lock else query).first()
    if found is None:
        raise _unknown(name)
    return dict(found._mapping)


def _unknown(name: str) -> ApiError:
    return ApiError(404, "UnknownPipelineName", f"Unknown pipeline name '{name}'", {"pipeline_name": name})


def _apply(connection: Connection, row: Row, change: Change) -> Row:
    values = dict(change(row))
    if not values:
        return row
    moment = now()
    for status in _SINCE:
        if status in values and values[status] != row[status]:
            values.setdefault(f"{status}_since", None if values[status] is None else moment)
    try:
        connection.execute(update(pipelines).where(pipelines.c.id == row["id"]).values(values))
    except IntegrityError as error:
        raise duplicate_name() from error
    after = {**row, **values}
    record_if_changed(connection, row, after)
    return after
