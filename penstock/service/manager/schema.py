"""The tables of the manager's database as they are now; how they came to be is in `migrations`."""

from __future__ import annotations

import json
from typing import Any

from sqlalchemy import BigInteger, Column, Dialect, Float, Integer, MetaData, String, Table, Text
from sqlalchemy.types import TypeDecorator


class JsonText(TypeDecorator[Any]):
    """A JSON value kept as text, the same in every database; None is NULL."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Dialect) -> str | None:
        return None if value is None else json.dumps(value)

    def process_result_value(self, value: str | None, dialect: Dialect) -> Any:
        return None if value is None else json.loads(value)


metadata = MetaData()

schema_version = Table("schema_version", metadata, Column("version", Integer, nullable=False))

pipelines = Table(
    "pipelines",
    metadata,
    Column("id", String, primary_key=True),
    Column("name", String, unique=True, nullable=False),
    Column("description", Text, nullable=False),
    Column("tags", JsonText, nullable=False),
    Column("created_at", String, nullable=False),
    Column("version", BigInteger, nullable=False),
    Column("refresh_version", BigInteger, nullable=False),
    Column("platform_version", String, nullable=False),
    Column("runtime_config", JsonText, nullable=False),
    Column("program_code", Text, nullable=False),
    Column("udf_rust", Text, nullable=False),
    Column("udf_toml", Text, nullable=False),
    Column("program_config", JsonText, nullable=False),
    Column("program_version", BigInteger, nullable=False),
    Column("program_status", String, nullable=False),
    Column("program_status_since", String, nullable=False),
    Column("program_error", JsonText, nullable=False),
    Column("program_info", JsonText),
    Column("storage_status", String, nullable=False),
    Column("storage_status_details", JsonText),
    Column("deployment_error", JsonText),
    Column("deployment_id", String),
    Column("deployment_initial", String),
    Column("bootstrap_policy", String),
    Column("deployment_resources_status", String, nullable=False),
    Column("deployment_resources_status_since", String, nullable=False),
    Column("deployment_resources_status_details", JsonText),
    Column("deployment_resources_desired_status", String, nullable=False),
    Column("deployment_resources_desired_status_since", String, nullable=False),
    Column("deployment_runtime_status", String),
    Column("deployment_runtime_status_since", String),
    Column("deployment_runtime_status_details", JsonText),
    Column("deployment_runtime_desired_status", String),
    Column("deployment_runtime_desired_status_since", String),
    Column("runner_id", String),
    Column("restarts", JsonText),
)

runners = Table(
    "runners",
    metadata,
    Column("id", String, primary_key=True),
    Column("pipeline_id", String),
    Column("pid", BigInteger),
    Column("started", Float),
    Column("created_at", String, nullable=False),
    Column("settings", JsonText, nullable=False),
    Column("replica", Integer),
)

pipeline_events = Table(
    "pipeline_events",
    metadata,
    Column("number", Integer, primary_key=True, autoincrement=True),
    Column("id", String, unique=True, nullable=False),
    Column("pipeline_id", String, index=True, nullable=False),
    Column("recorded_at", String, nullable=False),
    Column("content", JsonText, nullable=False),
)

cluster_events = Table(
    "cluster_events",
    metadata,
    Column("number", Integer, primary_key=True, autoincrement=True),
    Column("id", String, unique=True, nullable=False),
    Column("recorded_at", String, nullable=False),
    Column("content", JsonText, nullable=False),
)

api_keys = Table(
    "api_keys",
    metadata,
    Column("id", String, primary_key=True),
    Column("name", String, unique=True, nullable=False),
    Column("role", String, nullable=False),
    Column("hash", String, unique=True, nullable=False),
    Column("created_at", String, nullable=False),
)
