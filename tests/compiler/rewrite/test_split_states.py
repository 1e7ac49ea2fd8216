"""Layers in one state: texts before and after, states that stay whole, random cells beside the nets as written."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from each import check_each

import rnnops as ro
from rnnops.compiler.rewrite.fuse_ops import split_states
from rnnops.compiler.run import pipeline
from rnnops.interpreter import Program, prepare
from rnnops.testing import check_gradient
from rnnops.types import Type

T, N, H = 4, 3, 2
SHAPES = {"xs": (T, N, H), "h0": (N, 3 * H), "w": (H, H), "v": (3 * H,)}
NET = """
net outer(xs, h0, w, v)
    {all}, s/h_last, s/o_all, _ = RecurrentNetwork(xs, h0, w, v, inputs=["x"], states=[["h", "h_t", {state}]], \
references=["w", "v"]{more}) {{
        cell =
            net cell(x, h, w, v)
{ops}
    }}
    return h=s/h_last, o=s/o_all{returned}
"""


def net_of(lines: str, every: str = "", state: str = "1, null, null", more: str = "") -> ro.Net:
    ops = "\n".join(" " * 16 + line.strip() for line in lines.strip().splitlines())
    returned = f", {every}" if every else ""
    return ro.parse_net(NET.format(ops=ops, all=every or "_", state=state, more=more, returned=returned))


def prepared(net: ro.Net) -> Program:
    return prepare(net, {name: Type("float64", shape) for name, shape in SHAPES.items()}, "float64")


def split(net: ro.Net) -> ro.Net:
    return split_states(prepared(net))


PARTS = """
    a = Slice(h, starts=[0], ends=[2], axes=[1])
    b = Slice(h, starts=[3], ends=[6], axes=[1])
    m = MatMul(a, w)
    a_t = Add(m, x)
    d = Slice(b, starts=[1], ends=[3], axes=[1])
    b_t = Concat(d, m, axis=1)
    k = Concat(a_t, b_t, axis=1)
    h_t = Mul(k, v)
    return h_t, o=b_t
