"""Elementwise ops between convolutions work on rows of channels."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import rnnops as ro
from rnnops.compiler.lower.lower_ops import expand_ops
from rnnops.compiler.rewrite.fuse_ops import sink_channels
from rnnops.interpreter import Program, Workspace, execute, prepare
from rnnops.net.blob import Blob
from rnnops.net.schema import RunContext
from rnnops.ops.windows import channels_first, channels_last
from rnnops.testing import check_devices
from rnnops.types import type_of

FEEDS = {name: np.random.default_rng(3).normal(size=(2, 12, 4)) for name in ("x", "z")}
FEEDS["scale"], FEEDS["image"] = FEEDS["x"][0, 0].reshape(4, 1, 1), FEEDS["z"].reshape(2, 4, 3, 4)


def program_of(build: Callable[[Blob, Blob, Blob, Blob], Blob]) -> Program:
    net = ro.Net("between")
    blobs = net.inputs(*FEEDS)
    net.outputs(y=build(*blobs))
    return prepare(net, {name: type_of(array) for name, array in FEEDS.items()}, "float64")


def result_of(program: Program) -> np.ndarray:
    workspace = Workspace()
    workspace.local.update(FEEDS)
    execute(program, workspace, RunContext())
    return np.asarray(workspace[program.net.output_blobs["y"]])


def turned(x: Blob) -> Blob:
    return channels_first(x, [3, 4])


CASES: dict[str, tuple[Callable[[Blob, Blob, Blob, Blob], Blob], list[str]]] = {
    "one operand": (lambda x, z, s, i: channels_last(ro.relu(turned(x))), ["Relu", "Identity"]),
    "two": (lambda x, z, s, i: channels_last(turned(x) + turned(z)), ["Add", "Identity"]),
    "a number": (lambda x, z, s, i: turned(x) * 2.0, ["Constant", "Reshape", "Mul", "ChannelsFirst"]),
    "by channel": (lambda x, z, s, i: turned(x) * s, ["Reshape", "Mul", "ChannelsFirst"]),
    "a chain": (lambda x, z, s, i: ro.tanh(ro.exp(turned(x))), ["Exp", "Tanh", "ChannelsFirst"]),
    "read twice": (
        lambda x, z, s, i: ro.concat(ro.relu(turned(x)), turned(x), axis=1),
        ["Relu", "ChannelsFirst", "ChannelsFirst", "Concat"],
    ),
    "what was never turned": (lambda x, z, s, i: turned(x) + i, ["ChannelsFirst", "Add"]),
    "sizes alone": (lambda x, z, s, i: turned(x) + i[:1, :1], ["ChannelsFirst", "Slice", "Add"]),
}


@pytest.mark.parametrize("name", CASES)
def test_ops_move_to_the_rows(name: str) -> None:
    build, types = CASES[name]
    program = program_of(build)
    moved = sink_channels(program)
    assert [call.op.type for call in moved.calls] == types
    np.testing.assert_array_equal(result_of(moved), result_of(program))


def test_one_channel_of_one_place_that_broadcasts_stays() -> None:
    """The result has more axes than the rows, though every operand is one number."""
    net = ro.Net("numbers")
    x, w, c = net.inputs("x", "w", "c")
    net.outputs(y=ro.tanh(ro.conv_transpose(x, w) + c))
    feeds = {"x": np.full((1, 1, 1), 0.5), "w": np.full((1, 1, 1), 0.25), "c": np.full((1, 1, 1, 1), 2.0)}
    check_devices(net, feeds, ["cpu"])


def test_what_is_kept_stays() -> None:
    program = program_of(lambda x, z, s, i: channels_last(ro.relu(turned(x))))
    inner = program.calls[0].op.outputs[0]
    assert inner not in sink_channels(program).types
    assert inner in sink_channels(program, {inner}).types


def test_nets_without_convolutions_stay() -> None:
    program = program_of(lambda x, z, s, i: ro.relu(x) + z)
    assert sink_channels(program) is program


def test_convolutions_read_what_others_made() -> None:
    net = ro.Net("two")
    x, w, v = net.inputs("x", "w", "v")
    net.outputs(y=ro.conv(ro.relu(ro.conv(x, w)), v))
    feeds = {"x": np.ones((1, 2, 9)), "w": np.ones((3, 2, 2)), "v": np.ones((2, 3, 2))}
    program = expand_ops(prepare(net, {name: type_of(array) for name, array in feeds.items()}, "float64"))
    before, after = ([call.op.type for call in each.calls] for each in (program, sink_channels(program)))
    assert (before.count("ChannelsFirst"), before.count("ChannelsLast")) == (2, 2)
    assert (after.count("ChannelsFirst"), after.count("ChannelsLast")) == (1, 1)
