"""Attention of all four types around several decoders: all inputs and parameters against central differences."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from checks import check_gradient
from random_feeds import bits, random_feeds

import rnnops as ro
from rnnops.cells.attention import ATTENTION_TYPES

T, N, D, H, S, E = 2, 3, 2, 2, 3, 2


def decoder(kind: str, memory: bool) -> ro.cells.RNNCell:
    options: dict[str, Any] = {"memory_optimization": memory}
    if kind == "stack":
        cells = [ro.cells.LSTMCell(D, H, name="low", **options), ro.cells.GRUCell(H, H, name="high", **options)]
        return ro.cells.MultiRNNCell(cells, [1])
    classes = {"lstm": ro.cells.LSTMCell, "milstm": ro.cells.MILSTMCell, "gru": ro.cells.GRUCell}
    return classes[kind](D, H, name="decoder", drop_states=kind == "gru", **options)


def attention(
    kind: str, attention_type: str, memory: bool = False, encoder_size: int = E, ratio: float | None = None
) -> tuple[ro.Net, dict[str, np.ndarray]]:
    """A decoder with attention, encoder rows of length 0 and decoder rows of unequal length."""
    net = ro.Net(f"{attention_type}_{kind}")
    x, encoder = net.inputs("x", "encoder")
    lengths, encoder_lengths = net.input("lengths", "int32"), net.input("encoder_lengths", "int32")
    cell: ro.cells.RNNCell = ro.cells.AttentionCell(
        encoder_size,
        encoder,
        encoder_lengths,
        decoder(kind, memory),
        H,
        attention_type,
        attention_memory_optimization=memory,
        name="att",
    )
    cell = ro.cells.DropoutCell(cell, ratio) if ratio else cell
    output, states = cell.apply_over_sequence(net, x, lengths)
    net.outputs(output=output, **{f"state{i}": blob for i, blob in enumerate(states)})
    rows = {"lengths": np.array([2, 0, 1], np.int32), "encoder_lengths": np.array([1, 3, 0], np.int32)}
    return net, random_feeds(net, x=(T, N, D), encoder=(S, N, encoder_size), **rows)


# each decoder with each type of attention: below, in one test or another; stacks lie around the ones here
@pytest.mark.covering(1)
@pytest.mark.parametrize("attention_type", ATTENTION_TYPES)
@pytest.mark.parametrize("kind", ["lstm", "milstm", "gru", "stack"])
def test_attention(kind: str, attention_type: str) -> None:
    net, feeds = attention(kind, attention_type)
    check_gradient(net, feeds)
    optimized, _ = attention(kind, attention_type, memory=True)
    assert bits(optimized, feeds) == bits(net, feeds)


@pytest.mark.parametrize("attention_type", ATTENTION_TYPES)
def test_encoders_of_another_size(attention_type: str) -> None:
    check_gradient(*attention("gru", attention_type, memory=True, encoder_size=3))


def test_dropout_around_attention() -> None:
    results = []
    for memory in (False, True):
        net, feeds = attention("lstm", "recurrent", memory, ratio=0.5)
        check_gradient(net, feeds, seed=3)
        results.append(bits(net, feeds, seed=3))
    assert results[0] == results[1]


@pytest.mark.parametrize("attention_type", ATTENTION_TYPES)
@pytest.mark.parametrize("cell_class", [ro.cells.LSTMWithAttentionCell, ro.cells.MILSTMWithAttentionCell])
def test_cells_with_attention(cell_class: Any, attention_type: str) -> None:
    """Given initial states, without lengths, with the encoder weighted elsewhere."""
    net = ro.Net("given")
    x, encoder, weighted = net.inputs("x", "encoder", "weighted")
    cell = cell_class(E, encoder, None, D, H, attention_type, weighted_encoder_outputs=weighted, forget_bias=0.5)
    output, states = cell.apply_over_sequence(net, x, None, list(net.inputs("h", "c", "context")))
    net.outputs(output=output, last=states[-1])
    shapes = {"x": (T, N, D), "encoder": (S, N, E), "weighted": (S, N, E), "h": (N, H), "c": (H,), "context": (1, N, E)}
    check_gradient(net, random_feeds(net, **shapes))


def test_a_decoder_on_an_encoder() -> None:
    """The encoder is a recurrence itself, of rows with lengths; its gradients pass through attention alone."""
    net = ro.Net("translation")
    source, target = net.inputs("source", "target")
    lengths = net.input("source_lengths", "int32")
    encoded, *_ = ro.GRU(net, source, lengths, None, D, E, scope="encoder", drop_states=True)
    cell = ro.cells.LSTMWithAttentionCell(E, encoded, lengths, D, H, "soft_coverage", name="decoder")
    output, _ = cell.apply_over_sequence(net, target)
    net.outputs(output=output)
    rows = np.array([0, 1, 3], np.int32)
    check_gradient(net, random_feeds(net, source=(S, N, D), target=(T, N, D), source_lengths=rows))


@pytest.mark.parametrize("attention_type", ATTENTION_TYPES)
def test_unrolled_attention(attention_type: str) -> None:
    stepped, feeds = attention("milstm", attention_type)
    net = ro.Net("unrolled")
    x, encoder = net.inputs("x", "encoder")
    lengths, encoder_lengths = net.input("lengths", "int32"), net.input("encoder_lengths", "int32")
    inner = ro.cells.AttentionCell(E, encoder, encoder_lengths, decoder("milstm", False), H, attention_type, name="att")
    output, states = ro.cells.UnrolledCell(inner, T).apply_over_sequence(net, x, lengths)
    net.outputs(output=output, last=states[-1])
    unrolled_feeds = {name: feeds[name] for name in net.input_names}
    check_gradient(net, unrolled_feeds)
    wanted = ro.compile(stepped, device="reference")(feeds)["output"]
    came = ro.compile(net, device="reference")(unrolled_feeds)["output"]
    np.testing.assert_allclose(came, wanted, rtol=0, atol=1e-13)
