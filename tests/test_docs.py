"""The documentation: its scripts run, its links lead somewhere, and what it names exists."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from urllib.parse import unquote

import pytest
import typer.main

from penstock import errors
from penstock.cli import app
from penstock.sql import parse_program

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
SCRIPTS = [
    ROOT / "docs" / "tutorial" / "first-pipeline.md",
    README,
    ROOT / "docs" / "how-to" / "use-transactions.md",
    ROOT / "docs" / "how-to" / "recover-from-a-crash.md",
]
"""Pages whose Python blocks are one script each; they share a process, for Spark starts slowly."""
WITHOUT_SPARK = [ROOT / "docs" / "how-to" / "share-tables.md"]
PAGES = [README, ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"`([^`\n]+)`")
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
_MARK = "-- end of block --"


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    language: str
    text: str


@cache
def blocks(page: Path) -> list[Block]:
    return [Block(language, text) for language, text in _FENCE.findall(page.read_text())]


@cache
def prose(page: Path) -> str:
    """The page without its fenced blocks."""
    return _FENCE.sub("", page.read_text())


def of_language(language: str) -> list[object]:
    """Every block in that language, as parameters of a test."""
    return [
        pytest.param(block.text, id=f"{page.relative_to(ROOT)}-{number}")
        for page in PAGES
        for number, block in enumerate(blocks(page))
        if block.language == language
    ]


def commands(page: Path, program: str) -> Iterator[list[str]]:
    """The words after `program` wherever the page shows a call of it, in a console block or in the text."""
    lines = [
        line for block in blocks(page) if block.language == "console" for line in block.text.splitlines()
    ]
    for line in [*lines, *_CODE.findall(prose(page))]:
        words = line.split("#", 1)[0].split()
        if len(words) > 1 and words[0].removeprefix(".venv/bin/") == program:
            yield words[1:]


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


# -- scripts --------------------------------------------------------------------------------------


def script(pages: list[Path]) -> tuple[str, list[str | None]]:
    """The Python blocks of the pages as one script, and what each is said to print (None: not said)."""
    parts: list[str] = []
    printed: list[str | None] = []
    for page in pages:
        for block in blocks(page):
            if block.language == "python":
                parts.append(f"{block.text}\nprint({_MARK!r})\n")
                printed.append(None)
            elif block.language == "text" and printed:
                printed[-1] = block.text
    return "\n".join(parts), printed


@pytest.mark.parametrize("pages", [SCRIPTS, WITHOUT_SPARK], ids=["with-spark", "without-spark"])
def test_scripts_run_and_print_what_they_say(pages: list[Path], tmp_path: Path) -> None:
    text, expected = script(pages)
    path = tmp_path / "script.py"
    path.write_text(text)
    done = subprocess.run(
        [sys.executable, str(path)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = done.stdout.split(f"{_MARK}\n")
    assert len(found) == len(expected) + 1
    for said, actual in zip(expected, found, strict=False):
        if said is not None:
            assert actual.startswith(said)


@pytest.mark.parametrize("text", of_language("python"))
def test_python_compiles(text: str) -> None:
    compile(text, "block", "exec")


@pytest.mark.parametrize("text", of_language("sql"))
def test_sql_is_a_program(text: str) -> None:
    assert parse_program(text).tables


# -- what is named --------------------------------------------------------------------------------


def anchors(page: Path) -> set[str]:
    """The ids that headings have on a page."""
    kept = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in _HEADING.findall(prose(page)))
    return {heading.strip().replace(" ", "-") for heading in kept}


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_lead_somewhere(page: Path) -> None:
    for link in _LINK.findall(prose(page)):
        if "://" in link:
            continue
        target, _, anchor = unquote(link).partition("#")
        file = (page.parent / target).resolve() if target else page
        assert file.is_file(), link
        assert ROOT in file.parents, link
        if anchor and file.suffix == ".md":
            assert anchor in anchors(file), link


def test_every_page_is_on_the_map() -> None:
    index = ROOT / "docs" / "index.md"
    linked = {(index.parent / link).resolve() for link in _LINK.findall(index.read_text())}
    assert {page for page in PAGES if page.parent != ROOT} - linked == {index}


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_make_targets_exist(page: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for words in commands(page, "make"):
        assert words[0] in targets


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_commands_and_their_options_exist(page: Path) -> None:
    for words in commands(page, "penstock"):
        if words[0].startswith(("-", "[")):
            continue
        found = typer.main.get_command(app)
        rest = list(words)
        while hasattr(found, "commands") and rest:
            word = rest.pop(0)
            assert word in found.commands
            found = found.commands[word]
        options = {option for parameter in found.params for option in parameter.opts}
        for word in rest:
            if word.startswith("--"):
                assert word in options
            elif word.startswith("examples/"):
                assert (ROOT / word).is_file()


def test_every_command_and_option_is_in_the_reference() -> None:
    group = typer.main.get_command(app)
    page = (ROOT / "docs" / "reference" / "cli.md").read_text()
    for command, found in group.commands.items():  # type: ignore[attr-defined]
        assert f"## penstock {command}\n" in page
        parts = getattr(found, "commands", {})
        assert all(f"penstock {command} {part}" in page for part in parts)
        for parameter in [p for one in (found, *parts.values()) for p in one.params]:
            assert all(option in page for option in parameter.opts if option.startswith("--"))


def test_errors_page_lists_every_code_and_no_other() -> None:
    page = (ROOT / "docs" / "reference" / "errors.md").read_text()
    classes = [
        found
        for found in vars(errors).values()
        if isinstance(found, type) and issubclass(found, errors.PenstockError)
    ]
    listed = re.findall(r"^\| `([A-Z_]+)` \| `(\w+)` \|", page, re.MULTILINE)
    assert sorted(listed) == sorted((found.code, found.__name__) for found in classes)
    assert sorted(re.findall(r"^## ([A-Z_]+)$", page, re.MULTILINE)) == sorted(code for code, _ in listed)


def test_connectors_page_names_every_transport() -> None:
    from penstock.connectors.registry import INPUTS, OUTPUTS

    page = (ROOT / "docs" / "reference" / "connectors.md").read_text()
    for transport in (*INPUTS, *OUTPUTS):
        assert f"\n## {transport}\n" in page


# -- the service ----------------------------------------------------------------------------------

SERVICE = ROOT / "penstock" / "service"
_ROUTE = re.compile(r"`((?:GET|POST|PUT|PATCH|DELETE) [^`]+)`")
_CALLED_WITH_CODE = {"ApiError": 1, "error_body": 0}


def test_rest_page_names_every_route_and_no_other(tmp_path: Path) -> None:
    from penstock.service.manager.server import create_app
    from penstock.service.manager.service import Service
    from penstock.service.manager.settings import Settings

    service = Service(Settings(directory=tmp_path))
    paths = create_app(service).openapi()["paths"]
    service.client.close()
    service.database.close()
    served = {f"{method.upper()} {path}" for path, methods in paths.items() for method in methods}
    page = (ROOT / "docs" / "reference" / "rest.md").read_text()
    assert {route.replace("...", "/v0/pipelines/{pipeline_name}") for route in _ROUTE.findall(page)} == served


def test_rest_page_names_every_error_code() -> None:
    page = (ROOT / "docs" / "reference" / "rest.md").read_text()
    found = set()
    for file in SERVICE.rglob("*.py"):
        for call in ast.walk(ast.parse(file.read_text())):
            if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
                continue
            place = _CALLED_WITH_CODE.get(call.func.id)
            if place is None or len(call.args) <= place:
                continue
            parts = ast.walk(call.args[place])
            found |= {str(part.value) for part in parts if isinstance(part, ast.Constant)}
    assert len(found) > 40
    assert {code for code in found if f"`{code}`" not in page} - {"input"} == set()


def test_metrics_page_names_every_metric_and_no_other() -> None:
    page = (ROOT / "docs" / "reference" / "metrics.md").read_text()
    of_manager = re.findall(r"# TYPE (penstock_\w+)", (SERVICE / "manager" / "metrics.py").read_text())
    of_runner = re.findall(r"yield \(?\s*\"(\w+)\"", (SERVICE / "runner" / "metrics.py").read_text())
    listed = re.findall(r"^\| `(penstock_\w+)` \|", page, re.MULTILINE)
    assert sorted(listed) == sorted({*of_manager, *(f"penstock_{metric}" for metric in of_runner)})
