"""What may be asked: queries, and nothing that changes a setting, a name or a file, or runs a program."""

from __future__ import annotations

from typing import Any

from pyspark.errors import ParseException
from pyspark.sql import DataFrame, SparkSession

from penstock.errors import ProgramError

_HARMLESS = ("ShowTables", "ShowViews", "ShowColumns", "ShowFunctions", "Describe", "ExplainCommand")
"""How the names of the plans begin that only tell something."""

_SCRIPT = "ScriptTransformation"


def answer(session: SparkSession, sql: str) -> DataFrame:
    """The rows that a query asks for. Spark runs any command at once, so that is refused first."""
    parser = session._jsparkSession.sessionState().sqlParser()
    try:
        plan = parser.parseQuery(sql)
    except ParseException:
        plan = parser.parsePlan(sql)  # raises what is wrong with it, if it is no statement at all
        if not plan.getClass().getSimpleName().startswith(_HARMLESS):
            raise ProgramError(
                "this is a command, and only queries can be asked: write SELECT ..., or INSERT INTO a table"
                " of the program"
            ) from None
    refuse_scripts(plan)
    return session.sql(sql)


def refuse_scripts(plan: Any) -> None:
    """Raise if a parsed plan, or a subquery of it, would run a program of the operating system."""
    if _SCRIPT in plan.treeString():
        raise ProgramError(
            "SELECT TRANSFORM ... USING runs a program of the operating system, and is refused"
        )
