"""What a program of somebody else may not do: run code in the JVM, and read or write files anywhere."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import parse_qsl, unquote, urlparse

from pyspark.errors import ParseException
from pyspark.sql import SparkSession

from penstock.engine.asking import refuse_scripts
from penstock.errors import ConnectorError
from penstock.references import has_reference, resolved
from penstock.sql import Connector, Program

_CALLS_OF_JAVA = ("reflect", "java_method", "try_reflect")
_GLOB = re.compile(r"[*?\[]")


def confine(spark: SparkSession) -> None:
    """Take the functions away that call any method of any class. Sessions that are made later lack them."""
    analysis = spark._jvm.org.apache.spark.sql.catalyst  # type: ignore[union-attr]
    registry = analysis.analysis.FunctionRegistry.builtin()
    for name in _CALLS_OF_JAVA:
        registry.dropFunction(analysis.FunctionIdentifier(name))


def refuse_programs(spark: SparkSession, program: Program) -> None:
    """Raise if a view would run a program of the operating system."""
    parser = spark._jsparkSession.sessionState().sqlParser()
    for view in program.views:
        try:
            plan = parser.parseQuery(view.query)
        except ParseException:
            continue  # whoever analyses the program says what is wrong
        refuse_scripts(plan)


def refuse_paths(program: Program, roots: Sequence[str] | None) -> None:
    """Raise if a connector is about a file outside of `roots`; None allows any."""
    if roots is None:
        return
    for connector in connectors(program):
        transport = connector.config.get("transport")
        config = transport.get("config") if isinstance(transport, Mapping) else None
        if isinstance(config, Mapping):  # whoever makes the connector says what is wrong otherwise
            _refuse_outside(config, roots, f"connector {connector.name}")


def refuse_group(group: Mapping[str, Any], roots: Sequence[str] | None) -> None:
    """The same for a group of replicas that lies where its pipeline's configuration says."""
    if roots is not None:
        _refuse_outside(group, roots, "the setting group")


def _refuse_outside(config: Mapping[str, Any], roots: Sequence[str], whose: str) -> None:
    for path in _local_paths(config):
        if not any(_is_below(path, root) for root in roots):
            allowed = ", ".join(roots) or "no directory"
            raise ConnectorError(
                f"{whose}: {path} is outside of what this service allows ({allowed}); use a path there, or"
                " start the service with --allow-path DIRECTORY"
            )


def resolve_references(program: Program) -> None:
    """Find every secret that is referred to: one that is missing is told at once, and none is shown."""
    for connector in connectors(program):
        for text in _texts(connector.config):
            if has_reference(text):
                resolved(text)


def connectors(program: Program) -> Iterator[Connector]:
    for table in program.tables:
        yield from table.connectors
    for view in program.views:
        yield from view.connectors


def _local_paths(config: Mapping[str, Any]) -> Iterator[str]:
    for key, value in _settings(config):
        if key.endswith(_OF_LIBRDKAFKA):
            yield os.path.abspath(value)  # which takes no URL
            continue
        if not (key in ("path", "uri", "log_uri") or key.endswith("_location")):
            continue
        found = urlparse(value)
        if found.scheme.lower() == "file":
            yield unquote(found.path)
        elif found.scheme.lower() == "sqlite":
            yield os.path.abspath(unquote(found.path.removeprefix("/")))
        elif not found.scheme:
            yield os.path.abspath(value)
        elif found.scheme.lower().startswith("postgres"):
            yield from (v for k, v in parse_qsl(found.query) if k in _FILES_OF_LIBPQ)


_OF_LIBRDKAFKA = (".location", ".file", ".keytab")
"""How the names of its options end that are paths."""


def _settings(config: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """All that is text, also in objects within objects."""
    for key, value in config.items():
        if isinstance(value, Mapping):
            yield from _settings(value)
        elif isinstance(value, str):
            yield str(key), value


_FILES_OF_LIBPQ = ("passfile", "servicefile", "sslcert", "sslkey", "sslrootcert", "sslcrl", "sslcrldir")


def _is_below(path: str, root: str) -> bool:
    """Whether a path, or all that a pattern matches, is in a directory.

    >>> _is_below("/data/in/*.csv", "/data"), _is_below("/dat", "/data"), _is_below("/data/*/..", "/data")
    (True, False, False)
    """
    if ".." in path.split(os.sep):
        return False
    fixed = path[: found.start()] if (found := _GLOB.search(path)) else path
    directory = os.path.realpath(fixed if fixed == path else os.path.dirname(fixed))
    top = os.path.realpath(root)
    return directory == top or directory.startswith(top.rstrip(os.sep) + os.sep)


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for inner in value.values():
            yield from _texts(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _texts(inner)
