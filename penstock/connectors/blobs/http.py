"""What a URL gives.

A server that answers requests for ranges is read by many tasks; from any other one task reads everything.
What the server says about the version (size, ETag, date) is kept, so that another version is noticed.
"""

from __future__ import annotations

import hashlib
import http.client
import re
import ssl
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from typing import Any, BinaryIO, ClassVar, Self, cast

from penstock.connectors.blobs.interface import Blob, range_file
from penstock.errors import ConnectorError, UnreachableError
from penstock.references import resolved

_TIMEOUT_SECONDS = 60
_CHUNK_BYTES = 1 << 20
_IN_MEMORY_BYTES = 64 << 20

_AGAIN_LATER = frozenset({408, 425, 429})


@dataclass(frozen=True)
class Version:
    """What is known of the bytes a URL gave; `sha256` only where the server tells too little."""

    url: str
    size: int
    etag: str | None
    modified: str | None
    ranges: bool
    sha256: str | None = None


class HttpBlob(Blob):
    """One version of what a URL gives; the URL may hold references to secrets."""

    source: ClassVar[str] = "url"

    def __init__(self, version: Version) -> None:
        self.label = version.url
        self.whole = not version.ranges
        self._version = version

    @classmethod
    def find(cls, url: str) -> Self:
        """The present version; asks the server."""
        with _answer(url, "bytes=0-") as response:
            if response is None:
                return cls(Version(url, 0, None, None, ranges=True))
            total = _total(response)
            etag, modified = response.headers["ETag"], response.headers["Last-Modified"]
            if response.status == 206 and total is not None:
                return cls(Version(url, total, etag, modified, ranges=True))
            length = response.headers["Content-Length"]
            if response.status == 200 and length is not None and (etag or modified):
                return cls(Version(url, int(length), etag, modified, ranges=False))
        with _answer(url, None) as response:
            size, digest = _copied(response)
        return cls(Version(url, size, None, None, ranges=False, sha256=digest))

    @classmethod
    def again(cls, identity: Mapping[str, Any]) -> Self:
        """The version of an identity, to be read once more."""
        return cls(Version(**identity["version"]))

    @property
    def identity(self) -> Mapping[str, Any]:
        return {"version": asdict(self._version)}

    def size(self) -> int:
        return self._version.size

    def open(self) -> BinaryIO:
        return range_file(self._version.size, self._range) if self._version.ranges else self._everything()

    def _range(self, start: int, end: int) -> bytes:
        with _answer(self.label, f"bytes={start}-{end - 1}") as response:
            if response is None or (response.status == 206 and _total(response) != self._version.size):
                raise self._changed("its size is another one")
            self._check(response)
            if response.status != 206:
                raise UnreachableError(
                    f"{self.label}: the server did not answer with the range that was asked"
                )
            data = response.read()
        if len(data) != end - start:
            raise UnreachableError(f"{self.label}: {len(data)} of {end - start} bytes came")
        return data

    def _everything(self) -> BinaryIO:
        with ExitStack() as stack:
            file = stack.enter_context(tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY_BYTES))
            with _answer(self.label, None) as response:
                self._check(response)
                size, digest = _copied(response, file)
            if size != self._version.size or self._version.sha256 not in (None, digest):
                raise self._changed("its content is another one")
            file.seek(0)
            stack.pop_all()  # the caller closes it
        return cast(BinaryIO, file)

    def _check(self, response: http.client.HTTPResponse | None) -> None:
        if response is None:
            raise self._changed("it is empty now")
        for name, expected in (("ETag", self._version.etag), ("Last-Modified", self._version.modified)):
            found = response.headers[name]
            if expected is not None and found is not None and found != expected:
                raise self._changed(f"its {name} was {expected} and is {found}")
            if expected is not None and found is not None:
                return  # the ETag says more than the date

    def _changed(self, how: str) -> ConnectorError:
        return ConnectorError(
            f"{self.label} changed after it was first read: {how}. Put the old content back, or give the new "
            "content a new URL; to read everything anew, start with an empty storage directory"
        )


@contextmanager
def _answer(url: str, span: str | None) -> Iterator[http.client.HTTPResponse | None]:
    """The answer to one request; None if there is nothing in the range that was asked for."""
    headers = {"Accept-Encoding": "identity"} | ({} if span is None else {"Range": span})
    try:
        with urllib.request.urlopen(
            urllib.request.Request(resolved(url), headers=headers), timeout=_TIMEOUT_SECONDS
        ) as response:
            yield response
    except urllib.error.HTTPError as error:
        with error:
            if error.code != 416:
                raise _refusal(url, error) from error
        yield None
    except (http.client.InvalidURL, ssl.SSLCertVerificationError, ValueError) as error:
        raise ConnectorError(f"{url} cannot be read: {error}; correct the URL or the server") from error
    except (OSError, http.client.HTTPException) as error:
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        if isinstance(reason, ssl.SSLCertVerificationError):
            raise ConnectorError(f"{url}: {reason}; trust the server's certificate, or correct it") from error
        raise UnreachableError(f"{url} does not answer: {reason or type(reason).__name__}") from error


def _refusal(url: str, error: urllib.error.HTTPError) -> ConnectorError:
    said = f"{error.code} {error.reason}"
    if error.code >= 500 or error.code in _AGAIN_LATER:
        return UnreachableError(f"{url} answers {said}")
    if error.code in (404, 410):
        return ConnectorError(
            f"{url} answers {said}: nothing is there; correct the URL, or put the file there"
        )
    if error.code in (401, 403):
        return ConnectorError(
            f"{url} answers {said}: it may not be read; permit it, or give the URL a token as ${{env:NAME}}"
        )
    return ConnectorError(f"{url} answers {said}; open the URL in a browser to see what is wrong")


def _total(response: http.client.HTTPResponse) -> int | None:
    """The size of everything, from `Content-Range: bytes 0-9/100`."""
    found = re.fullmatch(r"bytes \d+-\d+/(\d+)", response.headers["Content-Range"] or "")
    return None if found is None else int(found.group(1))


def _copied(response: http.client.HTTPResponse | None, file: Any = None) -> tuple[int, str]:
    """Size and SHA-256 of the rest of an answer, which is written to the file, if there is one."""
    digest, size = hashlib.sha256(), 0
    while response is not None and (data := response.read(_CHUNK_BYTES)):
        digest.update(data)
        size += len(data)
        if file is not None:
            file.write(data)
    expected = None if response is None else response.headers["Content-Length"]
    if expected is not None and int(expected) != size:
        raise http.client.IncompleteRead(b"", int(expected) - size)
    return size, digest.hexdigest()
