"""Peers of the benchmark compute what the reference does; those that are not installed are skipped by name."""

from __future__ import annotations

import pytest

from bench.agreement import disagreement
from bench.case import Entry
from bench.contender import ENGINES, Bench, MissingPeerError, Settings, make_contender
from bench.problems import Problem, Size

SIZE = Size(4, 3, 8)
BENCH = Bench(Settings(device="reference", threads=1))
OWN_CELLS = ("lstm", "milstm", "layer_norm_lstm", "gru", "attention_decoder")
FIRST_CELLS = ("sLSTM", "layer norm LSTM", "independent RNN", "attentive RNN")
PAIRS = [
    *((engine, net, "training") for engine in ("eager", "JAX", "JAX checkpoint") for net in OWN_CELLS),
    *(("JAX", net, "training") for net in FIRST_CELLS),
    ("eager", "lstm", "forward"),
    ("JAX", "attention_decoder", "forward"),
    *(  # half a minute of compiling
        pytest.param("torch.compile", net, mode, marks=pytest.mark.slow)
        for net in OWN_CELLS
        for mode in ("forward", "training")
    ),
    *(
        (engine, net, mode)
        for engine, net in (("nn.LSTM", "lstm"), ("nn.GRU", "gru"), ("packed sequence", "lstm_with_lengths"))
        for mode in ("forward", "training")
    ),
    ("onnxruntime", "lstm", "forward"),
]


@pytest.mark.filterwarnings("ignore")  # what other libraries deprecate is not ours to mend
@pytest.mark.parametrize(("engine", "net", "mode"), PAIRS)
def test_a_peer_agrees_with_the_reference(engine: str, net: str, mode: str) -> None:
    problem = Problem(net, SIZE)
    try:
        peer = make_contender(Entry(engine, engine, problem, mode), BENCH)
    except MissingPeerError as error:
        pytest.skip(str(error))
    reference = make_contender(Entry("reference", "reference", problem, mode), BENCH)
    assert peer.results
    assert reference.results
    came, wanted = peer.results(peer.call(0)), reference.results(reference.call(0))
    if engine != "onnxruntime":  # the one that has no gradients
        assert came.keys() == wanted.keys()
    assert disagreement(engine, came, "reference", wanted) == []


@pytest.mark.parametrize("engine", [engine for engine, made in ENGINES.items() if made.needs])
def test_a_peer_that_is_missing_says_what_to_install(engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_import(library: str) -> None:
        raise ImportError(f"No module named '{library}'")

    monkeypatch.setattr("bench.contender.import_module", no_import)
    with pytest.raises(
        MissingPeerError, match=rf"{engine} is not measured: wanted the library {ENGINES[engine].needs[0]}"
    ):
        make_contender(Entry(engine, engine, Problem("lstm", SIZE)), BENCH)
