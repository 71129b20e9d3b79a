"""A lower room never imports a higher one: data flows down the list, errors come back up."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "penstock"

# From low to high; a module may import from its own room and from the rooms before it.
ROOMS = (
    "_version",
    "errors",
    "failpoints",
    "references",
    "sql",
    "storage",
    "trace",
    "plan",
    "shard",
    "connectors",
    "engine",
    "journal",
    "checkpoint",
    "sync",
    "hosts",
    "replica",
    "controller",
    "pipeline",
    "__init__",
    "service",
    "cli",
    "__main__",
)


def room_of(module: tuple[str, ...]) -> str:
    """The room of a module below `penstock`: `("sql", "types")` is in `sql`, `()` is the package itself."""
    return module[0] if module else "__init__"


def modules() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def module_name(path: Path) -> tuple[str, ...]:
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return parts[:-1] if parts[-1] == "__init__" else parts


def imports(path: Path, tree: ast.AST) -> Iterator[tuple[int, tuple[str, ...]]]:
    """Line and target, below `penstock`, of every import of Penstock, also those inside functions."""
    name = module_name(path)
    package = name if path.name == "__init__.py" else name[:-1]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                target = tuple(alias.name.split("."))
                if target[0] == "penstock":
                    yield node.lineno, target[1:]
        elif isinstance(node, ast.ImportFrom):
            base = tuple(node.module.split(".")) if node.module else ()
            if node.level:
                base = package[: len(package) - node.level + 1] + base
            elif base[:1] == ("penstock",):
                base = base[1:]
            else:
                continue
            if base:
                yield node.lineno, base
            else:
                # `from penstock import x`: x is a room, or a name that the package itself offers.
                for alias in node.names:
                    yield node.lineno, (alias.name,) if alias.name in ROOMS else ()


def upward_imports(path: Path, source: str) -> list[str]:
    room = room_of(module_name(path))
    return [
        f"{path.relative_to(PACKAGE.parent)}:{line}: {room} imports the higher {room_of(target)}"
        for line, target in imports(path, ast.parse(source))
        if ROOMS.index(room_of(target)) > ROOMS.index(room)
    ]


def test_every_module_is_in_a_room() -> None:
    assert sorted({room_of(module_name(path)) for path in modules()} - set(ROOMS)) == []


def test_no_import_goes_up() -> None:
    assert [found for path in modules() for found in upward_imports(path, path.read_text("utf-8"))] == []


@pytest.mark.parametrize(
    ("path", "source", "allowed"),
    [
        ("sql/types.py", "from penstock.errors import ProgramError", True),
        ("sql/types.py", "from .tokens import Cursor", True),
        ("sql/types.py", "from ..errors import ProgramError", True),
        ("sql/types.py", "import pyspark.sql", True),
        ("sql/types.py", "from penstock import errors", True),
        ("sql/__init__.py", "from .types import parse", True),
        ("sql/types.py", "from penstock.engine import run", False),
        ("sql/types.py", "import penstock.engine.session", False),
        ("sql/types.py", "def f():\n    from ..engine import run", False),
        ("sql/types.py", "from penstock import engine", False),
        ("sql/types.py", "from penstock import Pipeline", False),
        ("sql/types.py", "from .. import Pipeline", False),
        ("sql/__init__.py", "from ..plan import rules", False),
        ("errors.py", "from penstock import sql", False),
        ("__init__.py", "from penstock.pipeline import Pipeline", True),
        ("__init__.py", "from penstock.cli import app", False),
        ("cli/run.py", "from penstock import Pipeline", True),
        ("cli/run.py", "from penstock import __version__", True),
    ],
)
def test_the_check_sees_every_kind_of_import(path: str, source: str, allowed: bool) -> None:
    assert (upward_imports(PACKAGE / path, source) == []) is allowed
