"""Cells of papers: values of loops over rows, gradients, devices, padding, unrolled copies, what is computed again."""

from __future__ import annotations

from collections.abc import Callable
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np
import paper_loops
import pytest
from devices import DEVICES
from each import check_each

import rnnops as ro
from rnnops.cells.linear_attention import rate_logs, step_biases
from rnnops.model import RNN

T, N, D, H = 3, 3, 3, 4
LENGTHS = np.array([3, 0, 2], "int32")
OLDER = {"lstm", "milstm", "layer_norm_lstm", "layer_norm_milstm", "gru", "basic_rnn"}  # test_cells.py has them
SPIKING = ("lif", "alif")
BY_HEAD = (
    *("slstm", "mlstm", "mlstm_sigmoid", "block_gru", "mamba2"),
    *("retention", "gla", "hgrn2", "delta_net", "gated_delta_net", "rwkv7"),
    *("kda", "gated_delta_product", "ttt_linear"),
)
VARIANTS: dict[str, dict[str, Any]] = {"positive_min_gru": {"positive": True}}
OPTIONS: dict[str, dict[str, Any]] = {
    **VARIANTS,
    "ntm": {"slots": 5, "width": 2},
    **{name: {"heads": 2} for name in BY_HEAD},
    "gated_delta_product": {"heads": 2, "products": 3},
    "hgrn2": {"heads": 2, "lower_bound": 0.25},
    "mamba2": {"heads": 2, "state_size": 5},
}
NAMES = [*(name for name in ro.cells.CELLS if name not in OLDER), *VARIANTS]


def cell_of(name: str) -> str:
    return name if name in ro.cells.CELLS else name.partition("_")[2]


def layers_of(name: str, layers: int = 2, **options: Any) -> tuple[ro.Net, dict[str, np.ndarray]]:
    """A stack of a cell as a layer of a model over rows that end, all results as outputs, and feeds."""
    layer = RNN(cell_of(name), H, layers, trainable_states=True, **OPTIONS.get(name, {}), **options).named("rnn")
    net = ro.Net("net", sizes_for="float64")
    y, states = layer(net.input("x", shape=(T, N, D)), net.input("lengths", "int32", shape=(N,)))
    net.outputs(y=y, **{f"last{i}": state for i, state in enumerate(states)})
    rng = np.random.default_rng(0)
    feeds = {spec.name: rng.uniform(-1, 1, spec.shape or ()) for spec in net.parameters}
    feeds = {name: np.abs(array) if "place" in name or "adaptation" in name else array for name, array in feeds.items()}
    return net, {**feeds, "x": rng.uniform(-1, 1, (T, N, D)), "lengths": LENGTHS}


def by_hand(name: str, feeds: dict[str, np.ndarray], layers: int) -> tuple[np.ndarray, list[np.ndarray]]:
    """The outputs of the top layer up to each row's end, and the last states of all layers."""
    step: Callable[..., paper_loops.Result] = getattr(paper_loops, name)
    xs, lasts = [list(feeds["x"][:, n]) for n in range(N)], []
    for layer in range(layers):
        scope = f"rnn/layer_{layer}"
        made = ro.cells.CELLS[cell_of(name)](D, H, name=scope)  # for the names of its states
        starts = [feeds[ro.cells.base.initial_name(state)] for state in made.get_state_names()]
        rows = []
        for n, length in enumerate(LENGTHS):
            states = starts
            for t in range(length):
                xs[n][t], states = step(feeds, scope, xs[n][t], *states)
            rows.append(states)
        lasts += [np.stack(parts) for parts in zip(*rows, strict=True)]
    return xs, lasts


