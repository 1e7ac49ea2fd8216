"""What a model must beat: bits per held-out character of character tables and of two compressors.

Tables: the next character given the last 0 to 3, counted on the training text and interpolated over context lengths by
Witten and Bell's rule,

    p_k(c | context) = (count(context c) + followers(context) * p_{k-1}(c | shorter context))
                       / (count(context) + followers(context)),

where followers is the number of different characters seen after the context, p_{-1} is uniform over the alphabet, and
a context that was never seen leaves p_{k-1} as it is. The first held-out characters have the training text's end as
context.

Compressors: size of training text and held-out text compressed together, minus size of the training text compressed
alone, in bits per held-out character, on UTF-8. They go on learning within the held-out text, which tables do not. lzma
gets a dictionary that covers the whole text, up to 1 GiB; bz2 works in blocks of 900,000 bytes and knows nothing of
earlier ones, so its difference depends on where blocks end and is a rough figure.
"""

from __future__ import annotations

import bz2
import lzma
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rnnops.cli.corpus import Corpus, Indices
from rnnops.errors import RnnopsError

MAX_ORDER = 3

Keys = npt.NDArray[np.unsignedinteger[Any]]
Counts = npt.NDArray[np.int64]
Probabilities = npt.NDArray[np.float64]


class TableError(RnnopsError):
    """A character table was asked for or used with arrays that do not fit."""


@dataclass(frozen=True, eq=False)
class Level:
    """Counts for one context length; sequences of characters are numbers in the base of the alphabet's size.

    Args:
        grams, gram_counts: context and next character, sorted, and how often each occurs.
        contexts, context_counts: contexts, sorted, and how often each is followed by anything.
        followers: how many different characters follow each context.
    """

    grams: Keys
    gram_counts: Counts
    contexts: Keys
    context_counts: Counts
    followers: Counts

    @classmethod
    def count(cls, grams: Keys, alphabet_size: int) -> Level:
        """Count every gram and every context by sorting."""
        unique, counts = np.unique(grams, return_counts=True)
        contexts, first, followers = np.unique(unique // unique.dtype.type(alphabet_size), True, False, True)
        return cls(unique, counts, contexts, np.add.reduceat(counts, first), followers)

    def refine(self, grams: Keys, shorter: Probabilities, alphabet_size: int) -> Probabilities:
        """Return each gram's probability of its last character, given that under the shorter context."""
        contexts = grams // grams.dtype.type(alphabet_size)
        totals = _look_up(self.contexts, self.context_counts, contexts)
        followers = _look_up(self.contexts, self.followers, contexts)
        counts = _look_up(self.grams, self.gram_counts, grams)
        blended = (counts + followers * shorter) / np.maximum(totals + followers, 1)
        return np.where(totals > 0, blended, shorter)


@dataclass(frozen=True, eq=False)
class CharacterTable:
    """Witten-Bell tables of all context lengths up to `order`."""

    levels: tuple[Level, ...]
    alphabet_size: int

    @classmethod
    def train(cls, text: Indices, alphabet_size: int, order: int = MAX_ORDER) -> CharacterTable:
        """Count contexts of 0 to `order` characters in `text`."""
        if not 0 <= order < len(text):
            raise TableError("a table does not fit its text", wanted=f"order 0 to {len(text) - 1}", came=order)
        if alphabet_size ** (order + 1) > 2**64:
            raise TableError("a table's contexts do not fit 64 bits", came=f"{alphabet_size} characters, order {order}")
        grams = (_grams(text, length, alphabet_size) for length in range(1, order + 2))
        return cls(tuple(Level.count(level_grams, alphabet_size) for level_grams in grams), alphabet_size)

    @property
    def order(self) -> int:
        """The longest context."""
        return len(self.levels) - 1

    def probabilities(self, text: Indices) -> list[Probabilities]:
        """Return for each order 0, 1, ... the probability of every character of `text` from index `order` on."""
        scored = len(text) - self.order
        current = np.full(scored, 1 / self.alphabet_size)
        result = []
        for length, level in enumerate(self.levels, 1):
            grams = _grams(text[self.order + 1 - length :], length, self.alphabet_size)
            current = level.refine(grams, current, self.alphabet_size)
            result.append(current)
        return result

    def distribution(self, context: Indices) -> Probabilities:
        """Return the probability of every character of the alphabet after the last `order` characters of `context`."""
        if len(context) < self.order:
            raise TableError("a context is too short", wanted=f"{self.order} characters", came=len(context))
        tail = np.tile(context[len(context) - self.order :], (self.alphabet_size, 1))
        rows = np.column_stack([tail, np.arange(self.alphabet_size)]).astype(np.uint8)
        return np.array([self.probabilities(row)[-1][0] for row in rows])

    def bits(self, text: Indices) -> list[float]:
        """Return for each order 0, 1, ... the mean bits of the characters of `text` from index `order` on."""
        return [float(-np.log2(values).mean()) for values in self.probabilities(text)]


def baselines(corpus: Corpus) -> dict[str, float]:
    """Return bits per held-out character by name: `order 0` .. `order 3`, `lzma`, `bz2`."""
    table = CharacterTable.train(corpus.train, len(corpus.alphabet))
    text = np.concatenate([corpus.train[-MAX_ORDER:], corpus.held_out])
    bits = {f"order {order}": value for order, value in enumerate(table.bits(text))}
    return bits | compressor_bits(corpus)


def compressor_bits(corpus: Corpus) -> dict[str, float]:
    """Return how many bits a held-out character adds to the compressed training text, for lzma and bz2."""
    train, held_out = (corpus.decode(part).encode("utf-8", "surrogatepass") for part in (corpus.train, corpus.held_out))
    texts = (train, train + held_out)
    compressors: tuple[Callable[[bytes], int], ...] = (_lzma_size, _bz2_size)
    with ThreadPoolExecutor(len(texts)) as pool:
        sizes = [list(pool.map(compressor, texts)) for compressor in compressors]
    differences = [(together - alone) * 8 / len(corpus.held_out) for alone, together in sizes]
    return dict(zip(("lzma", "bz2"), differences, strict=True))


def _lzma_size(data: bytes) -> int:
    dictionary = max(1 << 16, min(1 << 30, len(data)))
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 6, "dict_size": dictionary}]
    return len(lzma.compress(data, lzma.FORMAT_RAW, filters=filters))


def _bz2_size(data: bytes) -> int:
    return len(bz2.compress(data))


def _grams(text: Indices, length: int, alphabet_size: int) -> Keys:
    """Return every run of `length` characters as a number; the last character is the lowest digit."""
    dtype = np.uint32 if alphabet_size**length <= 2**32 else np.uint64
    grams: Keys = np.zeros(len(text) - length + 1, dtype)
    for offset in range(length):
        grams *= dtype(alphabet_size)
        grams += text[offset : len(text) - length + 1 + offset]
    return grams


def _look_up(keys: Keys, values: Counts, wanted: Keys) -> Counts:
    """Return the value of each wanted key, zero where there is none; `keys` is sorted."""
    places = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    return np.where(keys[places] == wanted, values[places], 0)
