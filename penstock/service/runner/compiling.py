"""Programs that nobody runs yet: are they right, and how do two of them differ?"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from penstock.connectors import create_input
from penstock.engine.difference import difference
from penstock.engine.fingerprints import identities
from penstock.engine.programs import explain_view, relations_of
from penstock.engine.relations import ViewRelation
from penstock.engine.session import application
from penstock.errors import ConnectorError, PenstockError, PlanError, ProgramError
from penstock.service.runner.confinement import refuse_paths, refuse_programs
from penstock.service.runner.schema import program_info
from penstock.sql import Program, parse_program


def compiled(code: str, roots: Sequence[str] | None = None) -> dict[str, Any]:
    """What the contract of `/compile` says: the program's schema, or what is wrong with it."""
    try:
        program = parse_program(code)
        refuse_paths(program, roots)
        refuse_programs(application(1, {}), program)
        relations = relations_of(program)
        for table in program.tables:
            for connector in table.connectors:
                create_input(connector, table).close()
        return {"status": "Success", "program_info": program_info(program, relations)}
    except (ProgramError, PlanError, ConnectorError) as error:
        return {"status": "SqlError", "messages": [_message(error, code)]}
    except PenstockError as error:
        return {"status": "SystemError", "error": str(error)}


def explained(code: str) -> dict[str, Any]:
    """How each view of a program would be kept up to date: what `penstock explain --format json` says."""
    relations = relations_of(parse_program(code))
    views = [relation.name for relation in relations.values() if isinstance(relation, ViewRelation)]
    return {view: json.loads(explain_view(relations, view, "json")) for view in views}


def _message(error: PenstockError, code: str) -> dict[str, Any]:
    """`SqlCompilerMessage` of the reference."""
    line = getattr(error, "line", None) or 1
    column = getattr(error, "column", None) or 1
    lines = code.splitlines()
    shown = f"{line:>5}|{lines[line - 1]}\n{' ' * (5 + column)}^\n" if line <= len(lines) else ""
    return {
        "start_line_number": line,
        "start_column": column,
        "end_line_number": line,
        "end_column": column,
        "warning": False,
        "error_type": error.code.replace("_", " ").capitalize(),
        "message": str(error),
        "snippet": shown,
    }


def differing(old: str, new: str) -> dict[str, Any]:
    """`PipelineDiff` of the reference, for two programs."""
    before, after = parse_program(old), parse_program(new)
    found = difference(identities(relations_of(before)), identities(relations_of(after)))
    return {
        "program_diff": {
            "added_tables": list(found.tables.added),
            "added_views": list(found.views.added),
            "modified_tables": list(found.tables.changed),
            "modified_views": list(found.views.changed),
            "removed_tables": list(found.tables.removed),
            "removed_views": list(found.views.removed),
        },
        "program_diff_error": None,
        **_connectors("input", _inputs(before), _inputs(after)),
        **_connectors("output", _outputs(before), _outputs(after)),
    }


def _inputs(program: Program) -> dict[str, Any]:
    return {f"{t.name}.{c.name}": c.config for t in program.tables for c in t.connectors}


def _outputs(program: Program) -> dict[str, Any]:
    return {f"{v.name}.{c.name}": c.config for v in program.views for c in v.connectors}


def _connectors(kind: str, before: dict[str, Any], after: dict[str, Any]) -> dict[str, list[str]]:
    return {
        f"added_{kind}_connectors": [name for name in after if name not in before],
        f"removed_{kind}_connectors": [name for name in before if name not in after],
        f"modified_{kind}_connectors": [n for n in after if n in before and after[n] != before[n]],
    }
