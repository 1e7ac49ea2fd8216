"""`compile`: from a net to a run on a device."""

from rnnops.compiler.pullback import Pullback as Pullback
from rnnops.compiler.run import DEVICES as DEVICES, Run as Run, compile as compile
