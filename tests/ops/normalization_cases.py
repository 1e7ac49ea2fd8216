"""Uses of BatchNormalization and RMSNormalization for the table of ops."""

from __future__ import annotations

from collections.abc import Iterator

from op_cases import Case, floats, use

import rnnops.ops as ro


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
