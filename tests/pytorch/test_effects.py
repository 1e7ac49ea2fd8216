"""What a step changes beside its results is left as by a loop, and hooks see the passes of users alone."""

from __future__ import annotations

import contextvars
import copy
import threading
import time
import warnings
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")

from torch import nn  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

import rnnops.torch as rt  # noqa: E402
from rnnops.torch.errors import StepError, UnseenWarning  # noqa: E402

T, N, H = 7, 3, 4


class Cell(nn.Module):
    """A cell whose forward pass is given, with all that one may change."""

    hidden_size = H

    def __init__(self, forward: Callable[..., Any]) -> None:
        super().__init__()
        self.lin, self._forward = nn.Linear(H, H), forward
        self.t, self.total, self.flag, self.mem, self.seen = 0, 0.0, True, None, []
        self.register_buffer("count", torch.zeros(()))
        self.register_buffer("mean", torch.zeros(H))
        self.register_buffer("whole", torch.zeros((), dtype=torch.int64))
        self.held = {"last": torch.zeros(N, H), "t": 0}

    def forward(self, x: Any, h: Any) -> Any:
        return self._forward(self, x, h)

    def state(self) -> dict[str, Any]:
        names = ("t", "total", "flag", "mem", "seen", "count", "mean", "whole", "held")
        return {name: getattr(self, name) for name in names}


def count(cell: Any, x: Any, h: Any) -> Any:
    cell.t += 1
    return torch.tanh(cell.lin(h) + x)


def count_down_in_fractions(cell: Any, x: Any, h: Any) -> Any:
    cell.total -= 0.1
    return torch.tanh(cell.lin(h) + x)


def burn_in(cell: Any, x: Any, h: Any) -> Any:
    cell.t += 1
    return torch.tanh(cell.lin(h) + x) if cell.t > 4 else torch.tanh(h)


def every_third(cell: Any, x: Any, h: Any) -> Any:
    cell.t = cell.t + 1
    return torch.tanh(cell.lin(h) + x) if cell.t % 3 == 0 else h


def count_in_a_dict(cell: Any, x: Any, h: Any) -> Any:
    cell.held["t"] += 1
    return torch.tanh(cell.lin(h) + x) * (2 if cell.held["t"] == 6 else 1)


def flag_once(cell: Any, x: Any, h: Any) -> Any:
    h = torch.tanh(cell.lin(h) + x) if cell.flag else h + x
    cell.flag = False
    return h


def wrap_around(cell: Any, x: Any, h: Any) -> Any:
    cell.t += 1
    cell.t %= 3
    return torch.tanh(cell.lin(h) + x)


def scale_by_count(cell: Any, x: Any, h: Any) -> Any:
    cell.t += 1
    return torch.tanh(cell.lin(h) + x * cell.t)


def remember(cell: Any, x: Any, h: Any) -> Any:
    cell.mem = torch.tanh(cell.lin(h) + x)
    return cell.mem


def remember_from_none(cell: Any, x: Any, h: Any) -> Any:
    if cell.mem is None:
        cell.mem = torch.zeros_like(x)
    cell.mem = 0.5 * cell.mem + cell.lin(x)
    return torch.tanh(cell.mem + h)


def remember_in_a_dict(cell: Any, x: Any, h: Any) -> Any:
    cell.held["last"] = 0.5 * cell.held["last"] + torch.tanh(cell.lin(h) + x)
    return cell.held["last"]


def keep_all(cell: Any, x: Any, h: Any) -> Any:
    h = torch.tanh(cell.lin(h) + x)
    cell.seen.append(h.detach())
    return h


def count_in_a_buffer(cell: Any, x: Any, h: Any) -> Any:
    cell.count = cell.count + 1
    return torch.tanh(cell.lin(h) + x)


def count_in_place(cell: Any, x: Any, h: Any) -> Any:
    cell.count += 1
    cell.whole.add_(2)
    return torch.tanh(cell.lin(h) + x)


