"""`compile`: from a net to a run on a device."""

from rnnops.compiler.memory_table import (
    MemoryRow as MemoryRow,
    MemoryTable as MemoryTable,
    PassMemory as PassMemory,
)
from rnnops.compiler.planned_run import PlannedRun as PlannedRun
from rnnops.compiler.profile import Profile as Profile
from rnnops.compiler.pullback import Pullback as Pullback
from rnnops.compiler.run import DEVICES as DEVICES, Run as Run, compile as compile
