"""What requests about pipelines may have in their bodies."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from penstock.service.errors import ApiError
from penstock.service.manager.configuration import program_config, runtime_config

NAME_PATTERN = "^([A-Za-z0-9][-A-Za-z0-9_]*)?[A-Za-z0-9]$"
_NAME_WORDS = (
    "be non-empty and only contain lowercase (a-z), uppercase (A-Z), number (0-9), underscore (_)"
    " or hyphen (-) characters, but cannot start or end with hyphen or underscore"
)
_LONGEST_NAME = 100


def _empty_if_null(given: Any) -> Any:
    return "" if given is None else given


def _none_if_null(given: Any) -> Any:
    return [] if given is None else given


Text = Annotated[str, BeforeValidator(_empty_if_null)]
Tags = Annotated[list[str], BeforeValidator(_none_if_null)]


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class PostPutPipeline(_Body):
    """A whole pipeline; what is left out is empty."""

    name: str
    program_code: str
    description: Text = ""
    tags: Tags = []
    runtime_config: dict[str, Any] | None = None
    program_config: dict[str, Any] | None = None
    udf_rust: Text = ""
    udf_toml: Text = ""

    def fields(self) -> dict[str, Any]:
        """As they are stored."""
        return {
            **self.model_dump(),
            "name": checked_name(self.name),
            "runtime_config": runtime_config(self.runtime_config),
            "program_config": program_config(self.program_config),
        }


class PatchPipeline(_Body):
    """Some fields of a pipeline; what is left out or null stays as it is."""

    name: str | None = None
    program_code: str | None = None
    description: str | None = None
    tags: list[str] | None = None
    runtime_config: dict[str, Any] | None = None
    program_config: dict[str, Any] | None = None
    udf_rust: str | None = None
    udf_toml: str | None = None

    def fields(self) -> dict[str, Any]:
        """Those that are given, as they are stored."""
        given = self.model_dump(exclude_none=True)
        if "name" in given:
            checked_name(given["name"])
        if "runtime_config" in given:
            given["runtime_config"] = runtime_config(given["runtime_config"])
        if "program_config" in given:
            given["program_config"] = program_config(given["program_config"])
        return given


class ValidateProgram(_Body):
    program_code: str
    runtime_version: str | None = None
    ir: bool = False


class DiffPipeline(_Body):
    program_code: str | None = None
    runtime_version: str | None = None


class NewApiKey(_Body):
    name: str
    role: Annotated[str, Field(pattern="^(read|write)$")] = "write"


def checked_name(name: str) -> str:
    """A name that follows the pattern and is not too long."""
    if len(name) > _LONGEST_NAME:
        raise ApiError(
            400,
            "TooLongName",
            f"Name '{name[:_LONGEST_NAME]}...' is longer ({len(name)}) than the maximum ({_LONGEST_NAME})",
            {"name": name[:_LONGEST_NAME], "length": len(name), "maximum": _LONGEST_NAME},
        )
    if re.fullmatch(NAME_PATTERN, name) is None:
        raise ApiError(
            400,
            "NameDoesNotMatchPattern",
            f"Name '{name}' should {_NAME_WORDS} (pattern: '{NAME_PATTERN}')",
            {"name": name, "pattern": NAME_PATTERN, "pattern_description": _NAME_WORDS},
        )
    return name
