"""Mistakes of who comes from PyTorch: whole modules, batch first, numbers of tensors, states that become complex."""

from __future__ import annotations

import logging
import subprocess
import sys
import warnings
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from each import check_each  # noqa: E402
from rejection import rejects  # noqa: E402

import rnnops.torch as rt  # noqa: E402

T, N, D, H = 3, 2, 8, 4


def over(step: Callable[..., Any], dtype: Any = None) -> Callable[[], Any]:
    return lambda: rt.scan(step, torch.zeros(N, D, dtype=dtype), torch.randn(T, N, D))


class Cell(torch.nn.Module):  # type: ignore[misc]
    """A cell with a function of its state."""

    hidden_size = H

    def __init__(self, function: Callable[[Any], Any] = torch.tanh) -> None:
        super().__init__()
        self.lin, self.function = torch.nn.Linear(D + H, H), function

    def forward(self, x: Any, h: Any) -> Any:
        return self.function(self.lin(torch.cat([x, h], -1)))


class StateFirst(torch.nn.Module):  # type: ignore[misc]
    hidden_size = D

    def forward(self, h: Any, x: Any) -> Any:
        return 0.5 * h + x


class Pair(torch.nn.Module):  # type: ignore[misc]
    hidden_size = H

    def __init__(self) -> None:
        super().__init__()
        self.lstm = torch.nn.LSTMCell(D, H)

    def forward(self, x: Any, carry: Any) -> Any:
        h, c = self.lstm(x, carry)
        return h, (h, c)


def loss(w: Any, x: Any) -> Any:
    return (w * x - x).square().sum()


def learning(w: Any, x: Any) -> Any:
    """A step with a gradient of its own."""
    (grad,) = torch.autograd.grad(loss(w, x), w, create_graph=True)
    return w - 0.1 * grad, x


def counting(carry: Any, x: Any) -> Any:
    h, t = carry
    t += 1
    return (h + x * t, t), h


XS, Z = torch.ones(T, N, D), torch.zeros(N, H)
DTYPES = "mat1 and mat2 must have the same dtype", "cell.lin.weight torch.float32", "one float dtype"
COUNTED = torch.zeros(N, D), torch.zeros(N, 1, dtype=torch.int64)


