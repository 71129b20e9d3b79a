"""What a host answers to the coordinator about its part of checkpoints in an object store."""

from __future__ import annotations

from fastapi import FastAPI, Response

from penstock.hosts.admission import refuse_others
from penstock.hosts.coordination import (
    PULL,
    PULL_STATUS,
    PUSH,
    Progress,
    PullPart,
    PullStatus,
    PushPart,
)
from penstock.hosts.duty import Duty
from penstock.hosts.names import refuse_names
from penstock.hosts.refusals import RefusalError

SYNC = "/checkpoint/sync"
"""Whoever takes a host for a whole pipeline is told so, whether they know its token or not."""

_ANSWER_SECONDS = 5.0
"""A push that takes longer is joined again and again by whoever asked for it."""


def add_routes(app: FastAPI, duty: Duty) -> None:
    """Push, pull, how the pull is, and where to go instead of `POST /checkpoint/sync`."""

    def refuse(part: PushPart) -> None:
        refuse_others(duty, part.membership.headers())
        refuse_names((batch.trace, batch.name) for batch in part.batches)

    @app.post(PUSH)
    def push(body: PushPart, response: Response) -> Progress:
        job = duty.part.pushes.begin(body, refuse)
        if not job.ended.wait(_ANSWER_SECONDS):
            response.status_code = 202
        if job.error is not None:
            raise job.error
        return job.progress

    @app.post(PULL, status_code=202)
    def pull(body: PullPart) -> Progress:
        return duty.part.pulls.begin(body, refuse).progress

    @app.get(PULL_STATUS)
    def pull_status() -> PullStatus:
        return duty.part.pull_status()

    @app.post(SYNC)
    def sync() -> None:
        raise RefusalError(
            400,
            "OnlyAPart",
            f"{duty} has only its part of the checkpoints, which its coordinator has it send with POST {PUSH}"
            " here. Ask the pipeline to copy a checkpoint: that is a copy of all parts.",
        )
