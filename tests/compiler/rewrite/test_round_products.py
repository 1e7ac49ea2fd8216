"""Products of rounded operands in place of products: texts before and after, in cells too."""

from __future__ import annotations

import rnnops as ro
from rnnops.compiler.rewrite.fuse_ops import round_products
from rnnops.recurrent.recurrence import Recurrence

TEXT = """
net n(a, b, c)
    x = MatMul(a, b)
    y = Gemm(x, b, c, alpha=0.5) @ top
    z = Mul(x, y)
    return z
"""


def test_products_alone_change() -> None:
    assert [line.strip() for line in str(round_products(ro.parse_net(TEXT), "bfloat16")).splitlines()[1:-1]] == [
        'x = RoundedMatMul(a, b, operands="bfloat16")',
        'y = RoundedGemm(x, b, c, alpha=0.5, operands="bfloat16") @ top',
        "z = Mul(x, y)",
    ]


def test_cells_change() -> None:
    cell, net = ro.Net("cell"), ro.Net("net")
    x, h, w = cell.inputs("x", "h", "w")
    cell.outputs(y=ro.tanh(x + h @ w))
    xs, h0 = net.inputs("xs", "h0")
    links = {"h": "y"}
    net.outputs(ys=ro.recurrent_net(net, cell, inputs=[("x", xs)], initial_cell_inputs=[("h", h0)], links=links)[0])
    (op,) = round_products(net, "bfloat16").ops
    assert [inner.type for inner in Recurrence(op, "net").cell.ops] == ["RoundedMatMul", "Add", "Tanh"]
    assert [inner.type for inner in cell.ops] == ["MatMul", "Add", "Tanh"]