def running_mean(cell: Any, x: Any, h: Any) -> Any:
    with torch.no_grad():
        cell.mean.mul_(0.9).add_(x.mean(0), alpha=0.1)
    return torch.tanh(cell.lin(h) + x - cell.mean)


def count_decides_by_where(cell: Any, x: Any, h: Any) -> Any:
    cell.count = cell.count + 1
    return torch.where(cell.count > 3, torch.tanh(cell.lin(h) + x), h)


def part_in_place(cell: Any, x: Any, h: Any) -> Any:
    cell.mean[0] += 1
    return torch.tanh(cell.lin(h) + x + cell.mean)


STEPS = [
    count, count_down_in_fractions, burn_in, every_third, count_in_a_dict, flag_once, wrap_around, scale_by_count,
    remember, remember_from_none, remember_in_a_dict, keep_all, count_in_a_buffer, count_in_place, running_mean,
    count_decides_by_where, part_in_place,
]  # fmt: skip
COMPILED = {
    "count", "count_down_in_fractions", "remember", "remember_in_a_dict", "count_in_a_buffer", "count_in_place",
    "count_decides_by_where", "part_in_place",
}  # fmt: skip


def expect_same(one: Any, other: Any) -> None:
    if isinstance(one, dict | list):
        pairs = ((one[key], other[key]) for key in (one if isinstance(one, dict) else range(len(one))))
        assert len(one) == len(other)
        for mine, theirs in pairs:
            expect_same(mine, theirs)
    elif isinstance(one, torch.Tensor):
        torch.testing.assert_close(one.detach(), other.detach(), rtol=1e-4, atol=1e-5)
    else:
        assert (type(one), one) == (type(other), other)


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.__name__)
def test_a_call_leaves_what_a_loop_leaves(step: Any) -> None:
    """Results, gradients, and all that the cell holds, for several calls in a row, with and without gradients."""
    torch.manual_seed(0)
    mine, theirs = Cell(step), Cell(step)
    theirs.load_state_dict(mine.state_dict())
    rnn = rt.RNN(mine)
    for call in range(3):
        xs = torch.randn(T + call, N, H)
        with torch.set_grad_enabled(call < 2):
            h, last = torch.zeros(N, H), rnn(xs, torch.zeros(N, H))[1]
            for x in xs:
                h = theirs(x, h)
        torch.testing.assert_close(last, h, rtol=1e-4, atol=1e-5)
        expect_same(mine.state(), theirs.state())
        if call < 2 and last.requires_grad:
            grads = [torch.autograd.grad(y.sum(), list(c.parameters()), allow_unused=True, retain_graph=True)
                     for y, c in ((last, mine), (h, theirs))]  # fmt: skip
            for one, other in zip(*grads, strict=True):
                expect_same(torch.zeros(()) if one is None else one, torch.zeros(()) if other is None else other)
        for cell in (mine, theirs):
            cell.mem = None if cell.mem is None else cell.mem.detach()
            cell.held["last"] = cell.held["last"].detach()
    (prepared,) = rnn._prepared.values()
    assert any(traced.trace is not None for traced in prepared.traces) == (step.__name__ in COMPILED | {"flag_once"} | {
        "remember_from_none"
    })  # fmt: skip


def test_a_step_that_goes_by_its_own_loop_is_told() -> None:
    from rnnops.torch import traced

    traced._told.clear()
    with pytest.warns(UnseenWarning, match=r"changes cell\.t, which may decide"):
        rt.RNN(Cell(burn_in))(torch.randn(T, N, H))
    rnn = rt.RNN(Cell(burn_in))
    with pytest.raises(StepError, match="own loop"):
        rnn.plan(torch.randn(T, N, H))


class Settings(dict):  # type: ignore[type-arg]
    """A dict whose items come about when they are asked for, in an order of its own."""

    def __getitem__(self, key: str) -> Any:
        self["asked"] = True
        return super().__getitem__(key)

    def __iter__(self) -> Any:
        return iter(sorted(self.keys()))


