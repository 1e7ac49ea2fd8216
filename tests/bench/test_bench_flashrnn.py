"""FlashRNN as a peer: absent, it is named with a reason; a module stands in for it, to see how weights are laid out."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import pytest

from bench.case import Case, Entry
from bench.contender import Bench, MissingPeerError, Settings, make_contender
from bench.measure import Measurement
from bench.problems import Problem, Size

pytestmark = pytest.mark.packages  # it is written in PyTorch
FAST = Settings("cuda", threads=1, rounds=1, counted=0.0, sets=2, tiny=True)
LSTM = Problem("lstm", Size(3, 2, 4))


@dataclass
class Config:
    """What the peer is told."""

    backend: str
    function: str
    head_dim: int
    num_heads: int
    batch_size: int
    dtype: str
    dtype_w: str
    dtype_r: str
    dtype_b: str
    input_shape: str
    recurrent_shape: str
    bias_shape: str
    output_shape: str


def stepped(inputs: Any, recurrent: Any, bias: Any, states: Any, config: Config) -> tuple[Any, Any]:
    """An LSTM that reads its arrays by the letters of the config; gates i, f, z, o."""
    import torch

    def axes(tensor: Any, shape: str, wanted: str) -> Any:
        assert tensor.shape[shape.index("H")] == config.num_heads
        return torch.einsum(f"{shape}->{wanted}", tensor)

    assert config.function == "lstm"
    assert config.output_shape == "STBHD"
    x, R = axes(inputs, config.input_shape, "TBHGD"), axes(recurrent, config.recurrent_shape, "HPGD")
    b, (h, c) = axes(bias, config.bias_shape, "HGD"), states[:, 0]
    found = []
    for given in x:
        i, f, z, o = (given + torch.einsum("BHP,HPGD->BHGD", h, R) + b).unbind(2)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(z)
        h = torch.sigmoid(o) * torch.tanh(c)
        found.append(torch.stack([h, c]))
    every = torch.stack(found, 1)
    return every, every[:, -1:]


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The module under the name of the real one."""
    pytest.importorskip("torch")
    module = ModuleType("flashrnn")
    module.FlashRNNConfig = Config  # type: ignore[attr-defined]
    module.flashrnn = lambda Wx, R, b, states, config: stepped(Wx, R, b, states, config)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "flashrnn", module)
    monkeypatch.delitem(sys.modules, "bench.flashrnn_engine", raising=False)
    return module


def case_of(mode: str, *precisions: str) -> Case:
    entries = [Entry("nn.LSTM", "nn.LSTM", LSTM, mode)]
    entries += [Entry(f"FlashRNN {one}", "FlashRNN", LSTM, mode, precision=one) for one in precisions]
    return Case("lstm", "3,2,4", tuple(entries))


@pytest.mark.usefixtures("stand_in")
@pytest.mark.filterwarnings("ignore")  # what other libraries deprecate is not ours to mend
@pytest.mark.parametrize("mode", ["forward", "training"])
@pytest.mark.parametrize("backend", ["vanilla", "cuda_fused"])
def test_it_computes_what_the_layer_does(monkeypatch: pytest.MonkeyPatch, backend: str, mode: str) -> None:
    from bench import flashrnn_engine

    monkeypatch.setitem(flashrnn_engine.LAYOUTS, "vanilla", flashrnn_engine.LAYOUTS[backend])
    bench = Bench(FAST)
    layer, peer = (make_contender(one, bench) for one in case_of(mode, "tf32").entries)
    assert layer.results
    assert peer.results
    for number in range(2):
        came, wanted = peer.results(peer.call(number)), layer.results(layer.call(number))
        assert came.keys() == wanted.keys()
        assert len(wanted) == (2 if mode == "forward" else 8)
        assert max(bench.place.error(came[name], wanted[name]) for name in wanted) < 1e-5
        assert {name: came[name].shape for name in came} == {name: wanted[name].shape for name in wanted}


@pytest.mark.usefixtures("stand_in")
@pytest.mark.filterwarnings("ignore")
def test_its_errors_are_measured_in_each_precision() -> None:
    it = Measurement(case_of("training", "tf32", "bf16"), FAST)
    rows = {row.label: row for row in it.measured()}
    assert it.wrong == []
    assert rows["FlashRNN tf32"].error < 1e-5
    assert 1e-3 < rows["FlashRNN bf16"].error < 0.1
    assert (rows["FlashRNN tf32"].tf32, rows["FlashRNN bf16"].tf32) == ("on", "-")


@pytest.mark.filterwarnings("ignore")
def test_a_peer_that_fails_is_told_and_the_others_go_on(stand_in: ModuleType) -> None:
    def no_compiler(*given: Any, **named: Any) -> Any:
        raise RuntimeError("no nvcc")

    stand_in.flashrnn = no_compiler  # type: ignore[attr-defined]
    it = Measurement(case_of("forward", "bf16"), FAST)
    rows = {row.label: row for row in it.measured()}
    assert rows["nn.LSTM"].value
    assert rows["FlashRNN bf16"].missing == "RuntimeError: no nvcc"
    assert it.wrong == []


def test_where_it_does_not_import_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    monkeypatch.setitem(sys.modules, "flashrnn", None)
    entry = case_of("forward", "bf16").entries[-1]
    with pytest.raises(MissingPeerError, match=r"FlashRNN is not measured: wanted the library flashrnn, .*pip install"):
        make_contender(entry, Bench(FAST))