"""


def test_a_state_is_split_where_the_step_joins_it_with_what_is_around() -> None:
    net = split(net_of(PARTS))
    lines = [line.strip() for line in str(net).splitlines() if "#" not in line]
    assert lines[1] == "h0/0, h0/1 = Split(h0, axis=-1, split=[2, 4])"
    assert '_, s/h_last/0, _, s/h_last/1, s/o_all, _ = RecurrentNetwork(xs, h0/0, h0/1, w, v, inputs=["x"]' in lines[2]
    assert 'states=[["h/0", "h_t/0", 1, null, null], ["h/1", "h_t/1", 1, null, null]]' in lines[2]
    assert lines[4:-1] == [
        "net cell(x, w, v, h/0, h/1)",
        "h/1/part = Slice(h/1, starts=[1], ends=[4], axes=[1])",
        "m = MatMul(h/0, w)",
        "a_t = Add(m, x)",
        "d = Slice(h/1/part, starts=[1], ends=[3], axes=[1])",
        "b_t = Concat(d, m, axis=1)",
        "v/part = Slice(v, starts=[0], ends=[2], axes=[0])",
        "v/part_1 = Slice(v, starts=[2], ends=[6], axes=[0])",
        "h_t/0 = Mul(a_t, v/part)",
        "h_t/1 = Mul(b_t, v/part_1)",
        "return o=b_t, h_t/0, h_t/1",
        "}",
        "s/h_last = Concat(s/h_last/0, s/h_last/1, axis=-1)",
    ]


def test_all_steps_of_a_state_become_an_output_of_the_step() -> None:
    op = next(op for op in split(net_of(PARTS, every="s/h_all")).ops if op.holds_net)
    assert op.outputs == ("", "s/h_last/0", "", "s/h_last/1", "s/h_all", "", "s/o_all", "")
    assert op.attributes["cell"].output_blobs["h_t"] == "h_t"


TAIL = "\nk = Concat(a, x, x, axis=1)\nh_t = Mul(k, v)\nreturn h_t, o=x"
WHOLE = {
    "read by a fold": ("s = ReduceSum(h, axes=[1], keepdims=1)\na = Mul(s, x)" + TAIL, ""),
    "read across parts": ("a = Slice(h, starts=[1], ends=[3], axes=[1])" + TAIL, ""),
    "every second place": ("b = Slice(h, starts=[0], ends=[3], axes=[1], steps=[2])\na = Add(b, x)" + TAIL, ""),
    "rows": ("a, b = Split(h, axis=0, split=[1, 2])\nh_t = Concat(b, a, axis=0)\nreturn h_t, o=x", ""),
    "nothing joined": ("h_t = Mul(h, v)\nreturn h_t, o=x", ""),
    "parts with a name": (PARTS.replace("a = Slice", "*a = Slice"), ""),
    "parts computed again": (PARTS, ', recompute=["a"]'),
    "outputs with gradients": (PARTS, ", outputs_with_grads=[1]"),
}


@pytest.mark.parametrize("what", WHOLE)
def test_other_states_stay_whole(what: str) -> None:
    lines, more = WHOLE[what]
    program = prepared(net_of(lines, more=more))
    assert split_states(program) is program.net


def random_net(seed: int) -> tuple[ro.Net, dict[str, Any]]:
    """A net with a random cell of two states that are joined from parts, and its feeds."""
    rng = np.random.default_rng(seed)
    rows, steps, parts, packed = (
        int(rng.integers(1, 4)),
        int(rng.integers(0, 6)),
        int(rng.integers(2, 5)),
        seed % 3 == 0,
    )
    axis = 1 if packed else int(rng.integers(1, 3))
    shape = (parts * H,) if packed else (parts, H) if axis == 1 else (H, parts)

    def piece(state: ro.Blob, number: int) -> ro.Blob:
        if packed and rng.random() < 0.5:
            return ro.split(state, [H] * parts, axis=-1)[number]
        where = number * H if packed else number - parts * int(rng.integers(2))
        return state[:, where : where + H] if packed else state[:, where] if axis == 1 else state[:, :, where]

    def joined(pieces: list[ro.Blob]) -> ro.Blob:
        return ro.concat(pieces if packed else [ro.unsqueeze(one, [axis]) for one in pieces], axis=axis)

    @ro.cell
    def step(x: ro.Blob, h: ro.Blob, c: ro.Blob, *, w: ro.Blob, v: ro.Blob) -> dict[str, ro.Blob]:
        old, hs, cs, below = h * v if rng.random() < 0.5 else h, list[ro.Blob](), list[ro.Blob](), x
        for number in range(parts):
            gate = ro.sigmoid(below @ w + piece(old, int(rng.integers(parts)) if rng.random() < 0.2 else number))
            cs.append(gate * piece(c, number) + (1.0 - gate) * below)
            hs.append(below := ro.tanh(cs[-1] @ w) * gate)
        new_h, new_c = joined(hs), joined(cs)
        new_h = 0.5 * h + 0.5 * new_h if rng.random() < 0.3 else new_h
        new_c = new_c * v if rng.random() < 0.5 else new_c
        return {"h": new_h, "c": new_c, "y": below, "z": piece(new_h, 0)}

    net = ro.Net("n")
    xs, h0, c0, w, v = net.inputs("xs", "h0", "c0", "w", "v")
    ends = {"lengths": net.input("lengths", "int32")} if rng.random() < 0.5 else {}
    last, every = ro.scan(
        step, xs, h=h0, c=c0, w=w, v=v, **ends, reverse=bool(rng.integers(2)), state_shapes={"h": shape, "c": shape}
    )
    outputs = {**every, "h_last": last["h"], "c_last": last["c"]}
    net.outputs(**{name: blob for name, blob in outputs.items() if rng.random() < 0.7 or name == "y"})
    sizes = {"xs": (steps, rows, H), "h0": (rows, *shape), "c0": shape, "w": (H, H), "v": shape}
    feeds: dict[str, Any] = {name: rng.normal(size=size) for name, size in sizes.items()}
    return net, {**feeds, **{name: rng.integers(0, steps + 2, rows).astype("int32") for name in ends}}


@contextmanager
def as_written() -> Iterator[None]:
    """States stay as the cells of nets have them."""
    with pytest.MonkeyPatch.context() as patch:
        others = tuple(rewrite for rewrite in pipeline.REWRITES_OF_SHAPES if rewrite is not split_states)
        patch.setattr(pipeline, "REWRITES_OF_SHAPES", others)
        yield


def all_of(run: ro.Run, feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Outputs of both passes, and gradients."""
    outputs, pullback = run.vjp(feeds)
    grads = pullback(
        {
            name: np.cos(np.arange(array.size)).reshape(array.shape).astype(array.dtype)
            for name, array in outputs.items()
        }
    )
    return {**{f"call {name}": array for name, array in run(feeds).items()}, **outputs, **grads}


def check_random_net(seed: int) -> None:
    net, feeds = random_net(seed)
    types = {name: Type(str(array.dtype), array.shape) for name, array in feeds.items()}
    op = next(op for op in split_states(prepare(pipeline.live_net(net), types, "float64")).ops if op.holds_net)
    assert len(op.attributes["states"]) > 2
    with as_written():
        wanted = all_of(ro.compile(net, device="reference"), feeds)
    for threads in (1, 2):
        came = all_of(ro.compile(net, threads=threads, checkpoints="memory" if seed % 2 else "speed"), feeds)
        for name, array in wanted.items():
            np.testing.assert_allclose(came[name], array, rtol=1e-9, atol=1e-9, err_msg=name)


def test_random_cells_are_as_they_were_written() -> None:
    check_each(range(6), check_random_net)


def test_gradients_of_a_split_state() -> None:
    rng = np.random.default_rng(0)
    check_gradient(net_of(PARTS), {name: rng.normal(size=shape) for name, shape in SHAPES.items()})
