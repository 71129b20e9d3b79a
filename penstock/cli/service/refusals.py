"""Why a command could not do what was asked: a text, what to do next, and an exit code."""

from __future__ import annotations

from typing import Any

from rich.text import Text

from penstock.cli.exit_codes import ExitCode


class CommandError(Exception):
    """A command ends here."""

    def __init__(
        self,
        exit_code: ExitCode,
        message: str,
        *,
        code: str | None = None,
        details: Any = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message)
        self.exit_code = exit_code
        self.message = message
        self.code = code
        self.details = details
        self.hint = hint

    def shown(self) -> Text:
        """For a person."""
        mark = "error" if self.code is None else f"error[{self.code}]"
        return Text.assemble((mark, "bold red"), f": {self.message}")

    def plain(self) -> dict[str, Any]:
        """In the form that the service has for errors."""
        return {"message": self.message, "error_code": self.code, "details": self.details}


_STATUSES = {
    401: ExitCode.NOT_ALLOWED,
    403: ExitCode.NOT_ALLOWED,
    404: ExitCode.NOT_FOUND,
    405: ExitCode.REFUSED,
    409: ExitCode.REFUSED,
    502: ExitCode.UNREACHABLE,
    503: ExitCode.UNREACHABLE,
    504: ExitCode.UNREACHABLE,
}
_CODES = {
    "BootstrapPolicyImmutableUnlessStopped": ExitCode.REFUSED,
    "DeleteRestrictedToClearedStorage": ExitCode.REFUSED,
    "DeleteRestrictedToFullyStopped": ExitCode.REFUSED,
    "DismissErrorRestrictedToFullyStopped": ExitCode.REFUSED,
    "EditRestrictedToClearedStorage": ExitCode.REFUSED,
    "IllegalPipelineAction": ExitCode.REFUSED,
    "IncarnationUuidMismatch": ExitCode.REFUSED,
    "InitialImmutableUnlessStopped": ExitCode.REFUSED,
    "InitialStandbyNotAllowed": ExitCode.REFUSED,
    "InvalidStorageStatusTransition": ExitCode.REFUSED,
    "PipelineInteractionNotDeployed": ExitCode.REFUSED,
    "PipelinePaused": ExitCode.REFUSED,
    "ProgramNotCompiled": ExitCode.REFUSED,
    "STATE_ERROR": ExitCode.REFUSED,
    "StorageStatusImmutableUnlessStopped": ExitCode.REFUSED,
    "UpdateRestrictedToStopped": ExitCode.REFUSED,
    "AdHocQueryError": ExitCode.FAILED,
    "ParseErrors": ExitCode.FAILED,
}
_START = "Start it: penstock start {name}"
_STOP = "Stop it first: penstock stop {name}"
_CLEAR = "Give up its state first: penstock clear {name}"
_KEY = "Give a key that is known with PENSTOCK_API_KEY or --api-key"
_HINTS = {
    "DeleteRestrictedToClearedStorage": _CLEAR,
    "DeleteRestrictedToFullyStopped": _STOP,
    "DismissErrorRestrictedToFullyStopped": _STOP,
    "EditRestrictedToClearedStorage": _CLEAR,
    "InvalidApiKey": _KEY,
    "MissingCredentials": _KEY,
    "NoTransactionInProgress": "Open one: penstock transaction start {name}",
    "PayloadTooLarge": "Send it in parts; --max-body of penstock serve is the limit",
    "PipelineInteractionNotDeployed": _START,
    "PipelinePaused": "Resume it with penstock resume {name}, or use --force",
    "StorageStatusImmutableUnlessStopped": _STOP,
    "TransactionInProgress": "End it first: penstock transaction commit {name}",
    "UnknownPipelineName": "penstock pipelines lists those that there are",
    "UpdateRestrictedToStopped": _STOP,
}


def refused(status: int, body: Any) -> CommandError:
    """What an answer that is no success means."""
    if not isinstance(body, dict) or "message" not in body:
        said = str(body).strip()[:300]
        return CommandError(_exit_code(status, ""), f"The service answered {status}: {said or 'nothing'}")
    code = str(body.get("error_code"))
    return CommandError(
        _exit_code(status, code),
        str(body["message"]),
        code=code,
        details=body.get("details"),
        hint=_HINTS.get(code),
    )


def _exit_code(status: int, code: str) -> ExitCode:
    """By the code where it says more than the status: 400 is a wrong request, and much else."""
    if code in _CODES:
        return _CODES[code]
    if status in _STATUSES:
        return _STATUSES[status]
    is_of_a_pipeline = code.isupper()
    return ExitCode.USAGE if status in (400, 413) and not is_of_a_pipeline else ExitCode.FAILED
