"""Recomputed blobs, chained and nested recurrences: right gradients, and the same bits with or without recompute."""

from __future__ import annotations

from collections.abc import Sequence

from checks import check_gradient
from random_feeds import bits, random_feeds
from stepped_nets import SHAPES, D, N, T, plain_cell, stepped

import rnnops as ro


def busy_cell() -> tuple[ro.Net, list[str]]:
    """A cell with dropout, softmax and products, and the names of all blobs that are neither states nor inputs."""
    cell = ro.Net("busy")
    x_t, h_prev, c_prev, w, u = cell.inputs("x_t", "h_prev", "c_prev", "w", "u")
    gates = ro.dropout(x_t @ w + h_prev @ u, 0.3)
    i, f = ro.split(gates, 2, axis=-1)
    scale = ro.softmax(c_prev * i, axis=0)
    c_t = ro.sigmoid(f) * c_prev + ro.tanh(i) * scale
    h_t = ro.concat([ro.sin(c_t), ro.relu(i) + f], axis=-1)
    cell.outputs(h_t=h_t, c_t=c_t, extra=ro.reduce_mean(scale, [1]))
    states = {h_t.name, c_t.name}
    return cell, [name for op in cell.ops for name in op.outputs if name not in states]


def busy_net(recompute: Sequence[str]) -> ro.Net:
    links, listed = {"h_prev": "h_t", "c_prev": "c_t"}, list(recompute)
    return stepped(busy_cell()[0], states=["h_prev", "c_prev"], links=links, recompute_blobs_on_backward=listed)


def test_any_blob_may_be_recomputed() -> None:
    net = busy_net([])
    feeds = random_feeds(net, xs=(T, N, 4), h_prev_0=(N, 4), c_prev_0=(N, 2), w=(4, 4), u=(4, 4))
    check_gradient(net, feeds, seed=9)
    wanted = bits(net, feeds, seed=9)
    _, names = busy_cell()
    for listed in ([name] for name in names):
        assert bits(busy_net(listed), feeds, seed=9) == wanted, listed
    assert bits(busy_net(names), feeds, seed=9) == wanted
    check_gradient(busy_net(names), feeds, seed=9)


# -- more than one -------------------------------------------------------------------------------------------------


def test_chained_recurrences_with_shared_weights() -> None:
    net = ro.Net("chain")
    xs, h0, w, u = net.inputs("xs", "h0", "w", "u")
    bound = {"w": w, "u": u}
    links = {"h_prev": "h_t"}
    every, last = ro.recurrent_net(
        net, plain_cell(), [("x_t", xs)], [("h_prev", h0)], links, scope="one", references=bound
    )
    results = ro.recurrent_net(
        net, plain_cell(), [("x_t", every * xs)], [("h_prev", last)], links, scope="two", references=bound, reverse=True
    )
    net.outputs(*results, first=every, w=w @ u)
    check_gradient(net, random_feeds(net, xs=(T, N, D), h0=(D,), **SHAPES))


def nested_net(recompute: list[str]) -> ro.Net:
    """At every step the inner recurrence runs over the features of the outer one's rows."""
    cell = ro.Net("outer")
    x_t, h_prev, w, u = cell.inputs("x_t", "h_prev", "w", "u")
    inner_xs = ro.unsqueeze(ro.transpose(x_t + h_prev, [1, 0]), [2])
    initial = ro.reduce_mean(h_prev, [1])
    every, last = ro.recurrent_net(
        cell,
        plain_cell("inner"),
        [("x_t", inner_xs)],
        [("h_prev", initial)],
        {"h_prev": "h_t"},
        scope="inner",
        references={"w": w, "u": u},
    )
    mixed = ro.transpose(ro.squeeze(every, [2]), [1, 0]).named("mixed")
    cell.outputs(h_t=ro.tanh(mixed + x_t), last=last)
    return stepped(cell, recompute_blobs_on_backward=recompute)


def test_a_recurrence_in_a_cell() -> None:
    net = nested_net([])
    feeds = random_feeds(net, xs=(T, N, D), h_prev_0=(N, D), w=(1, 1), u=(1, 1))
    check_gradient(net, feeds)
    for recompute in (["inner/h_t_all"], ["mixed"]):
        assert bits(nested_net(recompute), feeds) == bits(net, feeds)
