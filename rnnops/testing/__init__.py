"""Checkers for cells and devices: what users run on what they write."""

from rnnops.testing.device_check import (
    DeviceReport as DeviceReport,
    check_devices as check_devices,
    check_forward_mode as check_forward_mode,
    checked_loans as checked_loans,
)
from rnnops.testing.gradient_check import (
    TOLERANCES as TOLERANCES,
    CheckError as CheckError,
    GradientReport as GradientReport,
    check_gradient as check_gradient,
)
from rnnops.testing.random_net import RandomNet as RandomNet, random_net as random_net
