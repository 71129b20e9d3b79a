"""Text strategies over whole arrays of row indices."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.connectors.input.datagen.chance import Origin, Words, below, words
from penstock.connectors.input.datagen.words import CHECK_DIGITS, LISTS, LOWER, TEMPLATES

Text = Callable[[Words], pa.Array]

Bytes = npt.NDArray[np.uint8]

_PART = re.compile(r"\{(\w+)\}|([^{]+)")


def _ascii(characters: str) -> Bytes:
    return np.frombuffer(characters.encode("ascii"), dtype=np.uint8)


_SYMBOLS = {
    ord("#"): _ascii("0123456789"),
    ord("^"): _ascii("123456789"),
    ord("%"): _ascii("0123456789abcdef"),
}

_ALPHABET = _ascii("0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz")

_MAX_ITEMS = 1 << 24
"""Most characters, words or elements of one column in one batch: memory stays small, and offsets fit."""


class TooMuchError(Exception):
    """The rows of a batch repeat something more often than a batch can hold."""


@dataclass(frozen=True)
class Repeats:
    """How often each row repeats something: the items of all rows have indices of their own."""

    index: Words
    offsets: pa.Array

    @classmethod
    def of(cls, rows: Words, counts: Words, limit: int) -> Repeats:
        """`limit` is above every count, so no two rows share the index of an item."""
        sizes = counts.astype(np.int64)
        offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])
        total = int(offsets[-1])
        if total > _MAX_ITEMS:
            raise TooMuchError(f"{total} items in {len(rows)} rows, expected at most {_MAX_ITEMS}")
        first = rows * np.uint64(max(limit, 1)) - offsets[:-1].astype(np.uint64)
        index = np.repeat(first, sizes) + np.arange(total, dtype=np.uint64)
        return cls(index, pa.array(offsets.astype(np.int32)))


def text_strategy(name: str, origin: Origin, path: str, bounds: tuple[int, int] | None) -> Text:
    """The generator of one text strategy; `bounds` is how often the repeated ones repeat."""
    if name == "password":
        return _password(bounds or (8, 16), origin, path)
    if name == "words":
        return _joined(text_strategy("word", origin, path, None), bounds or (2, 6), " ", origin, path)
    if name == "sentence":
        line = _joined(text_strategy("word", origin, path, None), bounds or (4, 12), " ", origin, path)
        return lambda rows: _sentence(line(rows))
    if name in ("sentences", "paragraph"):
        sentence = text_strategy("sentence", origin, path + "/sentence", None)
        return _joined(sentence, bounds or (2, 5), " ", origin, path)
    if name == "paragraphs":
        paragraph = text_strategy("paragraph", origin, path + "/paragraph", None)
        return _joined(paragraph, bounds or (2, 4), "\n", origin, path)
    if name == "ip":
        return _either(
            text_strategy("ipv4", origin, path, None), text_strategy("ipv6", origin, path, None), origin, path
        )
    if name in CHECK_DIGITS:
        return _layout(TEMPLATES[name], origin, path, CHECK_DIGITS[name])
    made = _template(TEMPLATES.get(name, f"{{{name}}}"), origin, path)
    return (lambda rows: pc.ascii_lower(made(rows))) if name in LOWER else made


def _sentence(line: pa.Array) -> pa.Array:
    """With a capital letter and a full stop; nothing stays nothing."""
    ended = pc.binary_join_element_wise(pc.utf8_capitalize(line), "", ".")
    return pc.if_else(pc.equal(line, ""), line, ended)


def _template(template: str, origin: Origin, path: str) -> Text:
    parts: list[Text | str] = []
    for number, (name, layout) in enumerate(_PART.findall(template)):
        place = f"{path}/{number}"
        if name:
            parts.append(_picked(LISTS[name], origin.stream(place)))
        elif _SYMBOLS.keys() & set(layout.encode()):
            parts.append(_layout(layout, origin, place))
        else:
            parts.append(layout)

    def make(rows: Words) -> pa.Array:
        made = [part if isinstance(part, str) else part(rows) for part in parts]
        return made[0] if len(made) == 1 else pc.binary_join_element_wise(*made, "")

    return make


def _picked(choices: list[str], key: np.uint64) -> Text:
    values = pa.array(choices, pa.string())
    return lambda rows: values.take(pa.array(below(words(key, rows), len(choices))))


def _layout(layout: str, origin: Origin, path: str, check: Callable[[Any], Bytes] | None = None) -> Text:
    """Text of a fixed width, with a random character for each symbol and perhaps a check digit at the end."""
    pattern = _ascii(layout)
    symbols = [
        (at, _SYMBOLS[symbol], origin.stream(f"{path}/{at}"))
        for at, symbol in enumerate(pattern.tolist())
        if symbol in _SYMBOLS
    ]

    def make(rows: Words) -> pa.Array:
        made = np.tile(pattern, (len(rows), 1))
        for at, alphabet, key in symbols:
            made[:, at] = alphabet[below(words(key, rows), len(alphabet))]
        if check is not None and len(rows):
            made[:, -1] = check(made[:, :-1])
        ends = np.arange(len(rows) + 1, dtype=np.int32) * np.int32(len(pattern))
        return pa.Array.from_buffers(
            pa.string(), len(rows), [None, pa.py_buffer(ends), pa.py_buffer(made.tobytes())]
        )

    return make


def _either(one: Text, other: Text, origin: Origin, path: str) -> Text:
    key = origin.stream(path + "/either")
    return lambda rows: pc.if_else(pa.array(below(words(key, rows), 2) == 0), one(rows), other(rows))


def _joined(element: Text, bounds: tuple[int, int], separator: str, origin: Origin, path: str) -> Text:
    low, high = bounds
    key = origin.stream(path + "/count")

    def make(rows: Words) -> pa.Array:
        counts = below(words(key, rows), high - low) + np.uint64(low)
        repeats = Repeats.of(rows, counts, high)
        return pc.binary_join(pa.ListArray.from_arrays(repeats.offsets, element(repeats.index)), separator)

    return make


def _password(bounds: tuple[int, int], origin: Origin, path: str) -> Text:
    low, high = bounds
    count, key = origin.stream(path + "/count"), origin.stream(path + "/text")
    return lambda rows: random_bytes(
        rows, below(words(count, rows), high - low) + np.uint64(low), high, key, pa.string()
    )


def random_bytes(rows: Words, lengths: Words, limit: int, key: np.uint64, kind: pa.DataType) -> pa.Array:
    """Random letters and digits (for strings) or any bytes (for binary), of the given lengths."""
    repeats = Repeats.of(rows, lengths, limit)
    random = words(key, repeats.index)
    data = (
        _ALPHABET[below(random, len(_ALPHABET))]
        if kind == pa.string()
        else below(random, 256).astype(np.uint8)
    )
    buffers = [None, repeats.offsets.buffers()[1], pa.py_buffer(data.tobytes())]
    return pa.Array.from_buffers(kind, len(rows), buffers)
