"""Kernel IR of devices that a host launches kernels on: a driver of launches and products, and what they run."""

from __future__ import annotations

from dataclasses import dataclass

from rnnops.compiler.ir.expressions import Expr
from rnnops.compiler.ir.kernel import Function, Parameter, Statement


@dataclass(frozen=True)
class LaneFold:
    """A fold of what the lanes of a block bring, two numbers `a` and `b` at a time."""

    name: str
    joined: Expr


@dataclass(frozen=True)
class Kernel:
    """What a grid of blocks runs for some steps of a tile.

    Args:
        sizes: names of the numbers of the module that it reads.
        folded: shared memory in which lanes fold, a number a lane.
        teams: whether lanes work in teams.
        weights: whether it keeps weights in shared memory, `kept`, the same as `shared` of the module's dtype.
        fragments: words of the same memory in which it keeps weights for tensor cores, and numbers to begin with.
    """

    name: str
    arrays: tuple[Parameter, ...]
    sizes: tuple[str, ...]
    folded: tuple[Parameter, ...]
    teams: bool
    weights: bool
    body: tuple[Statement, ...]
    fragments: tuple[Parameter, ...] = ()


@dataclass(frozen=True)
class DeviceModule:
    """A driver of the host, and what it launches.

    Args:
        dtype: of its products.
        weights: the dtype in which kernels keep weights.
        precision: that operands of products on tensor cores are rounded to; empty where there are none.
        folds: that pointwise kernels call, beside those that all modules have.
        programs: pointwise kernels, which lanes of a block call together or each by itself.
        driver: launches kernels and products of `arrays`.
        sizes: names of the numbers that driver and kernels read, in order.
    """

    dtype: str
    weights: str
    folds: tuple[LaneFold, ...]
    programs: tuple[Function, ...]
    kernels: tuple[Kernel, ...]
    driver: Function
    arrays: tuple[Parameter, ...]
    sizes: tuple[str, ...]
    precision: str = ""
