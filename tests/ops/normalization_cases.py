"""Uses of softmax and normalizations for the table of ops."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from op_cases import INF, Case, Shapes, floats, use

import rnnops as ro

MINUS_INF = np.array([[-INF, -INF], [-INF, 1.0]])


def normalization_cases() -> Iterator[Case]:
    rows: Shapes = [((7,), -1), ((2, 7), 0), ((2, 1, 7), 1), ((0, 7), -1), ((2, 0), 1), ((1,), 0)]
    for op in (ro.softmax, ro.log_softmax):
        for shape, axis in rows:
            yield Case(op.name, f"axis_{axis}", use(op, axis), (floats(*shape),))
        yield Case(op.name, "minus_inf", op, (MINUS_INF,))
    sharp = np.array([[900.0, 0.0, -900.0], [1.0, 900.0, 1.0]])
    yield Case("Softmax", "sharp", ro.softmax, (sharp,))
    # onnx.reference takes the logarithm of probabilities that are 0
    yield Case("LogSoftmax", "sharp", ro.log_softmax, (sharp,), lambda x: (x - 900,))
    blocks: Shapes = [((2, 7), -1), ((2, 1, 7), 1), ((2, 1, 7), 0), ((0, 7), 1), ((7, 1), -1), ((7,), 0)]
    for shape, axis in blocks:
        build = use(ro.layer_normalization, axis=axis, epsilon=2.0**-10)
        affine = (floats(*shape[axis:], low=0.5), floats(*shape[axis:]))
        yield Case("LayerNormalization", f"axis_{axis}", build, (floats(*shape), *affine))
        yield Case("LayerNormalization", f"plain_{axis}", build, (floats(*shape), affine[0]))
    yield Case("LayerNormalization", "wide", ro.layer_normalization, (floats(2, 7) * 9, floats(1), floats()))


def batch_cases() -> Iterator[Case]:
    for shape in ((2, 7), (3, 2, 7), (2, 7, 1, 3), (0, 7), (2, 7, 0)):
        channels = shape[1]
        more = (floats(channels, low=0.5), floats(channels), floats(channels) / 2, floats(channels, low=0.25))
        yield Case("BatchNormalization", "", use(ro.batch_normalization, epsilon=2.0**-7), (floats(*shape), *more))
        if 0 not in shape:
            options = {"epsilon": 0.25, "training_mode": 1, "momentum": 0.75}
            trained = use(ro.batch_normalization, **options)
            yield Case("BatchNormalization", "training", trained, (floats(*shape), *more))


def row_cases() -> Iterator[Case]:
    for shape, axis in (((2, 7), -1), ((2, 1, 7), 1), ((2, 1, 7), 0), ((0, 7), 1), ((7, 1), -1), ((7,), 0)):
        build = use(ro.rms_normalization, axis=axis, epsilon=2.0**-10)
        yield Case("RMSNormalization", f"axis_{axis}", build, (floats(*shape), floats(*shape[axis:], low=0.5)))
    yield Case("RMSNormalization", "wide", use(ro.rms_normalization, epsilon=0.5), (floats(2, 7) * 9, floats(1)))
