"""Nets for whole sequences that streams cut into frames: axis 2 of `x` counts frames, `[N, 3, T]` or `[N, 2, T, F]`."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

import rnnops as ro

Build = Callable[[ro.Net, ro.Blob], ro.Blob]


def tcn() -> ro.Net:
    """Dilated causal convolutions that are padded on both sides and cut at the end, with skip connections."""
    net = ro.Net("tcn")
    h, channels = net.input("x"), 3
    for i, dilation in enumerate((1, 2, 4)):
        y, width = h, channels
        for name in "ab":
            w, b = net.parameter(f"w{i}{name}", (4, width, 3)), net.parameter(f"b{i}{name}", (4,), "ones")
            y = ro.relu(ro.conv(y, w, b, dilations=[dilation], pads=[2 * dilation] * 2)[:, :, : -2 * dilation])
            width = 4
        h = ro.relu(y + (h if channels == 4 else ro.conv(h, net.parameter("skip", (4, 3, 1)))))
        channels = 4
    net.outputs(y=h)
    return net


def two_convolutions() -> ro.Net:
    """Convolutions that look ahead, beside a path that does not, and a recurrence behind them."""
    net = ro.Net("two_convolutions")
    x = net.input("x")
    h = ro.conv(x, net.parameter("w", (4, 3, 3)), net.parameter("b", (4,), "ones"), pads=[1, 1])
    h = ro.conv(ro.relu(h), net.parameter("v", (4, 4, 5)), net.parameter("c", (4,), "ones"), pads=[2, 2])
    h = h + ro.conv(x, net.parameter("u", (4, 3, 1)))
    steps = ro.GRU(net, ro.transpose(h, [2, 0, 1]), None, None, 4, 4)[0]
    net.outputs(y=ro.transpose(steps, [1, 2, 0]))
    return net


class _Spectral:
    """A GTCRN in small: convolutions over frames and frequencies, grouped recurrences over each."""

    def __init__(self, causal: bool, channels: int = 4, frequencies: int = 4) -> None:
        self.net, self.causal, self.channels, self.frequencies = ro.Net("gtcrn"), causal, channels, frequencies

    def gru(self, x: ro.Blob, size: int, name: str) -> ro.Blob:
        return ro.GRU(self.net, x, None, None, size, size, scope=name)[0]

    def normal(self, x: ro.Blob, name: str) -> ro.Blob:
        """Batch normalization and PReLU."""
        channels, start = self.channels, ("uniform", 0.5, 1.5)
        x = ro.batch_normalization(x, *(self.net.parameter(f"{name}/{i}", (channels,), start) for i in range(4)))
        slope = self.net.parameter(f"{name}/slope", (1, channels, 1, 1), ("uniform", 0.1, 0.3))
        return ro.where(ro.greater(x, 0.0), x, slope * x)

    def around(self, x: ro.Blob, frames: int) -> ro.Blob:
        """Frames before, or half of them before and half behind."""
        before, after = (frames, 0) if self.causal else (frames // 2, frames // 2)
        return ro.pad(x, [0, 0, before, 0, 0, 0, after, 0])

    def attended(self, x: ro.Blob, name: str) -> ro.Blob:
        """Times gates of a recurrence over the energy of each channel."""
        energy = ro.reduce_mean(x * x, [3], keepdims=0)
        gates = ro.sigmoid(self.gru(ro.transpose(energy, [2, 0, 1]), self.channels, name))
        return x * ro.unsqueeze(ro.transpose(gates, [1, 2, 0]), [3])

    def dual_path(self, x: ro.Blob) -> ro.Blob:
        """Recurrences over frequencies, with frames as rows, and over frames, with frequencies as rows."""
        net, size, channels = self.net, self.frequencies, self.channels
        x = ro.transpose(x, [0, 2, 3, 1])  # [N, T, F, C]
        within = ro.transpose(ro.reshape(x, [-1, size, channels]), [1, 0, 2])
        halves = [self.gru(half, channels // 2, f"intra{i}") for i, half in enumerate(ro.split(within, 2, axis=-1))]
        within = ro.transpose(ro.concat(*halves, axis=-1), [1, 0, 2]) @ net.parameter("intra", (channels, channels))
        scale, offset = net.parameter("scale", (size, channels), "ones"), net.parameter("offset", (size, channels))
        x = x + ro.layer_normalization(ro.reshape(within, ro.shape(x)), scale, offset, axis=2)
        steps = ro.transpose(x, [1, 0, 2, 3])
        rows = net.constant(np.array([-1, channels]), "int64")
        over = self.gru(ro.reshape(steps, ro.concat(ro.shape(steps)[0:1], rows, axis=0)), channels, "inter")
        x = x + ro.transpose(ro.reshape(over, ro.shape(steps)), [1, 0, 2, 3])
        return ro.transpose(x, [0, 3, 1, 2])

    def built(self) -> ro.Net:
        net, channels, x = self.net, self.channels, self.net.input("x")
        first = {"strides": [1, 2], "pads": [0, 2, 0, 2]}
        h = self.normal(ro.conv(x, net.parameter("first", (channels, 2, 1, 5)), **first), "first_norm")
        skips = [h]
        for i, dilation in enumerate((1, 2)):
            weights = net.parameter(f"down{i}", (channels, 1, 3, 3)), net.parameter(f"down{i}_b", (channels,), "ones")
            rest = {"group": channels, "dilations": [dilation, 1], "pads": [0, 1, 0, 1]}
            y = self.normal(ro.conv(self.around(h, 2 * dilation), *weights, **rest), f"down{i}_norm")
            h = h + self.attended(y, f"gates{i}")
            skips.append(h)
        h = self.dual_path(h)
        for i, dilation in ((1, 2), (0, 1)):
            weights = net.parameter(f"up{i}", (channels, 1, 3, 3)), net.parameter(f"up{i}_b", (channels,), "ones")
            rest = {"group": channels, "dilations": [dilation, 1], "pads": [2 * dilation, 1, 2 * dilation, 1]}
            h = ro.conv_transpose(self.around(h + skips[i + 1], 2 * dilation), *weights, **rest)
            h = self.normal(h, f"up{i}_norm")
        last = {**first, "output_padding": [0, 1]}
        mask = ro.conv_transpose(h + skips[0], net.parameter("last", (channels, 2, 1, 5)), **last)
        net.outputs(y=ro.tanh(mask) * x, mask=mask)
        return net


def gtcrn(causal: bool) -> ro.Net:
    return _Spectral(causal).built()


def _weights(net: ro.Net, *kernel: int) -> list[ro.Blob]:
    return [net.parameter("w", (3, 3, *kernel)), net.parameter("b", (3,), "ones")]


def _steps(net: ro.Net, x: ro.Blob) -> ro.Blob:
    return ro.transpose(ro.GRU(net, ro.transpose(x, [2, 0, 1]), None, None, 3, 3)[0], [1, 2, 0])


def _begun(net: ro.Net, x: ro.Blob) -> ro.Blob:
    """A recurrence that begins with what is learnt."""
    cell = ro.Net("cell")
    x_t, h_prev = cell.inputs("x_t", "h_prev")
    cell.outputs(h_t=ro.tanh(x_t + 0.9 * h_prev))
    initial, sequence = net.parameter("h0", (3,), "ones"), ro.transpose(x, [2, 0, 1])
    h_all, _ = ro.recurrent_net(net, cell, [("x_t", sequence)], [("h_prev", initial)], {"h_prev": "h_t"})
    return ro.transpose(h_all, [1, 2, 0])


def _last(net: ro.Net, x: ro.Blob) -> ro.Blob:
    """The last state of a recurrence, which is an output too."""
    h_all, h_last = ro.GRU(net, ro.transpose(x, [2, 0, 1]), None, None, 3, 3)
    net.outputs(last=h_last)
    return ro.transpose(h_all, [1, 2, 0])


def _framed_zeros(net: ro.Net, x: ro.Blob) -> ro.Blob:
    """Zeros before and ones behind, put there by Concat."""
    sizes = ro.concat(ro.shape(x)[0:2], net.constant(np.array([2]), "int64"), axis=0)
    zeros, ones = (net.append("ConstantOfShape", [sizes], {"value": value})[0] for value in (0.0, 0.0))
    return ro.average_pool(ro.concat(zeros, x, ones, axis=2), [5])


def _embedded(net: ro.Net, x: ro.Blob) -> ro.Blob:
    places = ro.cast(ro.greater(x, 0.0), "int32")
    return ro.reduce_sum(ro.gather(net.parameter("table", (2, 4)), places, axis=0), [3], keepdims=0)


OPS: dict[str, Build] = {
    "causal": lambda net, x: ro.conv(x, *_weights(net, 3), pads=[2, 0]),
    "looks ahead": lambda net, x: ro.conv(x, *_weights(net, 3), pads=[0, 2]),
    "same": lambda net, x: ro.conv(x, *_weights(net, 4), auto_pad="SAME_LOWER"),
    "valid": lambda net, x: ro.conv(x, *_weights(net, 4), dilations=[2]),
    "wide pads": lambda net, x: ro.conv(x, *_weights(net, 2), pads=[3, 4]),
    "strides": lambda net, x: ro.conv(x, *_weights(net, 3), strides=[2], pads=[1, 1]),
    "strides above the kernel": lambda net, x: ro.max_pool(ro.conv(x, *_weights(net, 1), strides=[3]), [2]),
    "transposed": lambda net, x: ro.conv_transpose(x, *_weights(net, 3)),
    "transposed, cut": lambda net, x: ro.conv_transpose(ro.tanh(x), *_weights(net, 3), pads=[1, 1], dilations=[2]),
    "transposed, strides": lambda net, x: ro.conv_transpose(x + 1.0, *_weights(net, 5), strides=[2], pads=[2, 1]),
    "more at the end": lambda net, x: ro.conv_transpose(x, *_weights(net, 2), strides=[3], output_padding=[1]),
    "down and up": lambda net, x: ro.conv_transpose(
        ro.max_pool(x, [4], strides=[3], pads=[2, 2]), *_weights(net, 2), strides=[3], output_padding=[1]
    ),
    "largest": lambda net, x: ro.max_pool(x - 5.0, [3], pads=[1, 1]),
    "largest, strides": lambda net, x: ro.max_pool(x, [3], pads=[2, 0], strides=[2]),
    "mean": lambda net, x: ro.average_pool(x, [3], pads=[1, 1], count_include_pad=1),
    "mean of frames alone": lambda net, x: ro.average_pool(x, [3]),
    "norm": lambda net, x: ro.lp_pool(x, [3], pads=[2, 0]),
    "shift": lambda net, x: x[:, :, 2:],
    "cut": lambda net, x: ro.conv(x, *_weights(net, 3), pads=[2, 2])[:, :, :-2],
    "cut twice": lambda net, x: x[:, 1:, 1:-2] * 2.0,
    "every other": lambda net, x: x[:, :, 1::2],
    "pad of others": lambda net, x: ro.max_pool(ro.pad(x, [0, 1, 2, 0, 0, 1], constant_value=2.5), [3]),
    "pad": lambda net, x: ro.pad(x, [2, 1], constant_value=1.5, axes=[2]) * 2.0,
    "pads": lambda net, x: ro.average_pool(ro.pad(ro.pad(x, [1, 1], 1.0, axes=[2]), [2, 2], 3.0, axes=[2]), [4]),
    "cut pads": lambda net, x: ro.average_pool(ro.pad(x, [3, 3], 1.0, axes=[2])[:, :, 1:-2], [3]),
    "cut by Pad": lambda net, x: ro.pad(x, [-2, -1], axes=[2]),
    "concat": _framed_zeros,
    "channels": lambda net, x: ro.concat(x, ro.max_pool(x, [5], pads=[2, 2]), axis=1),
    "different delays": lambda net, x: (ro.max_pool(x, [3], pads=[1, 1]) + x) * ro.max_pool(x, [5], pads=[2, 2]),
    "steps": _steps,
    "steps behind look-ahead": lambda net, x: _steps(net, ro.max_pool(x, [5], pads=[2, 2])),
    "steps that begin elsewhere": _begun,
    "steps that begin elsewhere, later": lambda net, x: _begun(net, ro.max_pool(x, [3], pads=[1, 1])),
    "last state": _last,
    "last state behind look-ahead": lambda net, x: _last(net, ro.max_pool(x, [5], pads=[2, 2])),
    "last state before a cut": lambda net, x: _last(net, x[:, :, :-3]),
    "look-ahead behind a cut": lambda net, x: ro.max_pool(x[:, :, :-2], [3], pads=[1, 1]),
    "softmax of channels": lambda net, x: ro.softmax(ro.transpose(x, [0, 2, 1]), axis=-1),
    "look-up": _embedded,
    "nothing to keep": lambda net, x: ro.tanh(x) * 2.0,
    "channels of merged frames": lambda net, x: ro.reshape(
        ro.conv(ro.reshape(ro.transpose(x, [0, 2, 1]), [0, 1, -1]), net.parameter("w", (4, 1, 1))), [0, 4, -1, 3]
    ),
    "sums of channels": lambda net, x: ro.einsum("nct,cd->ndt", x, net.parameter("w", (3, 4))),
}  # fmt: skip


def _named(name: str, build: Build) -> Callable[[], ro.Net]:
    def made() -> ro.Net:
        net = ro.Net(name)
        net.outputs(y=build(net, net.input("x")))
        return net

    return made


NAMED = {name: _named(name, build) for name, build in OPS.items()}


class _RandomNet:
    """Windows, cuts, recurrences and sums in a random order; only blobs of as many frames are added."""

    CHANNELS = 3

    def __init__(self, seed: int) -> None:
        self.random, self.net = np.random.default_rng(seed), ro.Net(f"random{seed}")
        self.made: list[tuple[ro.Blob, tuple[object, ...]]] = [(self.net.input("x"), ())]

    def number(self, least: int, most: int) -> int:
        return int(self.random.integers(least, most + 1))

    def weights(self, kernel: int) -> list[ro.Blob]:
        count = len(self.net.parameters)
        size = self.CHANNELS
        return [self.net.parameter(f"w{count}", (size, size, kernel)), self.net.parameter(f"b{count}", (size,), "ones")]

    def conv(self, x: ro.Blob) -> tuple[ro.Blob, object]:
        kernel, dilation, pads = self.number(1, 3), self.number(1, 2), [self.number(0, 3), self.number(0, 3)]
        more = sum(pads) - (kernel - 1) * dilation
        return ro.conv(x, *self.weights(kernel), dilations=[dilation], pads=pads), more

    def strides(self, x: ro.Blob) -> tuple[ro.Blob, object]:
        pads, stride = [self.number(0, 2), self.number(0, 2)], self.number(2, 3)
        return ro.conv(x, *self.weights(self.number(1, 4)), strides=[stride], pads=pads), x.name

    def transposed(self, x: ro.Blob) -> tuple[ro.Blob, object]:
        kernel, stride = self.number(1, 3), self.number(1, 2)
        pads = [self.number(0, kernel - 1), 0]
        return ro.conv_transpose(x, *self.weights(kernel), strides=[stride], pads=pads), x.name

    def pool(self, x: ro.Blob) -> tuple[ro.Blob, object]:
        kernel = self.number(1, 3)
        before = self.number(0, kernel - 1)
        pads = [before, kernel - 1 - before]
        if self.number(0, 1):
            return ro.max_pool(x, [kernel], pads=pads), 0
        return ro.average_pool(x, [kernel], pads=pads, count_include_pad=1), 0

    def pad(self, x: ro.Blob) -> tuple[ro.Blob, object]:
        pads = [self.number(0, 3), self.number(0, 3)]
        return ro.pad(x, pads, float(self.number(0, 1)), axes=[2]), sum(pads)

    def cut(self, x: ro.Blob) -> tuple[ro.Blob, object]:
        begin, end = self.number(0, 2), self.number(1, 2)
        return x[:, :, begin:-end], -begin - end

    def every_other(self, x: ro.Blob) -> tuple[ro.Blob, object]:
        return x[:, :, self.number(0, 1) :: 2], x.name

    def steps(self, x: ro.Blob) -> tuple[ro.Blob, object]:
        sequence, size, name = ro.transpose(x, [2, 0, 1]), self.CHANNELS, f"gru{len(self.net.ops)}"
        h_all, h_last = ro.GRU(self.net, sequence, None, None, size, size, scope=name)
        if self.number(0, 2) == 0:
            self.net.outputs(**{name: h_last})
        return ro.transpose(h_all, [1, 2, 0]), 0

    def bias(self, x: ro.Blob) -> tuple[ro.Blob, object]:
        return ro.tanh(x) + 1.0, 0

    def built(self) -> ro.Net:
        kinds = (
            *(self.conv, self.strides, self.transposed, self.pool, self.pad, self.cut),
            *(self.every_other, self.steps, self.bias),
        )
        for _ in range(self.number(2, 6)):
            x, frames = self.made[self.number(0, len(self.made) - 1)]
            if self.number(0, 4) == 0:
                others = [other for other, count in self.made if count == frames]
                self.made.append((x + ro.tanh(others[self.number(0, len(others) - 1)]), frames))
                continue
            y, more = kinds[self.number(0, len(kinds) - 1)](x)
            self.made.append((y, frames if more == 0 else (*frames, more)))
        self.net.outputs(y=self.made[-1][0], z=self.made[self.number(1, len(self.made) - 1)][0])
        return self.net


def random_net(seed: int) -> ro.Net:
    return _RandomNet(seed).built()