MISTAKES: dict[str, tuple[Callable[[], Any], tuple[str, ...]]] = {
    "nn.LSTM": (
        lambda: rt.RNN(torch.nn.LSTM(D, H)),
        ("wanted a module of one step; got nn.LSTM(8, 4)", "torch.nn.LSTMCell(8, 4)"),
    ),
    "nn.GRU": (lambda: rt.RNN(torch.nn.GRU(D, H)), ("torch.nn.GRUCell(8, 4)",)),
    "batch first": (
        lambda: rt.RNN(torch.nn.LSTMCell(D, H))(torch.randn(N, T, D), (torch.zeros(N, H), torch.zeros(N, H))),
        ("got states [2, 4], [2, 4], and inputs [3, 8] of a step", "time-major, [T, N, ...]", "RNN(batch_first=True)"),
    ),
    "other features": (
        lambda: rt.RNN(torch.nn.GRUCell(D, H))(torch.randn(T, N, D + 1)),
        ("the step fails with RuntimeError", "got states [2, 4], and inputs [2, 9] of a step"),
    ),
    "item": (over(lambda h, x: (h * x.mean().item(), h)), ("reads a tensor's number by item", "Go on with the tensor")),
    "float": (over(lambda h, x: (h * float(x.mean()), h)), ("reads a tensor's number by __float__",)),
    "tolist": (over(lambda h, x: (h * x.tolist()[0][0], h)), ("reads a tensor's number",)),
    "numpy": (over(lambda h, x: (h + torch.tensor(x.detach().numpy()), h)), ("reads a tensor's number by numpy",)),
    "real states that become complex": (
        over(lambda h, x: (h * 1j + x, h)),
        ("state 0", "wanted a real tensor; got a complex one", "torch.zeros(N, H, dtype=torch.cfloat)"),
    ),
    "one result": (
        over(lambda h, x: h + x),
        ("a step returns its carry and its result; wanted (carry, y); got one tensor",),
    ),
    "three results": (over(lambda h, x: (h, x, x)), ("got tuple of 3",)),
    "another structure": (
        over(lambda h, x: ((h, h), h)),
        ("changes the structure of its carry; wanted tensor; got (tensor, tensor)",),
    ),
    "a number as the result": (over(lambda h, x: (h, 1.5)), ("results of the step must be tensors or None",)),
    "a list of states": (
        lambda: rt.RNN(torch.nn.LSTMCell(D, H))(XS, [Z, Z]),
        ("wanted [tensor, tensor]; got tensor", "Give init as a tuple"),
    ),
    "no result": (lambda: rt.RNN(Cell(lambda h: None))(XS), ("the cell returns None", "Has forward a return?")),
    "three results of a cell": (
        lambda: rt.RNN(Cell(lambda h: (h, h, h)))(XS),
        ("wanted its state, or (output, state); got 3 results",),
    ),
    "the state first": (
        lambda: rt.RNN(StateFirst()),
        ("got forward(h, x)", "RNN(cell, step=lambda cell, h, x: (cell(h, x),) * 2)"),
    ),
    "a class": (lambda: rt.RNN(Cell), ("the cell is not a module", "Give an instance: Cell(...).")),
    "a scripted cell": (lambda: rt.RNN(scripted()), ("a scripted module is part of a step", "before torch.jit.script")),
    "doubles": (
        lambda: rt.RNN(Cell())(XS.double()),
        (*DTYPES, "of zeros, as init is left out", "input_0 torch.float64"),
    ),
    "doubles for a cell of two states": (lambda: rt.RNN(Pair())(XS.double()), ("must have the same dtype", "state_1")),
    "integers": (lambda: rt.RNN(Cell())(XS.long()), (*DTYPES, "input_0 torch.int64")),
    "a state of doubles": (
        lambda: rt.RNN(Cell())(XS, Z.double()),
        ("different float dtypes; got state_0 torch.float64, input_0 torch.float32",),
    ),
    "other features without init": (
        lambda: rt.RNN(Cell())(torch.ones(T, N, D + 1)),
        ("the step fails with RuntimeError", "and inputs [2, 9] of a step"),
    ),
    "the axis of layers": (
        lambda: rt.RNN(Cell())(XS, Z[None]),
        ("got states [1, 2, 4]", "The states of this cell are [2, 4], without the axis of layers"),
    ),
    "a state without rows": (lambda: rt.RNN(Cell())(XS, Z[0]), ("The states of this cell are [2, 4]",)),
    "a state of another width": (
        lambda: rt.RNN(Cell())(XS, torch.zeros(N, 5)),
        ("got states [2, 5]", "The states of this cell are [2, 4]"),
    ),
    "a state in place": (over(lambda h, x: (h.mul_(0.5) + x, h)), ("in-place", "h = h.clone() first")),
    "an input in place": (over(lambda h, x: (h + x.mul_(0.5), h)), ("in-place", "h = h.clone() first")),
    "a count in place": (lambda: rt.scan(counting, COUNTED, XS), ("its state or input in place", "h.clone() first")),
    "a gradient": (over(learning), ("takes a gradient, which", "Write the inner gradient by hand")),
    "a gradient without a graph": (
        over(lambda w, x: (w - torch.autograd.grad(loss(w, x), w)[0], x)),
        ("does not require grad", "Write the inner gradient by hand"),
    ),
    "a gradient by torch.func": (
        over(lambda w, x: (w - torch.func.grad(loss)(w, x), x)),
        ("takes a gradient, which", "Write the inner gradient by hand"),
    ),
    "BatchNorm": (
        lambda: rt.RNN(Cell(torch.nn.BatchNorm1d(H)))(XS, Z),
        ("num_batches_tracked", "Call .eval() on BatchNorm, or use LayerNorm."),
    ),
}


def scripted() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.jit.script(torch.nn.GRUCell(D, H))


