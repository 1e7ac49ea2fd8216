"""torch.compile and torch.export see one opaque op, whose values, gradients and shapes are those of eager mode."""

from __future__ import annotations

import gc
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning", "ignore::FutureWarning")

from torch._dynamo.testing import CompileCounterWithBackend  # noqa: E402
from torch.utils._pytree import tree_leaves  # noqa: E402

import rnnops.torch as rt  # noqa: E402
from rnnops.torch import run_scan  # noqa: E402

T, N, D, H = 6, 4, 3, 5


class Tagger(torch.nn.Module):
    """A recurrence between other layers."""

    def __init__(self, rnn: Any) -> None:
        super().__init__()
        self.rnn, self.first, self.last = rnn, torch.nn.Linear(D, D), torch.nn.Linear(H, 2)

    def forward(self, xs: Any, *given: Any) -> Any:
        ys, carry = self.rnn(torch.relu(self.first(xs)), *given)
        return self.last(torch.relu(ys)).sum(-1), carry


def noisy(cell: Any, carry: Any, x: Any) -> Any:
    carry = cell(torch.nn.functional.dropout(x, 0.5), carry)
    return carry, carry


def nested(cell: Any, carry: Any, x: Any) -> Any:
    h = cell(x["left"] + x["right"][0], carry["h"])
    return {"h": h, "count": carry["count"] + 1}, [h, h, x["left"]]


def results_of(function: Any, model: Any, *given: Any) -> list[Any]:
    """Outputs, and all gradients of a sum of their squares."""
    leaves = [leaf for leaf in tree_leaves(given) if leaf.requires_grad]
    outputs = [leaf for leaf in tree_leaves(function(*given)) if leaf.is_floating_point()]
    loss = sum(output.square().sum() for output in outputs)
    return [*outputs, *torch.autograd.grad(loss, [*leaves, *model.parameters()])]


def expect_equal(mine: list[Any], theirs: list[Any]) -> None:
    assert len(mine) == len(theirs)
    for a, b in zip(mine, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)


@pytest.fixture(autouse=True)
def _compiled_anew() -> None:
    torch._dynamo.reset()


MODELS = {
    "lstm": lambda: rt.RNN(torch.nn.LSTMCell(D, H)),
    "reverse": lambda: rt.RNN(torch.nn.GRUCell(D, H), reverse=True),
    "batch first": lambda: rt.RNN(torch.nn.RNNCell(D, H), batch_first=True),
}


@pytest.mark.parametrize("name", MODELS)
def test_a_model_is_one_graph_for_all_sizes(name: str) -> None:
    """Of a second size the graph is made anew with symbols, which serve the third; one row is a graph of its own."""
    model, counter = Tagger(MODELS[name]()), CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(model, fullgraph=True, backend=counter)
    for time, batch in ((T, N), (T + 1, N + 2), (T + 5, N + 7), (2, 3), (T, 1)):
        xs = torch.randn(*((batch, time) if name == "batch first" else (time, batch)), D, requires_grad=True)
        expect_equal(results_of(compiled, model, xs), results_of(model, model, xs))
        with torch.no_grad():
            torch.testing.assert_close(compiled(xs)[0], model(xs)[0])
    assert counter.frame_count <= 2 * 3  # with and without gradients


def test_inductor_keeps_what_backward_reads() -> None:
    model = Tagger(rt.RNN(torch.nn.LSTMCell(D, H)))
    xs = torch.randn(T, N, D, requires_grad=True)
    expect_equal(results_of(torch.compile(model, fullgraph=True), model, xs), results_of(model, model, xs))


def test_a_step_is_prepared_within_a_graph() -> None:
    """Nothing ran in eager mode before."""
    model = Tagger(rt.RNN(torch.nn.LSTMCell(D, H)))
    xs = torch.randn(T, N, D)
    mine = results_of(torch.compile(model, fullgraph=True, backend="aot_eager"), model, xs)
    expect_equal(mine, results_of(model, model, xs))


def test_structures_of_tensors() -> None:
    rnn = rt.RNN(torch.nn.GRUCell(D, H), nested)
    xs = {"left": torch.randn(T, N, D, requires_grad=True), "right": [torch.randn(T, N, D)]}
    init = {"h": torch.randn(N, H, requires_grad=True), "count": torch.zeros(N, dtype=torch.int64)}
    compiled = torch.compile(rnn, fullgraph=True, backend="aot_eager")
    expect_equal(results_of(compiled, rnn, xs, init), results_of(rnn, rnn, xs, init))
    assert compiled(xs, init)[1]["count"].tolist() == [T] * N


def test_lengths() -> None:
    rnn, xs = rt.RNN(torch.nn.LSTMCell(D, H)), torch.randn(T, N, D, requires_grad=True)
    compiled = torch.compile(lambda x, n: rnn(x, lengths=n), fullgraph=True, backend="aot_eager")
    for lengths in (torch.tensor([6, 2, 0, 5]), torch.tensor([1, 2, 3, 4])):
        mine = results_of(compiled, rnn, xs, lengths)
        expect_equal(mine, results_of(lambda x, n: rnn(x, lengths=n), rnn, xs, lengths))


