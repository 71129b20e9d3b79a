"""Text strategies over whole arrays of row indices."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.connectors.input.datagen.chance import Words, below, stream, words
from penstock.connectors.input.datagen.words import LISTS, TEMPLATES

Text = Callable[[Words], pa.Array]

_PART = re.compile(r"\{(\w+)\}|([#^%])|([^{#^%]+)")

_ALPHABET = np.frombuffer(b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz", dtype=np.uint8)


@dataclass(frozen=True)
class Repeats:
    """How often each row repeats something: the items of all rows have indices of their own."""

    index: Words
    offsets: pa.Array

    @classmethod
    def of(cls, rows: Words, counts: Words, limit: int) -> Repeats:
        """`limit` is above every count, so no two rows share the index of an item."""
        ends = np.cumsum(counts, dtype=np.int64)
        offsets = np.concatenate([np.zeros(1, np.int64), ends])
        position = np.arange(int(offsets[-1]), dtype=np.int64) - np.repeat(
            offsets[:-1], counts.astype(np.int64)
        )
        index = np.repeat(rows * np.uint64(max(limit, 1)), counts.astype(np.int64)) + position.astype(
            np.uint64
        )
        return cls(index, pa.array(offsets.astype(np.int32)))


def text_strategy(name: str, seed: int, plan: int, path: str, bounds: tuple[int, int] | None) -> Text:
    """The generator of one text strategy; `bounds` is how often the repeated ones repeat."""
    if name == "words":
        return _joined(text_strategy("word", seed, plan, path, None), bounds or (2, 6), " ", seed, plan, path)
    if name == "sentence":
        line = _joined(
            text_strategy("word", seed, plan, path, None), bounds or (4, 12), " ", seed, plan, path
        )
        return lambda rows: pc.binary_join_element_wise(pc.utf8_capitalize(line(rows)), "", ".")
    if name in ("sentences", "paragraph"):
        sentence = text_strategy("sentence", seed, plan, path + "/sentence", None)
        return _joined(sentence, bounds or (2, 5), " ", seed, plan, path)
    if name == "paragraphs":
        paragraph = text_strategy("paragraph", seed, plan, path + "/paragraph", None)
        return _joined(paragraph, bounds or (2, 4), "\n", seed, plan, path)
    return _template(TEMPLATES.get(name, f"{{{name}}}"), seed, plan, path)


def _template(template: str, seed: int, plan: int, path: str) -> Text:
    parts: list[Text | str] = []
    for number, (name, symbol, literal) in enumerate(_PART.findall(template)):
        if literal:
            parts.append(literal)
        else:
            parts.append(_picked(LISTS[name or symbol], stream(seed, plan, f"{path}/{number}")))

    def make(rows: Words) -> pa.Array:
        made = [part if isinstance(part, str) else part(rows) for part in parts]
        return made[0] if len(made) == 1 else pc.binary_join_element_wise(*made, "")

    return make


def _picked(choices: list[str], key: np.uint64) -> Text:
    values = pa.array(choices, pa.string())
    return lambda rows: values.take(pa.array(below(words(key, rows), len(choices))))


def _joined(element: Text, bounds: tuple[int, int], separator: str, seed: int, plan: int, path: str) -> Text:
    low, high = bounds
    key = stream(seed, plan, path + "/count")

    def make(rows: Words) -> pa.Array:
        counts = below(words(key, rows), high - low) + np.uint64(low)
        repeats = Repeats.of(rows, counts, high)
        return pc.binary_join(pa.ListArray.from_arrays(repeats.offsets, element(repeats.index)), separator)

    return make


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
