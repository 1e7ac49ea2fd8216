"""PlannedRun: what a run does with feeds of certain shapes, to be read by people and measured by tests."""

from __future__ import annotations

from dataclasses import dataclass

from rnnops.compiler.describe import compiled_ops, describe_plan
from rnnops.compiler.memory_table import MemoryTable
from rnnops.compiler.memory_timeline import memory_of
from rnnops.compiler.plan import ForwardPlan, TrainingPlan


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
        """The generated modules, one behind the other; `""` where everything runs in the interpreter."""
        parts = [f"# {title}\n{kernel.compiled.text.source}" for title, _, kernel in compiled_ops(self.plan) if kernel]
        return "\n\n".join(parts)

    def __str__(self) -> str:
        return self.describe()
