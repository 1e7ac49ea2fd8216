"""Mistakes of who comes from PyTorch: whole modules, batch first, numbers of tensors, states that become complex."""

from __future__ import annotations

import subprocess
import sys
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
    "another structure": (over(lambda h, x: ((h, h), h)), ("changes the structure of its carry",)),
}


def test_mistakes_in_steps() -> None:
    def check(case: tuple[str, tuple[Callable[[], Any], tuple[str, ...]]]) -> None:
        rejects(rt.StepError, case[1][0], *case[1][1])

    check_each(MISTAKES.items(), check, lambda case: case[0])


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
