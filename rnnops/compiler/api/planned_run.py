"""PlannedRun: what a run does with feeds of certain shapes, to be read by people and measured by tests."""

from __future__ import annotations

from dataclasses import dataclass

from rnnops.compiler.execute.stepped_kernels import Stepped
from rnnops.compiler.pipeline import ForwardPlan, TrainingPlan
from rnnops.compiler.report.describe import compiled_ops, describe_plan
from rnnops.compiler.report.memory_table import MemoryTable
from rnnops.compiler.report.memory_timeline import memory_of


@dataclass(frozen=True)
class PlannedRun:
    """What `run.plan` gives; nothing is computed or allocated for it.

    Args:
        device: `"cpu"` or `"reference"`.
        plan: the one that calls with such feeds use.
    """

    device: str
    plan: ForwardPlan | TrainingPlan

    def describe(self) -> str:
        """Loops, products, what is kept, computed again and aliased, and what runs in the interpreter, as text."""
        return describe_plan(self.plan, self.device)

    def memory(self) -> MemoryTable:
        """What is allocated when each pass needs most."""
        return memory_of(self.plan)

    @property
    def source(self) -> str:
        """The generated modules as Python with names of blobs; `""` where everything runs in the interpreter."""
        found = [(title, kernel) for title, _, kernel in compiled_ops(self.plan)]
        scans = [(title, kernel) for title, kernel in found if kernel is not None and not isinstance(kernel, Stepped)]
        return "\n\n".join(f"# {title}\n{kernel.compiled.text.shown()}" for title, kernel in scans)

    def __str__(self) -> str:
        return self.describe()