@pytest.mark.parametrize("name", NAMES)
def test_values_of_a_loop_over_rows(name: str) -> None:
    """On the reference, and with kernels in plain Python, in float64."""
    net, feeds = layers_of(name)
    xs, lasts = by_hand(name, feeds, 2)
    for device in ("reference", "plain"):
        out = DEVICES[device](net)(feeds)
        for n, length in enumerate(LENGTHS):
            for t in range(length):
                np.testing.assert_allclose(out["y"][t, n], xs[n][t], rtol=1e-10, atol=1e-10)
        for i, last in enumerate(lasts):
            np.testing.assert_allclose(out[f"last{i}"][0], last, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", [name for name in NAMES if name not in SPIKING])  # those: test_spiking_cells.py
def test_gradients(name: str) -> None:
    net, feeds = layers_of(name, 1)
    ro.testing.check_gradient(net, feeds, sample=2)


@pytest.mark.parametrize("name", NAMES)
def test_compiled(name: str) -> None:
    ro.testing.check_devices(*layers_of(name), ["cpu"])


@pytest.mark.parametrize("heads", [2, 3])
def test_gradients_of_a_head_are_sums_over_few_and_many_elements(heads: int) -> None:
    """Kernels write loops over few elements out, but not of a sum over other axes, too."""
    net = ro.Net("net", sizes_for="float64")
    cell = ro.cells.Mamba2Cell(D, 6, heads=heads, state_size=64)
    net.outputs(y=cell.apply_over_sequence(net, net.input("x", shape=(2, 3, D)))[0])
    feeds = {**ro.init_params(net, 0, "float64"), "x": np.random.default_rng(0).normal(size=(2, 3, D))}
    ro.testing.check_devices(net, feeds, ["cpu"])


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_compiled_for_two_threads(name: str) -> None:
    """Sizes of which threads share out the work, in several tiles."""
    rows, net = 24, ro.Net("net")
    cell = ro.cells.CELLS[cell_of(name)](48, 64, name="cell", **VARIANTS.get(name, {}))
    net.outputs(y=cell.apply_over_sequence(net, net.input("x"), net.input("lengths", "int32"))[0])
    rng = np.random.default_rng(0)
    feeds = {**ro.init_params(net, 0, "float64"), "x": rng.normal(size=(20, rows, 48))}
    feeds["lengths"] = rng.integers(0, 21, rows).astype("int32")
    assert "2 threads" in str(ro.compile(net, threads=2).plan(feeds))
    ro.testing.check_devices(net, feeds, {"cpu": lambda net: ro.compile(net, threads=2)})


@pytest.mark.cuda
@pytest.mark.parametrize("name", NAMES)
def test_in_the_simulator(name: str) -> None:
    ro.testing.check_devices(*layers_of(name, 1), ["cuda"])


def test_padding_reaches_nothing() -> None:
    check_each(NAMES, no_padding)


def no_padding(name: str) -> None:
    """Whatever stands past an end: results and all gradients are those of zeros there."""
    net, feeds = layers_of(name, 1)
    zeros, filled = (results_of(net, {**feeds, "x": padded(feeds["x"], filler)}) for filler in (0.0, np.nan))
    for key, array in zeros.items():
        np.testing.assert_array_equal(filled[key], array, err_msg=key)
        assert np.isfinite(array).all(), key


def padded(x: np.ndarray, filler: float) -> np.ndarray:
    return np.where(np.arange(T)[:, None, None] < LENGTHS[:, None], x, filler)


def results_of(net: ro.Net, feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Outputs, and gradients of the sum of all outputs."""
    out, pullback = ro.compile(net, device="reference").vjp(feeds)
    grads = pullback({name: np.ones_like(array) for name, array in out.items()})
    return {**out, **{f"grad {name}": grad for name, grad in grads.items()}}


def test_what_is_computed_again_has_the_same_bits() -> None:
    check_each(NAMES, same_bits_of_less_memory)


def same_bits_of_less_memory(name: str) -> None:
    plain, less = (layers_of(name, 1, memory_optimization=recompute) for recompute in (False, True))
    assert [any(op.attributes.get("recompute") for op in net.ops) for net, _ in (plain, less)] == [False, True]
    for (key, array), again in zip(results_of(*plain).items(), results_of(*less).values(), strict=True):
        np.testing.assert_array_equal(again, array, err_msg=key)


def test_unrolled_copies_equal_the_recurrence() -> None:
    """Cells that have each kind of state: one beside the output, of other sizes, of several axes."""
    check_each(("projected_lstm", "qrnn", "slstm", "mlstm", "selective_ssm", "ntm"), equals_its_copies)


def equals_its_copies(name: str) -> None:
    results = []
    for unrolled in (False, True):
        net = ro.Net("net")
        cell: ro.cells.RNNCell = ro.cells.CELLS[cell_of(name)](D, H, name="cell", **OPTIONS.get(name, {}))
        x, lengths = net.input("x"), net.input("lengths", "int32")
        cell = ro.cells.UnrolledCell(cell, T) if unrolled else cell
        y, states = cell.apply_over_sequence(net, x, lengths)
        net.outputs(y=y, **{f"last{i}": state for i, state in enumerate(states[1::2])})
        feeds = {**ro.init_params(net, 0, "float64"), "lengths": LENGTHS}
        results.append(results_of(net, {**feeds, "x": np.random.default_rng(0).uniform(-1, 1, (T, N, D))}))
    assert results[0].keys() == results[1].keys()
    for key, array in results[0].items():
        np.testing.assert_allclose(results[1][key], array, rtol=1e-9, atol=1e-12, err_msg=key)


def test_zero_states_are_the_default_of_the_layer() -> None:
    """A cell starts from zeros without an infinity or a NaN, as `rnnops train` does."""
    check_each(NAMES, starts_from_zeros)


def starts_from_zeros(name: str) -> None:
    layer = RNN(cell_of(name), H, **OPTIONS.get(name, {})).named("rnn")
    net = ro.Net("net", sizes_for="float32")
    net.outputs(y=layer(net.input("x", shape=(T, N, D)))[0])
    feeds = {**ro.init_params(net, 0), "x": np.zeros((T, N, D), np.float32)}
    assert all(np.isfinite(array).all() for array in results_of(net, feeds).values())


def test_from_the_end_is_a_flipped_sequence() -> None:
    check_each(NAMES, equals_the_flipped)


def equals_the_flipped(name: str) -> None:
    results = []
    for reverse in (False, True):
        net = ro.Net("net")
        cell = ro.cells.CELLS[cell_of(name)](D, H, name="cell", **OPTIONS.get(name, {}))
        starts = [net.input(f"s{i}") for i in range(len(cell.get_state_names()))]
        net.outputs(y=cell.apply_over_sequence(net, net.input("x"), None, starts, reverse=reverse)[0])
        rng = np.random.default_rng(0)
        feeds = {f"s{i}": rng.uniform(size=(N, *shape)) for i, shape in enumerate(cell.get_state_shapes())}
        feeds |= {**ro.init_params(net, 0, "float64"), "x": rng.normal(size=(T, N, D))}
        feeds["x"] = feeds["x"][::-1] if reverse else feeds["x"]
        results.append(ro.compile(net, device="reference")(feeds)["y"])
    np.testing.assert_array_equal(results[1][::-1], results[0])


def start_values(name: str, state_size: int) -> dict[str, np.ndarray]:
    net = ro.Net("net", sizes_for="float64")
    cell = ro.cells.CELLS[name](50, 60, name="c", state_size=state_size)
    cell.apply_over_sequence(net, net.input("x", shape=(T, N, 50)))
    return {key.removeprefix("c/"): array for key, array in ro.init_params(net, 0, "float64").items()}


def test_eigenvalues_of_lru_begin_in_a_ring() -> None:
    nu_log, theta_log, gamma_log = start_values("lru", 2000)["eigenvalues"]
    size, angle = np.exp(-np.exp(nu_log)), np.exp(theta_log)
    assert 0.9 < size.min() < 0.901 < 0.998 < size.max() < 0.999
    np.testing.assert_allclose((size**2).mean(), (0.9**2 + 0.999**2) / 2, rtol=5e-3)  # uniform by area
    assert 0.0 < angle.min() < 0.01 < 6.27 < angle.max() < 2 * np.pi
    np.testing.assert_allclose(np.exp(2 * gamma_log), 1 - size**2)


def test_s5_begins_with_the_normal_part_of_hippo() -> None:
    values, n = start_values("s5", 8), np.arange(16)
    low = np.sqrt(np.outer(2 * n + 1, 2 * n + 1))
    hippo = -(np.tril(low, -1) + np.diag(n + 1)) + np.outer(np.sqrt(n + 0.5), np.sqrt(n + 0.5))
    wanted = sorted(np.linalg.eigvals(hippo), key=lambda value: value.imag)[8:]
    assert values["eigenvalue_re"].tolist() == [-0.5] * 8
    np.testing.assert_allclose(values["eigenvalue_im"], np.imag(wanted))
    np.testing.assert_allclose(np.real(wanted), -0.5)
    B, C, _ = paper_loops.complex_matrices({f"c/{key}": array for key, array in values.items()}, "c")
    vectors = np.linalg.eig(hippo)[1][:, np.argsort(np.linalg.eigvals(hippo).imag)][:, 8:]
    vectors *= np.exp(-1j * np.angle(vectors[0]))
    for matrix, inputs in ((2 * (vectors @ B).real, 50), (2 * (C @ vectors.conj().T).real, 16)):
        np.testing.assert_allclose(matrix.std(), inputs**-0.5, rtol=0.05)
    # B of conjugates is real in the basis of the matrix: it has the length of B of all pairs
    np.testing.assert_allclose(2 * (np.abs(B) ** 2).sum(), ((2 * (vectors @ B).real) ** 2).sum())


def test_rates_and_steps_of_mamba2_begin_as_the_papers() -> None:
    rates, steps = (start((1000,), np.random.default_rng(0)) for start in (rate_logs, step_biases))
    for array, low, high in ((np.exp(rates), 1.0, 16.0), (np.log(np.log1p(np.exp(steps))), np.log(0.001), np.log(0.1))):
        assert low <= array.min() < low + 0.05 < high - 0.05 < array.max() <= high
        np.testing.assert_allclose(array.mean(), (low + high) / 2, rtol=0.05)


def test_every_cell_is_in_the_table_of_the_docs() -> None:
    text = (Path(__file__).parents[2] / "docs" / "cells.md").read_text()
    assert not [name for name in ro.cells.CELLS if f"| `{name}` |" not in text]


@pytest.mark.usefixtures("_clean_registry")
def test_a_cell_of_ones_own_in_the_table() -> None:
    for wrong, message in ((ro.cells.RNNCell, "classes of SizedCell"), (3, "classes of SizedCell")):
        with pytest.raises(ro.NetError, match=message):
            ro.cells.register_cell(wrong)  # type: ignore[type-var]
    nameless = type("Nameless", (ro.cells.LSTMCell,), {})
    with pytest.raises(ro.NetError, match="default_name of its own"):
        ro.cells.register_cell(nameless)
    with pytest.raises(ro.NetError, match="is taken"):
        ro.cells.register_cell(type("Other", (ro.cells.LSTMCell,), {"default_name": "lstm"}))
    with pytest.raises(ro.NetError, match="Split: state_names is a string; wanted a tuple of names"):
        type("Split", (ro.cells.SizedCell,), {"state_names": "hidden_t"})


def test_a_docstring_has_the_arguments_and_errors_of_its_base() -> None:
    class Own(ro.cells.SizedCell):
        """A cell.

        Args:
            rate: of change.

        Raises:
            NetError: rate is not a number.
        """

        def __init__(self, input_size: int, hidden_size: int, *, rate: float = 0.5, **options: Any) -> None:
            super().__init__(input_size, hidden_size, **options)

    told = Own.__doc__ or ""
    assert [told.count(word) for word in ("rate:", "drop_states:", "NetError:", "ArgumentError:")] == [1, 1, 1, 1]
    assert "NetError: rate is not a number.\n    ArgumentError: an argument is" in told


def test_a_docstring_keeps_all_that_its_author_wrote() -> None:
    lines = ["rate (float, optional): of change.", "**options: as of the base.", "hidden_size (int): units."]
    doc = "\n".join(["A cell.", "", "Args:", *(f"    {line}" for line in lines)])
    told = type("Own", (ro.cells.SizedCell,), {"__doc__": doc}).__doc__ or ""
    assert [told.count(line) for line in (*lines, "hidden_size", "drop_states:")] == [1] * 5


def test_signatures_have_common_and_own_options() -> None:
    names = [*signature(ro.cells.CoRNNCell).parameters]
    assert names[:5] == ["input_size", "hidden_size", "dt", "gamma", "epsilon"]
    assert "memory_optimization" in names
    with pytest.raises(ro.ModelError, match="banana"):
        layers_of("cornn", banana=1)
