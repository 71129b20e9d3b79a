"""How the database came to be what it is: numbered steps, each done once, none ever changed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, inspect, text

from penstock.errors import PenstockError


class DatabaseVersionError(PenstockError):
    """The manager's database was written by a newer version of Penstock."""

    code = "DATABASE_VERSION"


@dataclass(frozen=True)
class Migration:
    """One step: what it is for, and its statements, in SQL that SQLite and PostgreSQL both have."""

    number: int
    why: str
    statements: Sequence[str]


_KEY = {"sqlite": "INTEGER PRIMARY KEY AUTOINCREMENT", "postgresql": "BIGSERIAL PRIMARY KEY"}
"""`{key}` in a statement: a number that counts up by itself."""

MIGRATIONS: Sequence[Migration] = (
    Migration(
        1,
        "pipelines, what happened to them, and who may ask",
        (
            """CREATE TABLE pipelines (
                id VARCHAR PRIMARY KEY,
                name VARCHAR NOT NULL UNIQUE,
                description TEXT NOT NULL,
                tags TEXT NOT NULL,
                created_at VARCHAR NOT NULL,
                version BIGINT NOT NULL,
                refresh_version BIGINT NOT NULL,
                platform_version VARCHAR NOT NULL,
                runtime_config TEXT NOT NULL,
                program_code TEXT NOT NULL,
                udf_rust TEXT NOT NULL,
                udf_toml TEXT NOT NULL,
                program_config TEXT NOT NULL,
                program_version BIGINT NOT NULL,
                program_status VARCHAR NOT NULL,
                program_status_since VARCHAR NOT NULL,
                program_error TEXT NOT NULL,
                program_info TEXT,
                storage_status VARCHAR NOT NULL,
                storage_status_details TEXT,
                deployment_error TEXT,
                deployment_id VARCHAR,
                deployment_initial VARCHAR,
                bootstrap_policy VARCHAR,
                deployment_resources_status VARCHAR NOT NULL,
                deployment_resources_status_since VARCHAR NOT NULL,
                deployment_resources_status_details TEXT,
                deployment_resources_desired_status VARCHAR NOT NULL,
                deployment_resources_desired_status_since VARCHAR NOT NULL,
                deployment_runtime_status VARCHAR,
                deployment_runtime_status_since VARCHAR,
                deployment_runtime_status_details TEXT,
                deployment_runtime_desired_status VARCHAR,
                deployment_runtime_desired_status_since VARCHAR,
                runner_id VARCHAR
            )""",
            """CREATE TABLE runners (
                id VARCHAR PRIMARY KEY,
                pipeline_id VARCHAR,
                pid BIGINT,
                started DOUBLE PRECISION,
                created_at VARCHAR NOT NULL,
                settings TEXT NOT NULL
            )""",
            """CREATE TABLE pipeline_events (
                number {key},
                id VARCHAR NOT NULL UNIQUE,
                pipeline_id VARCHAR NOT NULL,
                recorded_at VARCHAR NOT NULL,
                content TEXT NOT NULL
            )""",
            "CREATE INDEX pipeline_events_of ON pipeline_events (pipeline_id, number)",
            """CREATE TABLE api_keys (
                id VARCHAR PRIMARY KEY,
                name VARCHAR NOT NULL UNIQUE,
                role VARCHAR NOT NULL,
                hash VARCHAR NOT NULL UNIQUE,
                created_at VARCHAR NOT NULL
            )""",
        ),
    ),
    Migration(
        2,
        "the health of the service over time, and when a pipeline was started again by itself",
        (
            """CREATE TABLE cluster_events (
                number {key},
                id VARCHAR NOT NULL UNIQUE,
                recorded_at VARCHAR NOT NULL,
                content TEXT NOT NULL
            )""",
            "ALTER TABLE pipelines ADD COLUMN restarts TEXT",
        ),
    ),
    Migration(
        3,
        "which of the replicas of a pipeline a runner is",
        ("ALTER TABLE runners ADD COLUMN replica INTEGER",),
    ),
)

LATEST = MIGRATIONS[-1].number


def migrate(connection: Connection, upto: int = LATEST) -> list[int]:
    """Do the steps that are missing, in the caller's transaction; the numbers of those that were done."""
    _lock(connection)
    done = _version(connection)
    if done > LATEST:
        raise DatabaseVersionError(
            f"the database has version {done}, and this Penstock knows versions up to {LATEST}:"
            " use the newer Penstock that wrote it"
        )
    missing = [migration for migration in MIGRATIONS if done < migration.number <= upto]
    for migration in missing:
        for statement in migration.statements:
            connection.execute(text(statement.format(key=_KEY[connection.dialect.name])))
        connection.execute(text("UPDATE schema_version SET version = :number"), {"number": migration.number})
    return [migration.number for migration in missing]


def _lock(connection: Connection) -> None:
    """Two managers that start at once must not both migrate. SQLite's write transaction is a lock already."""
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(7316020231)"))


def _version(connection: Connection) -> int:
    if not inspect(connection).has_table("schema_version"):
        connection.execute(text("CREATE TABLE schema_version (version INTEGER NOT NULL)"))
        connection.execute(text("INSERT INTO schema_version (version) VALUES (0)"))
    return int(connection.execute(text("SELECT version FROM schema_version")).scalar_one())
