"""`recurrent_net` and the `RecurrentNetwork` operator: a cell stepped over time."""

from rnnops.recurrent.op import recurrent_net as recurrent_net
from rnnops.recurrent.recurrence import Link as Link
from rnnops.recurrent.scan import CellFunction as CellFunction, cell as cell, scan as scan
