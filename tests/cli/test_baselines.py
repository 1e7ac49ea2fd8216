"""Baselines against slow independent computations: a table in plain Python, and known compressor sizes."""

from __future__ import annotations

import bz2
import math
from collections import Counter, defaultdict

import numpy as np
import pytest

from rnnops.cli.corpus import CharacterTable, TableError, baselines, compressor_bits, corpus_of, load_text

SIZE = 5


def skewed_text(length: int, seed: int = 0, size: int = SIZE) -> np.ndarray:
    """A text in which the next character depends on the last."""
    rng = np.random.default_rng(seed)
    steps = rng.choice(size, length, p=np.arange(size, 0, -1) / (size * (size + 1) / 2))
    return (np.cumsum(steps) % (size - 1)).astype(np.uint8)  # the last character of the alphabet never occurs


def slow_probability(text: list[int], context: tuple[int, ...], character: int, size: int) -> float:
    """Witten and Bell's rule in plain Python."""
    followers: defaultdict[tuple[int, ...], Counter[int]] = defaultdict(Counter)
    for order in range(len(context) + 1):
        for end in range(order, len(text)):
            followers[tuple(text[end - order : end])][text[end]] += 1
    probability = 1 / size
    for order in range(len(context) + 1):
        counts = followers[context[len(context) - order :]]
        if counts:
            probability = (counts[character] + len(counts) * probability) / (counts.total() + len(counts))
    return probability


@pytest.mark.parametrize("order", [0, 1, 2, 3])
def test_probabilities_are_those_of_the_rule(order):
    text, seen = skewed_text(300), skewed_text(40, seed=1)
    seen[7] = SIZE - 1  # never occurs in training
    values = CharacterTable.train(text, SIZE, order).probabilities(seen)[-1]
    wanted = [
        slow_probability(text.tolist(), tuple(seen[end - order : end].tolist()), int(seen[end]), SIZE)
        for end in range(order, len(seen))
    ]
    np.testing.assert_allclose(values, wanted, rtol=1e-12)


def distribution_after(context: np.ndarray, table: CharacterTable) -> np.ndarray:
    """The probability of every character of the alphabet after the last `order` characters of a context."""
    tail = np.tile(context[len(context) - table.order :], (table.alphabet_size, 1))
    rows = np.column_stack([tail, np.arange(table.alphabet_size)]).astype(np.uint8)
    return np.array([table.probabilities(row)[-1][0] for row in rows])


@pytest.mark.parametrize("context", [[0, 1, 2], [4, 4, 4], [0, 4, 1], [4, 0, 0]])
@pytest.mark.parametrize("order", [0, 1, 2, 3])
def test_probabilities_sum_to_one(order, context):
    table = CharacterTable.train(skewed_text(300), SIZE, order)
    distribution = distribution_after(np.array(context, np.uint8), table)
    assert distribution.shape == (SIZE,)
    assert distribution.sum() == pytest.approx(1, abs=1e-12)
    assert distribution.min() > 0


def test_order_0_is_the_cross_entropy():
    train, held_out = skewed_text(5_000), skewed_text(500, seed=1)
    counts = Counter(train.tolist())
    probability = {c: (counts[c] + len(counts) / SIZE) / (len(train) + len(counts)) for c in range(SIZE)}
    wanted = -sum(math.log2(probability[c]) for c in held_out.tolist()) / len(held_out)
    assert CharacterTable.train(train, SIZE, 0).bits(held_out) == [pytest.approx(wanted, rel=1e-12)]


def test_all_orders_score_the_same_characters():
    train, held_out = skewed_text(5_000), skewed_text(500, seed=1)
    together = CharacterTable.train(train, SIZE).bits(held_out)
    alone = [CharacterTable.train(train, SIZE, order).bits(held_out[3 - order :])[-1] for order in range(4)]
    assert together == pytest.approx(alone, rel=1e-12)


def test_a_periodic_text_is_learnt():
    text = np.tile(np.array([0, 1, 0, 2], np.uint8), 2_000)
    bits = CharacterTable.train(text, 3).bits(text[:400])
    assert bits[0] == pytest.approx(1.5, abs=0.01)
    assert bits[1] == pytest.approx(0.5, abs=0.01)
    assert bits[2] < 0.01


def test_alphabet_of_256_fits_its_keys():
    text = np.tile(np.arange(256, dtype=np.uint8), 4)
    assert CharacterTable.train(text, 256).bits(text)[-1] < 1
    assert distribution_after(text[250:256], CharacterTable.train(text, 256, 5)).argmax() == 0


def test_tables_refuse_what_does_not_fit():
    text = skewed_text(300)
    with pytest.raises(TableError, match="does not fit its text; wanted order 0 to 299; got 300"):
        CharacterTable.train(text, SIZE, 300)
    with pytest.raises(TableError, match="64 bits"):
        CharacterTable.train(text, 256, 8)


def test_compressors_count_only_what_held_out_text_adds():
    corpus = corpus_of("".join(np.random.default_rng(0).choice(list("abcdefgh"), 40_000)))
    bits = compressor_bits(corpus)
    train, held_out = corpus.decode(corpus.train).encode(), corpus.decode(corpus.held_out).encode()
    assert bits["bz2"] == (len(bz2.compress(train + held_out)) - len(bz2.compress(train))) * 8 / 2_000
    assert 2.9 < bits["lzma"] < 3.8
    assert 2.9 < bits["bz2"] < 3.8


def test_baselines_of_source_code_are_ordered():
    bits = baselines(load_text(max_bytes=500_000))
    assert list(bits) == ["order 0", "order 1", "order 2", "order 3", "lzma", "bz2"]
    orders = list(bits.values())[:4]
    assert orders == sorted(orders, reverse=True)
    assert 4 < bits["order 0"] < 5.5
    assert 1.5 < bits["order 3"] < 3
    assert 1 < bits["lzma"] < 3
