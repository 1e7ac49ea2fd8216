"""aten ops as ops of rnnops: one table, filled by kind."""

from rnnops.torch.aten import elementwise, movement
from rnnops.torch.aten.complexes import PAIR_RULES as PAIR_RULES, Pair as Pair, is_of_pairs as is_of_pairs
from rnnops.torch.aten.table import BY_PARTS as BY_PARTS, RULES as RULES, AtenNode as AtenNode, op_name as op_name

__all__ = ["BY_PARTS", "PAIR_RULES", "RULES", "AtenNode", "Pair", "elementwise", "is_of_pairs", "movement", "op_name"]
