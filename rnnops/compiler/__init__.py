"""`compile`: from a net to a run on a device."""

from rnnops.compiler.api.compile import DEVICES as DEVICES, compile as compile
from rnnops.compiler.api.derivatives import Pullback as Pullback
from rnnops.compiler.api.planned_run import PlannedRun as PlannedRun
from rnnops.compiler.api.run import Run as Run
