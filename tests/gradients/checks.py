"""Gradients against finite differences on the reference, and the CPU device, as plain Python, against the reference."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from devices import DEVICES

import rnnops as ro
from rnnops.testing import GradientReport, check_devices
from rnnops.testing.gradient_check import check_gradient as check_by_differences

SHARED = ("outputs", "wrt", "seed", "training")  # options of both checks


def check_gradient(net: ro.Net, feeds: Mapping[str, Any], **options: Any) -> GradientReport:
    """`rnnops.testing.check_gradient`, and the same values and gradients on the CPU device."""
    report = check_by_differences(net, feeds, **options)
    given = {name: options[name] for name in SHARED if name in options}
    check_devices(net, feeds, {"plain": DEVICES["plain"]}, **given)
    return report
