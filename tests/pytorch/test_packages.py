"""Cells of public packages equal their own loops: outputs, states, all gradients, other sizes, rows that end."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.usefixtures("_seeded")]

from torch.utils._pytree import tree_leaves, tree_map  # noqa: E402

import rnnops.torch as rt  # noqa: E402
from bench.cell_builders import Built  # noqa: E402
from bench.package_cells import CELLS  # noqa: E402
from rnnops.torch.prepare import CompiledStep  # noqa: E402

TOLERANCES = {torch.float64: 1e-10, torch.float32: 1e-5}  # relative to the largest element
D, H = 5, 6
SIZES = ((7, 4), (5, 3))
LENGTHS = (5, 0, 2)


@pytest.fixture
def _seeded() -> None:
    torch.manual_seed(0)


def loop(built: Built, xs: Any, carry: Any) -> tuple[Any, Any]:
    """The package's own cell, step by step."""
    results = []
    for x in xs:
        carry, y = built.step(built.cell, carry, x)
        results.append(y)
    return tree_map(lambda *ys: torch.stack(ys), *results), carry


def row_loop(built: Built, xs: Any, carry: Any) -> tuple[Any, Any]:
    """Each row by itself, up to its own end; what follows is zero."""
    rows = []
    for n, length in enumerate(LENGTHS):
        state = tree_map(lambda s, n=n: s.narrow(built.batch_axis, n, 1), carry)
        longest, _ = loop(built, xs[:, n : n + 1], state)
        ys = tree_map(torch.zeros_like, longest)
        if length:
            some, state = loop(built, xs[:length, n : n + 1], state)
            ys = tree_map(lambda y, zeros: torch.cat([y, zeros[len(y) :]]), some, ys)
        rows.append((ys, state))
    states = [torch.cat(parts, built.batch_axis) for parts in zip(*[tree_leaves(s) for _, s in rows], strict=True)]
    return tree_map(lambda *parts: torch.cat(parts, 1), *[ys for ys, _ in rows]), states


def expect_equal(mine: Any, theirs: Any, leaves: list[Any]) -> None:
    ours, wanted = tree_leaves(mine), tree_leaves(theirs)
    heads = [torch.randn_like(output) for output in wanted]
    pairs = list(zip(ours, wanted, strict=True))
    live = [place for place, output in enumerate(wanted) if output.requires_grad]
    grads = [
        torch.autograd.grad([outputs[i] for i in live], leaves, [heads[i] for i in live], allow_unused=True)
        for outputs in (ours, wanted)
    ]
    for leaf, one, other in zip(leaves, *grads, strict=True):
        pairs.append(tuple(torch.zeros_like(leaf) if grad is None else grad for grad in (one, other)))
    for one, other in pairs:
        scale = 1 + other.detach().abs().max().item() if other.numel() else 1.0
        torch.testing.assert_close(one, other, rtol=0, atol=TOLERANCES[other.dtype.to_real()] * scale)


CHECKED = [(name, dtype) for name, cell in CELLS.items() for dtype in cell.dtypes]


@pytest.mark.parametrize(("name", "dtype"), CHECKED, ids=[f"{n}-{str(t).removeprefix('torch.')}" for n, t in CHECKED])
def test_equals_its_own_loop(name: str, dtype: Any) -> None:
    if not CELLS[name].is_installed:
        pytest.skip(f"{CELLS[name].package} is not installed")
    built = CELLS[name].build(D, H)
    built.cell.to(dtype)
    rnn = rt.RNN(built.cell, built.step, batch_axis=built.batch_axis, assume=built.assume)
    parameters = [parameter for parameter in built.cell.parameters() if parameter.requires_grad]
    kinds = {False: dtype, True: dtype.to_complex()}
    for T, N in SIZES:
        xs = torch.randn(T, N, built.features, dtype=dtype, requires_grad=True)
        carry = tree_map(lambda state: state.to(kinds[state.is_complex()]).requires_grad_(), built.states(N))
        leaves = [xs, *tree_leaves(carry), *parameters]
        expect_equal(rnn(xs, carry), loop(built, xs, carry), leaves)
    expect_equal(rnn(xs, carry, lengths=LENGTHS), row_loop(built, xs, carry), leaves)
    first, *_ = (step for prepared in rnn._prepared.values() for step in prepared.compiled.values())
    assert isinstance(first, CompiledStep), "PyTorch's own loop does not run"
