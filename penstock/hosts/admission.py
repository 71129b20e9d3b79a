"""Who may ask a host for something: those who know the token, and mean this host of this incarnation."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from penstock.hosts.duty import Duty
from penstock.hosts.messages import Membership
from penstock.hosts.refusals import RefusalError, knows


class Admitted:
    """Lets through only requests of the coordinator that the host checked in with, and of its tasks; and what
    does nothing but say where else to ask, which is `free` to all."""

    def __init__(self, app: ASGIApp, duty: Duty, free: Collection[str] = ()) -> None:
        self._app = app
        self._duty = duty
        self._free = free

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] not in self._free:
            try:
                refuse_strangers(self._duty, Headers(scope=scope))
            except RefusalError as refusal:
                await refusal.answer()(scope, receive, send)
                return
        await self._app(scope, receive, send)


def refuse_strangers(duty: Duty, headers: Headers) -> None:
    """`RefusalError` unless the request is for this host, as it was started."""
    membership, token = _member(duty)
    if "authorization" not in headers:
        raise RefusalError(401, "Unauthorized", f"the request to {duty} carries no token")
    if not knows(headers, token):
        said = headers.get("penstock-incarnation", "none")
        raise RefusalError(
            401,
            "Unauthorized",
            f"the token of the request is not that of incarnation {membership.incarnation}, to which {duty}"
            f" belongs; the request says incarnation {said}. A token ends with the run of its coordinator.",
        )
    refuse_others(duty, headers)


@contextmanager
def changing(duty: Duty, request: Request) -> Iterator[None]:
    """Make files durable or delete them, if the request is still for this host as it is by now: it may have
    joined another run meanwhile, and joins none as long as this lasts."""
    with duty.changing:
        refuse_strangers(duty, request.headers)
        yield


def refuse_others(duty: Duty, given: Mapping[str, str]) -> None:
    """`RefusalError` if a membership, by the names of its headers, is another one; has both values."""
    own, _ = _member(duty)
    wrong = {name: (given.get(name), v) for name, v in own.headers().items() if given.get(name) != v}
    if wrong:
        texts = [f"{name}: the request says {a!r}, here it is {b!r}" for name, (a, b) in wrong.items()]
        details = {name: {"given": a, "own": b} for name, (a, b) in wrong.items()}
        raise RefusalError(
            400, "OtherMembership", f"the request is not for {duty}: {'; '.join(texts)}", details
        )


def _member(duty: Duty) -> tuple[Membership, str]:
    """To what the host belongs, and the token."""
    member = duty.member
    if member is None:
        raise RefusalError(
            503, "NotJoined", f"{duty} has not checked in with a coordinator yet: ask again later"
        )
    return member
