"""Completion tokens: a client that sent rows, or looks at a connector, asks later whether all of it is in."""

from __future__ import annotations

import base64
import binascii
import json
import threading
from collections import OrderedDict

from penstock.controller.sent import Sent

KEPT = 100_000
"""So many tokens are remembered; of older ones nothing is known, but that they are complete or lost."""


class UnknownTokenError(Exception):
    """The token is not one of this process, or was forgotten."""


class MalformedTokenError(Exception):
    """The text is no token at all."""


class Tokens:
    """The tokens of one incarnation of a pipeline."""

    def __init__(self, incarnation: str) -> None:
        self._incarnation = incarnation
        self._sent: OrderedDict[int, Sent] = OrderedDict()
        self._next = 0
        self._lock = threading.Lock()

    def give(self, sent: Sent) -> str:
        with self._lock:
            number = self._next
            self._next += 1
            self._sent[number] = sent
            if len(self._sent) > KEPT:
                self._sent.popitem(last=False)
        text = json.dumps([self._incarnation, number])
        return base64.urlsafe_b64encode(text.encode()).decode()

    def find(self, token: str) -> Sent:
        try:
            incarnation, number = json.loads(base64.urlsafe_b64decode(token.encode()))
        except (ValueError, binascii.Error, TypeError) as error:
            raise MalformedTokenError(token) from error
        with self._lock:
            found = self._sent.get(number) if incarnation == self._incarnation else None
        if found is None:
            raise UnknownTokenError(token)
        return found
