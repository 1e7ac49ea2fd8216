"""Ops that run once beside a loop over steps: before its first step (`hoist_invariants.py`), or on its sums."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rnnops.compiler.targets.target import Target
from rnnops.interpreter import Program, Workspace, execute
from rnnops.schema import RunContext
from rnnops.types import Array

BEFORE, ON_SUMS = "once, before the first step", "once, on sums"


@dataclass(frozen=True)
class Once:
    """A net that runs once.

    Args:
        kernels: key of an op -> what runs it in place of its reference.
    """

    program: Program
    kernels: Mapping[str, Any] = field(default_factory=dict)

    def __call__(self, arrays: Mapping[str, Array], target: Target) -> Workspace:
        """Run it on arrays, of which there may be more than it reads."""
        workspace = Workspace()
        workspace.local.update((name, arrays[name]) for name in self.program.net.input_names)
        kernels = {**target.references(self.program), **self.kernels}
        execute(self.program, workspace, RunContext(), kernels=kernels)
        return workspace
