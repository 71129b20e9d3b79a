"""Errors carry a stable code, and a program's errors say where they are."""

from __future__ import annotations

import inspect

import pytest

from penstock import errors
from penstock.errors import PenstockError, ProgramError

ERRORS = [cls for _, cls in inspect.getmembers(errors, inspect.isclass) if issubclass(cls, PenstockError)]


def test_every_error_has_its_own_code() -> None:
    codes = [cls.code for cls in ERRORS]
    assert len(set(codes)) == len(codes)
    assert all(code == code.upper() and code.isidentifier() for code in codes)


@pytest.mark.parametrize("cls", ERRORS, ids=lambda cls: cls.__name__)
def test_every_error_says_what_it_means_in_one_line(cls: type[PenstockError]) -> None:
    assert "__doc__" in vars(cls)
    assert len((cls.__doc__ or "").strip().splitlines()) == 1


def test_a_program_error_says_where_and_in_which_statement() -> None:
    error = ProgramError("unknown type 'TEXT'", line=3, column=7, statement="statement 1, CREATE TABLE t")
    assert str(error) == "line 3, column 7: unknown type 'TEXT' (in statement 1, CREATE TABLE t)"
    assert (error.line, error.column, error.message) == (3, 7, "unknown type 'TEXT'")


def test_a_program_error_without_a_place_is_its_message() -> None:
    assert str(ProgramError("the program is empty")) == "the program is empty"
