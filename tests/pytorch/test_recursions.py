"""Recurrences without a sequence (`steps=`), and gradients that end after so many steps (`truncate=`)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning", "ignore::FutureWarning")

import torch.utils._pytree as pytree  # noqa: E402
from each import check_each  # noqa: E402
from rejection import rejects  # noqa: E402
from torch.nn.functional import one_hot  # noqa: E402

import rnnops as ro  # noqa: E402
import rnnops.onnx  # noqa: E402
import rnnops.torch as rt  # noqa: E402
from rnnops.torch.errors import StepError  # noqa: E402

T, N, H = 7, 3, 4
LENGTHS = torch.tensor([7, 2, 5])


def numbers(*shape: int, seed: int = 0) -> Any:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64).requires_grad_()


def loop(
    step: Callable[..., Any], carry: Any, steps: int, xs: Any = None, every: int | None = None, reverse: bool = False,
    lengths: Any = None,
) -> tuple[Any, Any]:  # fmt: skip
    """The carry and the results of all steps, by PyTorch; states `[N, ...]` are detached at each `every` steps."""
    ys: dict[int, Any] = {}
    for ran in range(steps):
        t = steps - 1 - ran if reverse else ran
        if every and ran and ran % every == 0:
            carry = pytree.tree_map(torch.Tensor.detach, carry)
        new, y = step(carry, None if xs is None else xs[t])
        if lengths is not None:
            live = (t < lengths)[:, None]
            new, y = torch.where(live, new, carry), torch.where(live, y, torch.zeros_like(y))
        carry, ys[t] = new, y
    return carry, pytree.tree_map(lambda *rows: torch.stack(rows), *[ys[t] for t in range(steps)])


def expect_equal(mine: Any, theirs: Any, leaves: list[Any], within: float = 1e-10) -> None:
    """All outputs, and all gradients of random sums of them."""
    one, other = ([x for x in pytree.tree_leaves(tree) if x is not None] for tree in (mine, theirs))
    torch.testing.assert_close(one, other, rtol=within, atol=within)
    weights = [numbers(*x.shape, seed=i).detach() for i, x in enumerate(other)]
    grads = [
        torch.autograd.grad(sum((x * w).sum() for x, w in zip(tree, weights, strict=True)), leaves, allow_unused=True)
        for tree in (one, other)
    ]
    torch.testing.assert_close(
        *([None if g is None else g for g in found] for found in grads), rtol=within, atol=within
    )


W = numbers(H, H, seed=9)


def step(h: Any, x: Any) -> Any:
    h = torch.tanh(h @ W + (0.1 if x is None else x))
    return h, h * h


# recurrences without a sequence


def test_steps_take_the_place_of_a_sequence_and_may_change_from_call_to_call() -> None:
    cell = torch.nn.Linear(H, H).double()

    def recursion(cell: Any, carry: Any, x: Any) -> Any:
        if x is not None:
            raise ValueError
        y, z = carry["yz"]
        z = torch.tanh(cell(y + z))
        return {"yz": (y + 0.5 * z, z), "none": None}, None

    for batch_first in (False, True):
        rnn = rt.RNN(cell, recursion, batch_first=batch_first)
        for steps, rows in ((5, 3), (1, 3), (16, 3), (4, 6)):
            y, z = numbers(rows, H), numbers(rows, H, seed=1)
            ys, carry = rnn(None, {"yz": (y, z), "none": None}, steps=steps)
            assert [ys, carry["none"]] == [None, None]
            wanted = loop(lambda yz, x: (recursion(cell, {"yz": yz}, x)[0]["yz"], yz[0]), (y, z), steps)[0]
            expect_equal(carry["yz"], wanted, [y, z, *cell.parameters()])
        (prepared,) = rnn._prepared.values()
        assert (len(prepared.traces), len(prepared.runs)) == (1, 1)
        assert torch.equal(rnn(None, {"yz": (y, z), "none": None}, steps=0)[1]["yz"][1], z)
    h0 = numbers(N, H)
    ys, h = rt.RNN(cell, lambda cell, h, _: step(h, None), batch_first=True)(None, h0, LENGTHS, steps=T)
    wanted = loop(step, h0, T, lengths=LENGTHS)
    expect_equal((h, ys), (wanted[0], wanted[1].transpose(0, 1)), [h0, W])


def test_calls_with_steps_are_repeated_as_others_are() -> None:
    """By the list of jobs of the call before: with another T or N, and where integers [T, N] are a sequence."""
    cell, kinds = torch.nn.Linear(H, H).double(), set()

    def step(cell: Any, h: Any, x: Any) -> Any:
        h = torch.tanh(cell(h) if x is None else cell(h) + x[:, None])
        return h, h

    rnn = rt.RNN(cell, step)
    for steps, rows, xs in [(3, N, None), (4, N, None), (3, 2, None), (3, 2, torch.ones(3, 2, dtype=torch.int32))]:
        for seed in range(3):
            h = numbers(rows, H, seed=seed)
            ys, last = rnn(xs, h, steps=steps) if xs is None else rnn(xs, h)
            given = partial(step, cell)
            expect_equal((last, ys), loop(given, h, steps, xs), [h, *cell.parameters()])
            expect_equal(rt.scan(given, h, xs, steps=steps), loop(given, h, steps, xs), [h, *cell.parameters()])
        kinds.update(kind[2] for kind in rnn._made.recent)
    assert kinds >= {3, 4, (3, 2)}
    with pytest.raises(StepError, match="steps= must be an integer"):
        rnn(None, h, steps=3.0)


def test_states_of_any_kind_tell_the_rows() -> None:
    h0, layers = numbers(N, H), numbers(2, N, H)
    cases: dict[str, tuple[Callable[..., Any], Any, dict[str, Any]]] = {
        "a counter beside": (
            lambda c, x: ((step(c[0], x)[0], c[1] + 1), c[1]),
            (h0, torch.zeros((), dtype=torch.int64)),
            {},
        ),
        "a scalar": (lambda c, x: (W.sum() + torch.tanh(c), c), numbers(), {}),
        "layers": (lambda c, x: (torch.tanh(c @ W), c.sum(0)), layers, {"batch_axis": 1}),
        "layers that are not told": (lambda c, x: (torch.tanh(c @ W), c.sum(0)), layers, {}),
        "rows that mix": (lambda c, x: (torch.tanh(c.flip(0) @ W), c), h0, {}),
        "nested nothing": (lambda c, x: (torch.tanh(c @ W), c if x == {"a": None, "b": ()} else None), h0, {}),
    }

    def check(name: str) -> None:
        cell, carry, options = cases[name]
        xs = {"a": None, "b": ()} if name == "nested nothing" else None
        mine, wanted = rt.scan(cell, carry, xs, steps=4, **options), loop(lambda c, x: cell(c, xs), carry, 4)
        expect_equal(mine, wanted, [W, *(x for x in pytree.tree_leaves(carry) if x.requires_grad)])

    check_each(cases, check)
    for options, states in (({}, (layers, h0)), ({"batch_axis": 1}, layers)):
        rnn = rt.RNN(torch.nn.Linear(H, H).double(), lambda cell, c, _: (pytree.tree_map(cell, c), None), **options)
        rnn(None, states, steps=4)
        (compiled,) = next(iter(rnn._prepared.values())).compiled.values()
        assert compiled.trace.layout.batch == N, "threads share out rows"


@pytest.mark.parametrize("way", ["softmax", "argmax"])
def test_a_decoder_feeds_itself(way: str) -> None:
    torch.manual_seed(0)
    cell, top = torch.nn.GRUCell(5, H).double(), torch.nn.Linear(H, 5).double()

    def decoder(carry: Any, x: Any) -> Any:
        h, said = carry
        h = cell(one_hot(said, 5).double() if way == "argmax" else said, h)
        scores = top(h)
        return (h, scores.argmax(-1) if way == "argmax" else scores.softmax(-1)), scores

    h0, first = numbers(N, H), torch.zeros(N, dtype=torch.int64)
    start = h0, first if way == "argmax" else one_hot(first, 5).double()
    (h, said), scores = rt.scan(decoder, start, None, steps=T)
    (h_loop, said_loop), scores_loop = loop(decoder, start, T)
    torch.testing.assert_close(said, said_loop)
    expect_equal((h, scores), (h_loop, scores_loop), [h0, *cell.parameters(), *top.parameters()])


def test_graphs_and_autocast_take_steps() -> None:
    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.steps, self.rnn = T, rt.RNN(torch.nn.Linear(H, H), lambda cell, h, _: (torch.tanh(cell(h)),) * 2)

        def forward(self, h: Any) -> Any:
            return self.rnn(None, 2 * h, steps=self.steps)[0].sum(0)

    torch._dynamo.reset()
    model, h = Model(), numbers(N, H).float().detach()
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    for model.steps in (T, 2, 9):
        assert torch.equal(compiled(h), model(h))
        grads = [torch.autograd.grad(run(h).sum(), [*model.parameters()]) for run in (compiled, model)]
        torch.testing.assert_close(*grads)
    exported = torch.export.export(model, (h,), strict=False).module()
    assert torch.equal(exported(h), model(h))
    with torch.autocast("cpu", torch.bfloat16):
        rounded, carry = model.rnn(None, 2 * h, steps=T)
    assert rounded.dtype == carry.dtype == torch.bfloat16
    torch.testing.assert_close(rounded.float().sum(0), model.rnn(None, 2 * h, steps=T)[0].sum(0), rtol=0.05, atol=0.05)


def test_an_onnx_file_takes_any_number_of_steps(tmp_path: Path) -> None:
    """The number of steps is the length of an input whose values are not read."""
    runtime = pytest.importorskip("onnx.reference")
    cell = torch.nn.Linear(H, H)
    rnn = rt.RNN(cell, lambda cell, h, _: (torch.tanh(cell(h)),) * 2)
    h0 = torch.ones(N, H)
    rnn(None, h0, steps=2)
    shapes = {"state_0": (N, H), "input_0": ("T", N)}
    rnnops.onnx.export(rnn.net, tmp_path / "recursion.onnx", shapes=shapes)
    weights = {name: x.detach().numpy() for name, x in rnn.named_parameters()}
    for steps in (2, 5):
        feeds = {"state_0": h0.numpy(), "input_0": np.zeros((steps, N), np.int32), **weights}
        results = runtime.ReferenceEvaluator(str(tmp_path / "recursion.onnx")).run(None, feeds)
        np.testing.assert_allclose(results[1], rnn(None, h0, steps=steps)[0].detach(), rtol=1e-5)


class Tied(torch.nn.Module):  # type: ignore[misc]
    """Two weights of one shape, the one read last made first; a buffer; a tensor that is neither."""

    hidden_size = H

    def __init__(self) -> None:
        super().__init__()
        self.rec, self.inp = torch.nn.Linear(H, H, bias=False), torch.nn.Linear(H, H, bias=False)
        self.register_buffer("scale", torch.rand(H))
        self.shift = torch.rand(H)

    def forward(self, x: Any, h: Any) -> Any:
        return torch.tanh(self.inp(x) * self.scale + self.rec(h) + self.shift)


def test_an_onnx_file_has_the_names_of_the_state_dict(tmp_path: Path) -> None:
    rnn, xs = rt.RNN(Tied()), torch.randn(T, N, H)
    path, shapes = tmp_path / "tied.onnx", {"state_0": ("N", H), "input_0": ("T", "N", H)}
    rejects(StepError, lambda: rnnops.onnx.export(rnn, path, shapes=shapes), "nothing was traced yet")
    ys, feeds = rnn(xs)[0].detach(), {"state_0": np.zeros((N, H), "float32"), "input_0": xs.numpy()}
    assert {*rnn.net.input_names[2:]} == {*rnn.state_dict(), "closed_over_3"} == {*rnn.get_params()}
    rnnops.onnx.export(rnn, path, shapes=shapes)
    model = rnnops.onnx.load_model(path)
    assert model.shapes == shapes
    np.testing.assert_allclose(ro.compile(model.net)(model.params, feeds)["all_result_0"], ys, rtol=1e-5, atol=1e-6)
    with torch.no_grad():
        rnn.cell.rec.weight.mul_(2)
    np.testing.assert_array_equal(rnn.get_params()["cell.rec.weight"], rnn.cell.rec.weight.detach())
    rejects(StepError, lambda: torch.onnx.export(rnn, (xs,), path, dynamo=False), "ro.onnx.export(rnn, path")


def test_an_onnx_file_of_a_step_for_one_batch_size_has_no_name_for_it(tmp_path: Path) -> None:
    rnn = rt.RNN(torch.nn.Linear(H, H), lambda cell, h, x: (cell(h + x.reshape(N, 2, -1).reshape(N, H)),) * 2)
    rnn(torch.randn(T, N, H), torch.zeros(N, H))
    shapes = {"state_0": ("N", H), "input_0": ("T", "N", H)}
    path = tmp_path / "fixed.onnx"
    problem = "the size 'N' has a number in the net; wanted 3"
    rejects(rnnops.onnx.OnnxError, lambda: rnnops.onnx.export(rnn, path, shapes=shapes), problem, "of the last call")
    assert not path.exists()
    rnnops.onnx.export(rnn, path, shapes={"state_0": (N, H), "input_0": ("T", N, H)})


def test_steps_that_say_nothing_or_something_else_are_refused() -> None:
    xs, h0, rnn = numbers(T, N, H), numbers(N, H), rt.RNN(torch.nn.Linear(H, H), lambda cell, h, x: step(h, x))
    for wrong in (-1, True, torch.tensor(3), 2.5, "3"):
        with pytest.raises(StepError, match="steps= must be an integer of 0 or more; got "):
            rnn(None, h0, steps=wrong)
    with pytest.raises(StepError, match=r"steps= disagrees with the inputs; wanted inputs \[6, ...\]; got \[7, 3, 4\]"):
        rnn(xs, h0, steps=6)
    torch.testing.assert_close(rnn(xs, h0, steps=T), rnn(xs, h0))
    with pytest.raises(StepError, match="Without inputs give steps="):
        rnn(None, h0)
    with pytest.raises(StepError, match="no inputs to tell N"):
        rt.RNN(torch.nn.GRUCell(H, H))(None, steps=3)
    with pytest.raises(StepError, match="neither inputs nor states"):
        rt.scan(lambda h, x: (h, x), None, None, steps=3)
    with pytest.raises(StepError, match=r"AttributeError: 'NoneType'.*got states \[3, 4\], and inputs None of a step"):
        rt.RNN(torch.nn.GRUCell(H, H))(None, h0.float(), steps=3)
    with pytest.raises(StepError, match="wanted one for each of the 3 rows; got "):
        rnn(None, h0, [1, 2], steps=3)


# gradients that end


def test_gradients_of_states_end_at_borders() -> None:
    xs, h0 = numbers(T, N, H), numbers(N, H, seed=1)

    def check(case: tuple[Any, int, bool, Any]) -> None:
        given, every, reverse, lengths = case
        mine = rt.scan(step, h0, given, steps=T, truncate=every, reverse=reverse, lengths=lengths)
        leaves = [W, h0] if given is None else [W, h0, xs]
        expect_equal(mine, loop(step, h0, T, given, every, reverse, lengths), leaves)

    check_each(product((None, xs), (1, 2, 3, T, 9), (False, True), (None, LENGTHS)), check, lambda case: str(case[1:]))
    assert not torch.autograd.grad(rt.scan(step, h0, xs, truncate=3)[0].sum(), h0)[0].any()


def test_all_states_are_cut_with_every_option() -> None:
    """States with rows at another axis, integers, tensors that a step sets; autocast, a budget, second derivatives."""
    xs, h0 = numbers(T, N, H), numbers(N, H, seed=1)

    def several(carry: Any, x: Any) -> Any:
        h, layers, count = carry
        layers = torch.tanh(layers @ W + h)
        h = torch.tanh(h @ W + x + layers.sum(0) * (count % 2))
        return (h, layers, count + 1), h

    start = h0, numbers(2, N, H), torch.zeros(N, 1, dtype=torch.int64)
    (h, layers, count), ys = rt.scan(several, start, xs, truncate=3)
    (h_loop, layers_loop, _), ys_loop = loop(several, start, T, xs, 3)
    assert count.unique().tolist() == [T]
    expect_equal((h, layers, ys), (h_loop, layers_loop, ys_loop), [W, xs, *start[:2]])

    for options in ({"memory_budget": 0.6}, {"checkpoints": "memory"}, {"threads": 2}):
        for reverse in (False, True):
            mine = rt.scan(step, h0, xs, truncate=3, reverse=reverse, **options)
            expect_equal(mine, loop(step, h0, T, xs, 3, reverse), [W, h0, xs])
    grads = [
        torch.autograd.grad(carry.square().sum(), [W, xs], create_graph=True)
        for carry, _ in (rt.scan(step, h0, xs, truncate=3), loop(step, h0, T, xs, 3))
    ]
    expect_equal(*grads, [W, xs])
    weights, ones = W.detach(), (torch.ones_like(h0), torch.ones_like(xs))

    def fixed(h: Any, x: Any) -> Any:
        return (torch.tanh(h @ weights + x),) * 2

    ways = lambda h, x: rt.scan(fixed, h, x, truncate=3)[1], lambda h, x: loop(fixed, h, T, x, 3)[1]
    torch.testing.assert_close(*(torch.func.jvp(way, (h0.detach(), xs.detach()), ones)[1] for way in ways))
    torch._dynamo.reset()
    rnn = rt.RNN(torch.nn.Linear(H, H).double(), lambda cell, h, x: (torch.tanh(cell(h) + x),) * 2, truncate=3)
    compiled = torch.compile(rnn, fullgraph=True, backend="aot_eager")
    mine, theirs = compiled(xs, h0), loop(lambda h, x: rnn.step(rnn.cell, h, x), h0, T, xs, 3)
    expect_equal(mine, theirs[::-1], [xs, *rnn.parameters()])


def test_a_tensor_that_a_step_sets_is_cut_too() -> None:
    class Remembers(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.memory = torch.zeros(N, H, dtype=torch.float64)

        def forward(self, x: Any, h: Any) -> Any:
            self.memory = torch.tanh(self.memory @ W + x)
            return h + self.memory

    xs, h0 = numbers(T, N, H), numbers(N, H, seed=1)
    ys, h = rt.RNN(Remembers(), truncate=3)(xs, h0)
    both = lambda c, x: ((c[0] + (m := torch.tanh(c[1] @ W + x)), m), c[0] + m)  # noqa: E731
    (h_loop, _), ys_loop = loop(both, (h0, torch.zeros_like(h0)), T, xs, 3)
    expect_equal((h, ys), (h_loop, ys_loop), [W, xs, h0])


def test_no_more_bytes_are_kept() -> None:
    xs, h0 = torch.randn(64, N, 32), torch.zeros(N, 32, requires_grad=True)
    kept = [rt.RNN(torch.nn.GRUCell(32, 32), truncate=every).plan(xs, h0).memory() for every in (None, 16)]
    assert kept[0].forward.bytes_of("kept") == kept[1].forward.bytes_of("kept") > 0


def test_a_reset_in_a_rollout_detaches_some_rows() -> None:
    xs, h0 = numbers(T, N, H), numbers(N, H, seed=1)
    resets = torch.rand(T, N, 1, generator=torch.Generator().manual_seed(0)) < 0.4
    for every in (None, 3):
        h, loss = h0, torch.zeros((), dtype=torch.float64)
        for t in range(T):
            h = h.detach() if every and t and t % every == 0 else h
            h = torch.where(resets[t], h.detach(), h)
            h = torch.tanh(h @ W + xs[t])
            loss = loss + h.square().sum()
        ys = rt.scan(lambda h, x: step(torch.where(x[1], h.detach(), h), x[0]), h0, (xs, resets), truncate=every)[1]
        expect_equal(ys.sum(), loss, [W, xs, h0])


def test_a_truncation_that_cannot_be_is_refused() -> None:
    for wrong in (0, -3, True, 2.0, "3", torch.tensor(3)):
        with pytest.raises(StepError, match="truncate= must be an integer of 1 or more; got "):
            rt.RNN(torch.nn.GRUCell(H, H), truncate=wrong)
    seen: list[Any] = []

    def collects(h: Any, x: Any) -> Any:
        seen.append(h)
        return h + x, h

    with pytest.raises(StepError, match="own loop has no step"):
        rt.scan(collects, numbers(N, H), numbers(0, N, H))
    with pytest.raises(StepError, match=r"truncate= needs a step that is compiled.*it reads or changes .*seen"):
        rt.scan(collects, numbers(N, H), numbers(T, N, H), truncate=2)
