"""Raw: the bytes themselves, as the only column of a row.

With `mode` set to `lines` each line is a row, otherwise (`blob`) all of a message is one. `column_name` tells
which column, if the table has several; the others take their defaults.
"""

from __future__ import annotations

from typing import Any

from penstock.connectors.config import Section

NAME = "raw"


def raw_settings(section: Section) -> dict[str, Any]:
    """Checked settings of the format."""
    section.only(["mode", "column_name"])
    return {
        "name": NAME,
        "mode": section.choice("mode", ["blob", "lines"], "blob"),
        "column_name": section.optional("column_name", str),
    }
