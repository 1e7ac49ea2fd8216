"""A recurrence inside the program that it lives in: copies, files, forked workers, memory, PyTorch's checkpoints."""

from __future__ import annotations

import copy
import io
import os
import subprocess
import sys
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")

from torch.utils.checkpoint import checkpoint  # noqa: E402
from torch.utils.data import DataLoader, Dataset  # noqa: E402

import rnnops.torch as rt  # noqa: E402

T, N, D, H = 7, 16, 3, 64


class Sequences(Dataset):  # type: ignore[misc]
    """Items that a recurrence makes, in the worker that is asked for them."""

    def __init__(self, rnn: Any) -> None:
        self.rnn = rnn

    def __len__(self) -> int:
        return 8

    def __getitem__(self, number: int) -> Any:
        xs = torch.full((T, N, D), 0.1 * number)
        with torch.no_grad():
            return self.rnn(xs)[0]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_forked_workers_after_threads_were_used() -> None:
    rnn = rt.RNN(torch.nn.LSTMCell(D, H), threads=2)
    items = Sequences(rnn)
    wanted = [items[i] for i in range(len(items))]
    rnn(torch.randn(T, N, D))[0].sum().backward()
    loader = DataLoader(items, batch_size=None, num_workers=2, multiprocessing_context="fork", timeout=60)
    for mine, theirs in zip(loader, wanted, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=0, atol=0)


def test_copies_are_modules_of_their_own() -> None:
    rnn, xs = rt.RNN(torch.nn.LSTMCell(D, H)), torch.randn(T, N, D)
    ys = rnn(xs)[0]
    other = copy.deepcopy(rnn)
    torch.testing.assert_close(other(xs)[0], ys, rtol=0, atol=0)
    with torch.no_grad():
        other.cell.weight_hh.zero_()
    torch.testing.assert_close(rnn(xs)[0], ys, rtol=0, atol=0)
    assert not torch.equal(other(xs)[0], ys)
    compiled = torch.compile(other, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(xs)[0], other(xs)[0])


def test_weights_go_into_the_plain_cell_and_back() -> None:
    cell, rnn, xs = torch.nn.GRUCell(D, H), rt.RNN(torch.nn.GRUCell(D, H)), torch.randn(T, N, D)
    rnn(xs)
    rnn.cell.load_state_dict(cell.state_dict())
    h = torch.zeros(N, H)
    for x in xs:
        h = cell(x, h)
    torch.testing.assert_close(rnn(xs)[1], h)
    names = [name.removeprefix("cell.") for name in rnn.state_dict()]
    assert names == list(cell.state_dict())
    cell.load_state_dict({name.removeprefix("cell."): tensor for name, tensor in rnn.state_dict().items()})


def test_modules_are_saved_and_loaded() -> None:
    rnn, xs, file = rt.RNN(torch.nn.GRUCell(D, H), checkpoints="memory"), torch.randn(T, N, D), io.BytesIO()
    ys = rnn(xs)[0]
    torch.save(rnn, file)
    file.seek(0)
    torch.testing.assert_close(torch.load(file, weights_only=False)(xs)[0], ys, rtol=0, atol=0)


@pytest.mark.parametrize("reentrant", [False, True])
def test_torch_checkpoint_around_a_recurrence(reentrant: bool) -> None:
    rnn, xs = rt.RNN(torch.nn.GRUCell(D, H)), torch.randn(T, N, D, requires_grad=True)
    wanted = torch.autograd.grad(rnn(xs)[0].square().sum(), [xs, *rnn.parameters()])
    loss = checkpoint(lambda x: rnn(x)[0], xs, use_reentrant=reentrant).square().sum()
    loss.backward()
    for leaf, grad in zip([xs, *rnn.parameters()], wanted, strict=True):
        torch.testing.assert_close(leaf.grad, grad)


@pytest.mark.parametrize("options", [{"checkpoints": ["mat_mul_*"]}, {"checkpoints": "memory"}, {"memory_budget": 0.5}])
def test_what_is_kept_changes_no_bit(options: Any) -> None:
    cell, xs = torch.nn.GRUCell(D, H), torch.randn(40, N, D, requires_grad=True)
    grads = [
        torch.autograd.grad(rnn(xs)[0].square().sum(), [xs, *cell.parameters()])
        for rnn in (rt.RNN(cell), rt.RNN(cell, **options))
    ]
    for one, other in zip(*grads, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=0)
    with pytest.raises(Exception, match="nothing"):
        rt.RNN(cell, checkpoints=["nothing"])(xs)


def test_sizes_that_come_and_go_are_not_kept_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    from rnnops.torch import prepare

    monkeypatch.setattr(prepare, "KEPT_SIZES", 3)
    rnn = rt.RNN(torch.nn.GRUCell(D, 4))
    results = [rnn(torch.ones(2, batch, D))[0][:, 0] for batch in (2, 3, 4, 5, 6, 2)]
    assert len(next(iter(rnn._prepared.values())).compiled) == 3
    torch.testing.assert_close(results[0], results[-1], rtol=0, atol=0)


PEAK = """
import sys, torch, rnnops.torch as rt
def status(name):
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith(name)) * 1024
budget = float(sys.argv[1]) if len(sys.argv) > 1 else None
rnn, xs = rt.RNN(torch.nn.LSTMCell(64, 128), memory_budget=budget), torch.randn(3000, 16, 64)
rnn(xs[:300])[1][0].sum().backward()  # compiles
open("/proc/self/clear_refs", "w").write("5")  # the peak begins anew
before = status("VmRSS")
rnn(xs)[1][0].sum().backward()
print(status("VmHWM") - before)
"""


@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="peaks are read from /proc")
def test_a_memory_budget_lowers_the_peak() -> None:
    def peak(*budget: str) -> int:
        done = subprocess.run([sys.executable, "-c", PEAK, *budget], capture_output=True, text=True, check=True)
        return int(done.stdout)

    everything, lean = peak(), peak("0.1")
    print(f"{everything / 2**20:.0f} MiB, within the budget {lean / 2**20:.0f} MiB")
    assert lean < 0.6 * everything  # results of all steps remain
