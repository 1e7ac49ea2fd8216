"""aten ops as ops of rnnops: one table, filled by kind."""

from rnnops.torch.aten import elementwise, movement
from rnnops.torch.aten.table import RULES as RULES, AtenNode as AtenNode, op_name as op_name

__all__ = ["RULES", "AtenNode", "elementwise", "movement", "op_name"]