def test_random_numbers_are_new_at_each_call_and_follow_the_seed() -> None:
    rnn, xs = rt.RNN(torch.nn.GRUCell(D, H), noisy), torch.randn(T, N, D)
    compiled, init = torch.compile(rnn, fullgraph=True, backend="aot_eager"), torch.zeros(N, H)
    drawn = []
    for seed in (0, 0, 1):
        torch.manual_seed(seed)
        drawn += [compiled(xs, init)[0], compiled(xs, init)[0]]
    same = [[i for i, other in enumerate(drawn) if torch.equal(one, other)] for one in drawn]
    assert same == [[0, 2], [1, 3], [0, 2], [1, 3], [4], [5]]


def test_nothing_is_left_of_graphs_that_are_dropped() -> None:
    rnn, xs = rt.RNN(torch.nn.GRUCell(D, H)), torch.randn(T, N, D)
    compiled = torch.compile(rnn, fullgraph=True, backend="aot_eager")
    for _ in range(5):
        compiled(xs)
    compiled(xs)[0].sum().backward()
    gc.collect()
    assert not run_scan._pullbacks


def test_a_graph_that_is_kept_runs_backward_twice() -> None:
    rnn, xs = rt.RNN(torch.nn.GRUCell(D, H)), torch.randn(T, N, D)
    loss = torch.compile(rnn, fullgraph=True, backend="aot_eager")(xs)[0].square().sum()
    first = torch.autograd.grad(loss, rnn.parameters(), retain_graph=True)
    expect_equal(list(first), list(torch.autograd.grad(loss, rnn.parameters())))


def test_scans_run_beside_the_graph() -> None:
    w, xs = torch.randn(D, H), torch.randn(T, N, D)

    def model(xs: Any) -> Any:
        return rt.scan(lambda h, x: (torch.tanh(h + x @ w),) * 2, torch.zeros(N, H), xs * 2)[1] + 1

    torch.testing.assert_close(torch.compile(model, backend="aot_eager")(xs), model(xs))
    torch._dynamo.reset()
    with pytest.raises(Exception, match=r"takes an rnnops\.torch\.RNN into its graph"):
        torch.compile(model, fullgraph=True, backend="aot_eager")(xs)


@pytest.mark.parametrize("known", [False, True])
def test_export_is_one_op_for_all_sizes(known: bool) -> None:
    model, xs = Tagger(rt.RNN(torch.nn.LSTMCell(D, H))), torch.randn(T, N, D)
    if known:
        model(xs)
    sizes = {0: torch.export.Dim("T"), 1: torch.export.Dim("N")}
    program = torch.export.export(model, (xs,), dynamic_shapes=(sizes,), strict=False)
    ops = [str(node.target) for node in program.graph.nodes if node.op == "call_function"]
    assert ops.count("rnnops.recurrence.default") == 1
    for other in (xs, torch.randn(T + 3, N + 5, D), torch.randn(2, 1, D)):
        torch.testing.assert_close(program.module()(other)[0], model(other)[0])


def test_what_export_cannot_take_has_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    model, xs = Tagger(rt.RNN(torch.nn.LSTMCell(D, H))), torch.randn(T, N, D)
    with pytest.raises(Exception, match="needs strict=False"):
        torch.export.export(model, (xs,), strict=True)
    program = torch.export.export(model, (xs,), strict=False)
    monkeypatch.setattr(run_scan, "_calls", {})  # as in a process that loads it
    with pytest.raises(rt.StepError, match="recurrence of another process"):
        program.module()(xs)


def test_opcheck() -> None:
    rnn = rt.RNN(torch.nn.GRUCell(D, H), nested)
    xs = {"left": torch.randn(T, N, D, requires_grad=True), "right": [torch.randn(T, N, D)]}
    init = {"h": torch.randn(N, H), "count": torch.zeros(N, dtype=torch.int64)}
    torch.export.export(rnn, (xs, init), strict=False)
    call = next(reversed(run_scan._calls))
    tensors = [*tree_leaves((init, xs)), *rnn.cell.parameters()]
    wanted = [tensor.requires_grad for tensor in tensors]
    torch.library.opcheck(run_scan.recurrence, (tensors, wanted, None, call))
    outputs = run_scan.recurrence(tensors, wanted, None, call)
    present = [output.is_floating_point() for output in outputs[:-1]]
    grads = [torch.randn_like(output) for output, here in zip(outputs, present, strict=False) if here]
    detached, outputs = ([tensor.detach() for tensor in group] for group in (tensors, outputs))
    torch.library.opcheck(run_scan.recurrence_backward, (grads, present, detached, outputs, wanted, None, call))


def test_a_parameter_that_is_replaced_counts_at_every_batch_size() -> None:
    rnn, xs = rt.RNN(torch.nn.GRUCell(D, H)), torch.randn(T, N, D)
    rnn(xs)
    rnn.cell.weight_hh = torch.nn.Parameter(torch.randn(3 * H, H))
    other = rt.RNN(rnn.cell)
    for batch in (N, N + 1, 1):
        xs = torch.randn(T, batch, D)
        expect_equal(results_of(rnn, rnn, xs), results_of(other, other, xs))
