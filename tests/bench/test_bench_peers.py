"""Peers of the benchmark compute what the reference does; those that are not installed are skipped by name."""

from __future__ import annotations

import pytest

from bench.agreement import check_agreement
from bench.contender import ENGINES, MissingPeerError, Settings, make_contender
from bench.problems import Problem, Size

SIZE = Size(4, 3, 8)
SETTINGS = Settings(device="reference", threads=1)
OWN_CELLS = ("lstm", "milstm", "layer_norm_lstm", "gru", "attention_decoder")
PAIRS = [
    *((engine, net) for engine in ("eager", "JAX", "JAX checkpoint") for net in OWN_CELLS),
    *(pytest.param("torch.compile", net, marks=pytest.mark.slow) for net in OWN_CELLS),  # half a minute of compiling
    ("nn.LSTM", "lstm"),
    ("nn.GRU", "gru"),
    ("packed sequence", "lstm_with_lengths"),
    ("onnxruntime", "lstm"),
]


@pytest.mark.filterwarnings("ignore")  # what other libraries deprecate is not ours to mend
@pytest.mark.parametrize("mode", ["forward", "training"])
@pytest.mark.parametrize(("engine", "net"), PAIRS)
def test_a_peer_agrees_with_the_reference(engine: str, net: str, mode: str) -> None:
    problem = Problem(net, SIZE)
    try:
        peer = make_contender(engine, problem, mode, SETTINGS)
    except MissingPeerError as error:
        pytest.skip(str(error))
    reference = make_contender("reference", problem, mode, SETTINGS)
    assert peer.results
    assert reference.results
    came, wanted = peer.results(peer.call()), reference.results(reference.call())
    if engine != "onnxruntime":  # the one that has no gradients
        assert came.keys() == wanted.keys()
    check_agreement(engine, came, "reference", wanted)


@pytest.mark.parametrize("engine", [engine for engine, made in ENGINES.items() if made.needs])
def test_a_peer_that_is_missing_says_what_to_install(engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_import(library: str) -> None:
        raise ImportError(f"No module named '{library}'")

    monkeypatch.setattr("bench.contender.import_module", no_import)
    with pytest.raises(
        MissingPeerError, match=rf"{engine} is not measured: wanted the library {ENGINES[engine].needs[0]}"
    ):
        make_contender(engine, Problem("lstm", SIZE), "training", SETTINGS)