def test_what_is_only_held_does_not_count_as_changed() -> None:
    numbers = set(range(1000))
    numbers -= numbers - {8, 1}
    assert list(numbers) != list(set(numbers)), "a copy has another order"
    cell = Cell(lambda cell, x, h: torch.tanh(cell.lin(h) + x) if 8 in cell.numbers and cell.settings else h)
    cell.numbers, cell.settings = numbers, Settings(b=1, a=2)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UnseenWarning)
        rt.RNN(cell)(torch.randn(T, N, H))
    assert "asked" not in cell.settings
    cell.numbers.discard(1)
    rt.RNN(Cell(lambda cell, x, h: (numbers.discard(8), torch.tanh(cell.lin(h) + x))[1]))(torch.randn(T, N, H))
    assert numbers == set()


def test_a_step_imports_a_module_for_the_first_time(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its body runs outside of the trace, which leaves no mark in it."""
    (tmp_path / "imported_late.py").write_text("import torch\nKNOWN = {}\nKNOWN['w'] = torch.full((4,), 0.5)\n")
    monkeypatch.syspath_prepend(tmp_path)

    def step(cell: Any, x: Any, h: Any) -> Any:
        try:
            import missing_module  # type: ignore[import-not-found]
        except ImportError:
            missing_module = 2.0
        from imported_late import KNOWN  # type: ignore[import-not-found]

        return torch.tanh(cell.lin(h) * KNOWN["w"] + missing_module * x)

    cell, xs = Cell(step), torch.randn(T, N, H)
    h = torch.zeros(N, H)
    _, last = rt.RNN(cell)(xs, h)
    for x in xs:
        h = cell(x, h)
    torch.testing.assert_close(last, h)


def test_a_call_needs_nothing_of_the_call_before() -> None:
    """Neither its graph nor its rows, where a step sets a tensor that it does not read."""

    def remember(cell: Any, x: Any, h: Any) -> Any:
        cell.mem = torch.tanh(cell.lin(h) + x)
        return cell.mem

    rnn = rt.RNN(Cell(remember))
    rnn.cell.mem = torch.zeros(N, H)
    for rows in (N, N, 2, N):
        rnn(torch.randn(T, rows, H))[0].sum().backward()
        assert rnn.cell.mem.grad_fn is not None


@pytest.mark.parametrize("reverse", [False, True])
def test_its_own_loop_ends_rows_where_lengths_say(reverse: bool) -> None:
    def counting(cell: Any, x: Any, h: Any) -> Any:
        cell.t = cell.t + 1
        return torch.tanh(cell.lin(h) + x)

    cell, xs, lengths = Cell(counting), torch.randn(T, N, H), [2, T, 4]
    ys, last = rt.RNN(cell, reverse=reverse)(xs, torch.zeros(N, H), lengths=lengths)
    plain = Cell(lambda cell, x, h: torch.tanh(cell.lin(h) + x))
    plain.load_state_dict(cell.state_dict())
    wanted, wanted_last = rt.RNN(plain, reverse=reverse)(xs, torch.zeros(N, H), lengths=lengths)
    torch.testing.assert_close(ys, wanted)
    torch.testing.assert_close(last, wanted_last)


@pytest.mark.parametrize("batches", [(3,), (3, 1, 3)])
def test_torch_checkpoint_at_the_first_call(batches: tuple[int, ...]) -> None:
    rnn = rt.RNN(nn.GRUCell(H, H))
    for batch in batches:
        xs = torch.randn(T, batch, H, requires_grad=True)
        checkpoint(rnn, xs, use_reentrant=False)[0].square().sum().backward()
        (wanted,) = torch.autograd.grad(rnn(xs)[0].square().sum(), xs)
        torch.testing.assert_close(xs.grad, wanted)


def test_hooks_see_no_gradients_and_tensors_of_a_check() -> None:
    rnn, seen, saved = rt.RNN(nn.GRUCell(H, H)), [], []
    rnn.cell.weight_hh.register_hook(lambda grad: seen.append(grad))
    rnn.cell.weight_ih.register_post_accumulate_grad_hook(lambda weight: seen.append(weight.grad))
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: saved.append(tensor) or tensor, lambda tensor: tensor):
        ys, _ = rnn(torch.randn(T, N, H))
        count = len(saved)
        rnn(torch.randn(T, N, H))
    assert not seen
    assert len(saved) == 2 * count
    ys.sum().backward()
    assert len(seen) == 2


def test_forward_hooks_run_as_in_a_loop() -> None:
    cell, seen = Cell(lambda cell, x, h: torch.tanh(cell.lin(h) + x)), []
    cell.lin.register_forward_hook(lambda module, given, result: seen.append(result.detach()))
    rt.RNN(cell)(torch.randn(T, N, H))
    assert len(seen) == T


def test_backward_hooks_of_modules_are_refused_by_name() -> None:
    rnn = rt.RNN(nn.GRUCell(H, H))
    rnn(torch.randn(T, N, H))

    def my_hook(module: Any, given: Any, got: Any) -> None:
        pass

    handle = rnn.cell.register_full_backward_hook(my_hook)
    with pytest.raises(StepError, match=r"my_hook of GRUCell"):
        rnn(torch.randn(T, N, H))
    handle.remove()
    rnn(torch.randn(T, N, H))


class Model(nn.Module):
    """Holds a recurrence whose step reaches the head of the model."""

    def __init__(self, way: str) -> None:
        super().__init__()
        self.cell, self.out = nn.GRUCell(H, H), nn.Linear(H, H)

        def inner(cell: Any, h: Any, x: Any, model: Any = self if way == "default" else None) -> Any:
            h = cell(x, h)
            return h, (self if model is None else model).out(h)

        def outer(cell: Any, h: Any, x: Any) -> Any:
            return inner(cell, h, x)

        out = self.out

        def head(cell: Any, h: Any, x: Any) -> Any:
            h = cell(x, h)
            return h, out(h)

        steps = {"closure": inner, "default": inner, "nested": outer, "method": self._step, "head": head}
        self.rnn = rt.RNN(self.cell, steps[way])

    def _step(self, cell: Any, h: Any, x: Any) -> Any:
        h = cell(x, h)
        return h, self.out(h)

    def forward(self, xs: Any) -> Any:
        return self.rnn(xs, xs.new_zeros(xs.shape[1], H))[0]


@pytest.mark.parametrize("way", ["closure", "default", "nested", "method", "head"])
def test_a_deep_copy_uses_its_own_head(way: str) -> None:
    model, xs = Model(way), torch.randn(T, N, H)
    before = model(xs)
    other = copy.deepcopy(copy.deepcopy(model))
    torch.testing.assert_close(other(xs), before)
    with torch.no_grad():
        other.out.weight.zero_()
        other.out.bias.zero_()
    assert not other(xs).any()
    torch.testing.assert_close(model(xs), before)


def test_a_deep_copy_whose_step_reads_a_global_is_told() -> None:
    model = Model("method")
    step = eval("lambda cell, h, x: GLOBAL_MODEL._step(cell, h, x)", {"GLOBAL_MODEL": model})
    model.rnn.step = step
    with pytest.warns(UnseenWarning, match=r"original Model.*GLOBAL_MODEL.*self\._step"):
        copy.deepcopy(model)


class Scaled(nn.Module):
    """Reads a number from a file by C code alone."""

    hidden_size = H

    def __init__(self, read: Callable[[], float]) -> None:
        super().__init__()
        self.lin, self.read = nn.Linear(H, H), read

    def forward(self, x: Any, h: Any) -> Any:
        return torch.tanh(self.lin(h) + self.read() * x)


def test_what_is_not_seen_is_found_by_a_check_again_and_forgotten_by_forget() -> None:
    large = dict.fromkeys(range(30000), 1.0)
    cell, xs = Scaled(lambda: large[0]), torch.randn(T, N, H)
    for recheck in (None, 2):
        large[0] = 1.0
        rnn = rt.RNN(cell, recheck=recheck)
        before = rnn(xs)[1]
        large[0] = 3.0
        if recheck is None:
            torch.testing.assert_close(rnn(xs)[1], before)  # as the page on PyTorch says
            rnn.forget()
        else:
            with pytest.raises(rt.SelfCheckError):
                rnn(xs)
        h = torch.zeros(N, H)
        for x in xs:
            h = cell(x, h)
        torch.testing.assert_close(rnn(xs)[1], h)
    for wrong in (0, -1, True, 1.5):
        with pytest.raises(StepError, match="recheck= must be"):
            rt.RNN(cell, recheck=wrong)


def test_what_is_too_large_or_outside_of_python_is_told(tmp_path: Any) -> None:
    from rnnops.torch import traced

    traced._told.clear()
    large, file, xs = [1.0] * 30_000, tmp_path / "number", torch.randn(T, N, H)
    file.write_text("1.0")
    with pytest.warns(UnseenWarning, match="30000 elements"):
        rt.RNN(Scaled(lambda: large[0]))(xs)
    with pytest.warns(UnseenWarning, match=r"the clock by time\.time"):
        rt.RNN(Scaled(lambda: float(time.time() > 0)))(xs)
    rnn = rt.RNN(Scaled(lambda: float(file.read_text())))
    with pytest.warns(UnseenWarning, match=r"a file by .*own loop"):
        before = rnn(xs)[1]
    file.write_text("3.0")
    assert not torch.equal(rnn(xs)[1], before)
    steps = iter(range(1000))
    with pytest.raises(StepError, match="iterator"):
        rt.RNN(Scaled(lambda: next(steps) > 3))(xs)


def test_context_and_thread_that_a_step_changes_are_left_as_by_a_loop() -> None:
    variable: Any = contextvars.ContextVar("variable", default=0)
    local = threading.local()
    local.t = 0

    def step(h: Any, x: Any) -> Any:
        variable.set(variable.get() + 1)
        local.t += 1
        h = torch.tanh(h + x) if variable.get() + local.t < 8 else h
        return h, h

    xs, h = torch.randn(T, N, H), torch.zeros(N, H)
    mine = rt.scan(step, h, xs)[0]
    assert variable.get() == local.t == T
    variable.set(0)
    local.t = 0
    for x in xs:
        h, _ = step(h, x)
    torch.testing.assert_close(mine, h)


class Smoothed(torch.nn.Module):
    """A cell with a running value of its features, which no row's end concerns."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.cell = torch.nn.GRUCell(size, size)
        self.register_buffer("running", torch.zeros(size))

    def forward(self, x: Any, h: Any) -> Any:
        self.running = 0.9 * self.running + torch.arange(1.0, 1.0 + len(self.running))
        return self.cell(x, h) + 0.01 * self.running


@pytest.mark.parametrize("sizes", [(3,), (4,), (3, 4), (4, 3)])
def test_what_a_step_sets_goes_on_where_rows_end(sizes: tuple[int, ...]) -> None:
    """Also where there are as many rows as features, so that a size does not tell which of them an axis is."""
    torch.manual_seed(0)
    cell, plain = Smoothed(3), Smoothed(3)
    plain.load_state_dict(cell.state_dict())
    rnn = rt.RNN(cell, step=lambda module, h, x: (module(x, h),) * 2)
    for count in sizes:
        xs, lengths = torch.randn(5, count, 3), torch.tensor([5, 2, 1, 3][:count])
        ys, last = rnn(xs, torch.zeros(count, 3), lengths=lengths)
        h, rows = torch.zeros(count, 3), []
        for t in range(5):
            live = (t < lengths)[:, None]
            new = plain(xs[t], h)
            h = torch.where(live, new, h)
            rows.append(torch.where(live, new, torch.zeros_like(new)))
        torch.testing.assert_close(cell.running, plain.running)
        torch.testing.assert_close(ys, torch.stack(rows))
        torch.testing.assert_close(last, h)
