"""Cells of `bench.package_cells` at the sizes of a problem, with the states that they begin with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import Module

import rnnops.torch as rt
from bench.contender import MissingPeerError
from bench.package_cells import CELLS, Built, Step


@dataclass(frozen=True)
class Recurrence:
    """A cell and the states that it begins with."""

    built: Built
    states: Any

    @property
    def cell(self) -> Module:
        return self.built.cell

    @property
    def step(self) -> Step:
        return self.built.step

    @property
    def features(self) -> int:
        return self.built.features

    def in_rnn(self) -> rt.RNN:
        """The cell as a module over time."""
        return rt.RNN(self.cell, self.step, batch_axis=self.built.batch_axis, assume=self.built.assume)


def make_recurrence(name: str, N: int, H: int) -> Recurrence:
    """A recurrence with the same numbers at every call. Raises MissingPeerError where its package does not import."""
    torch.manual_seed(N + H)
    try:
        built = CELLS[name].build(H, H)
    except ImportError as error:
        library = CELLS[name].package
        raise MissingPeerError(f"cells of {library} are left out: it does not import ({error})") from error
    return Recurrence(built, built.states(N))