def test_mistakes_in_steps() -> None:
    def check(case: tuple[str, tuple[Callable[[], Any], tuple[str, ...]]]) -> None:
        rejects(rt.StepError, case[1][0], *case[1][1])

    check_each(MISTAKES.items(), check, lambda case: case[0])


def test_mistakes_of_sizes_and_dtypes_are_told_by_no_advice_of_init() -> None:
    for xs in (XS.double(), torch.ones(T, N, D + 1)):
        with pytest.raises(rt.StepError) as told:
            rt.RNN(Cell())(xs)
        assert "init=" not in str(told.value)


def test_a_mistake_of_shapes_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    """By PyTorch, in 35 lines; after it the log is as before."""
    log = logging.getLogger("torch._subclasses.fake_tensor")
    rejects(rt.StepError, lambda: rt.RNN(Cell())(XS, torch.zeros(N + 1, H)), "got states [3, 4]")
    assert log.name not in [record.name for record in caplog.records]
    assert not log.disabled


def test_what_torch_compile_made_runs_as_it_was_before() -> None:
    cell = Cell()
    wanted = rt.RNN(cell)(XS)[0]
    whole = rt.RNN(torch.compile(cell, backend="aot_eager"))
    assert {*whole.state_dict()} == {"cell.lin.weight", "cell.lin.bias"}
    part = Cell(torch.compile(torch.tanh, backend="aot_eager"))
    part.load_state_dict(cell.state_dict())
    for rnn in (whole, rt.RNN(part)):
        torch.testing.assert_close(rnn(XS)[0], wanted)


def test_a_gradient_of_a_detached_state_in_a_step() -> None:
    """Nothing flows back through it, so that a step of PyTorch's own has no more of it."""

    def step(w: Any, x: Any) -> Any:
        w = w.detach().requires_grad_()
        with torch.enable_grad():
            (grad,) = torch.autograd.grad(loss(w, x), w)
        return (w - 0.1 * grad).detach(), w * x

    w, ys = torch.zeros(N, D), rt.scan(step, torch.zeros(N, D), 0.5 * XS)[1]
    for x, y in zip(0.5 * XS, ys, strict=True):
        w, wanted = step(w, x)
        torch.testing.assert_close(y, wanted.detach())


def test_a_module_over_time_within_a_step_of_ones_own() -> None:
    """`step=` may call nn.LSTM: for a sequence within each step, say."""
    lstm = torch.nn.LSTM(D, D)

    def step(cell: Any, h: Any, x: Any) -> Any:
        y, _ = cell(torch.stack([x, h]))
        return y[-1], y[-1]

    xs = torch.randn(T, N, D)
    ys, _ = rt.RNN(lstm, step)(xs, torch.zeros(N, D))
    h = torch.zeros(N, D)
    for x in xs:
        h, _ = step(lstm, h, x)
    torch.testing.assert_close(ys[-1], h)


def test_a_step_without_init_says_what_is_wrong_with_it() -> None:
    """Not that no states of zeros fit, which are tried before."""

    class Decides(torch.nn.Module):
        hidden_size = 4

        def forward(self, x: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
            return x + h if h.sum() > 0 else h

    rejects(rt.StepError, lambda: rt.RNN(Decides())(torch.randn(5, 2, 4)), "decides by the value of a tensor")


def test_a_recurrence_within_a_step_is_refused() -> None:
    xs, inner = torch.randn(T, N, H), rt.RNN(torch.nn.GRUCell(H, H))

    def step(h: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor, None]:
        return inner(x[None], h)[1], None

    for _ in range(2):
        rejects(rt.StepError, lambda: rt.scan(step, torch.zeros(N, H), xs), "a step calls a recurrence", "Loop over")
        torch.testing.assert_close(inner(xs[:1], torch.zeros(N, H))[1], inner.cell(xs[0]))  # known the second time


def test_another_pytorch_without_its_private_parts_is_named() -> None:
    code = "import torch; del torch._C._functorch._unwrap_batched; import rnnops.torch"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert f"StepError: rnnops.torch does not know this PyTorch; wanted PyTorch 2.13; got {torch.__version__}:" in (
        found.stderr
    )
