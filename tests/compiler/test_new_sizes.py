"""Plans for new sizes are filled in, and are what a plan made for these sizes alone is: in text, fields and bits."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import FrameType
from typing import Any

import numpy as np
import pytest
from devices import PLAIN
from same_plans import differences
from word_nets import words_net

import rnnops as ro
from rnnops.compiler.api.run import Run
from rnnops.compiler.run import pipeline
from rnnops.compiler.run.pipeline import ForwardPlan, PlanTemplates
from rnnops.errors import RnnopsError
from rnnops.types import Type

H, WORDS = 8, 11
Shapes = Mapping[str, tuple[int, ...]]
Case = tuple[ro.Net, Callable[[int, int], Shapes]]
SIZES = [(34, 16), (35, 17), (38, 21), (9, 5)]  # the first is planned alone, the second with symbols
NEAR = [(34, 16), (35, 17), (36, 18), (37, 19)]  # for which a budget compares all ways with the same outcome
PRESETS = ("BasicRNN", "LSTM", "GRU", "MILSTM", "LayerNormLSTM", "LayerNormMILSTM")


def preset(name: str, masked: bool = False, **options: Any) -> Case:
    net = ro.Net("model")
    lengths = net.input("lengths", "int32") if masked else None
    results = getattr(ro, name)(net, net.input("x"), lengths, None, 3, [H, H], **options)
    net.outputs(**{f"out{i}": blob for i, blob in enumerate(results)})
    return net, lambda T, N: {"x": (T, N, 3), **({"lengths": (N,)} if masked else {})}


def language_model() -> Case:
    net = ro.Net("language_model")
    tokens, labels = net.input("tokens", "int32"), net.input("labels", "int32")
    x = ro.gather(net.parameter("table", (WORDS, H), ("xavier", H)), tokens, axis=0)
    h_all, *_ = ro.LSTM(net, x, None, None, H, [H, H], scope="lstm")
    scores = ro.reshape(h_all, [-1, H]) @ net.parameter("w", (H, WORDS), ("xavier", H))
    scores = scores + net.parameter("b", (WORDS,), "zeros")
    net.outputs(loss=ro.softmax_cross_entropy_loss(scores, ro.reshape(labels, [-1])), scores=scores)
    return net, lambda T, N: {"tokens": (T, N), "labels": (T, N)}


def attention(kind: str) -> Case:
    net, S, E = ro.Net("attention"), 6, 5
    x, encoder = net.inputs("x", "encoder")
    lengths = net.input("encoder_lengths", "int32")
    decoder = ro.cells.LSTMCell(3, H, name="decoder")
    cell = ro.cells.AttentionCell(E, encoder, lengths, decoder, H, kind, name="att")
    states = [net.input(name) for name in ("h0", "c0", "context0")]
    output, _ = cell.apply_over_sequence(net, x, None, states)
    net.outputs(output=output)
    return net, lambda T, N: {
        "x": (T, N, 3),
        "encoder": (S, N, E),
        "encoder_lengths": (N,),
        "h0": (N, H),
        "c0": (N, H),
        "context0": (N, E),
    }


def cell_of_moves() -> Case:
    """A cell of ops that move elements, with plain inputs for weights: all sizes of feeds are symbols."""
    net, cell = ro.Net("moves"), ro.Net("cell")
    x, h, w = cell.inputs("x", "h_prev", "w")
    a, b = ro.split(ro.concat(x, h, axis=-1) @ w, 2, axis=-1)
    turned = ro.transpose(ro.tanh(ro.transpose(a, (1, 0))), (1, 0))
    middle = ro.slice(ro.concat(turned, b, axis=-1), [1], [1 + H], axes=[-1])
    folded = ro.reduce_sum(ro.reshape(turned, [0, 2, -1]), axes=[1], keepdims=0)
    cell.outputs(h_t=ro.sigmoid(b) * middle + ro.concat(folded, folded, axis=-1))
    xs, h0, w = net.inputs("xs", "h0", "w")
    h_all, *_ = ro.recurrent_net(net, cell, [("x", xs)], [("h_prev", h0)], {"h_prev": "h_t"}, references={"w": w})
    net.outputs(y=h_all)
    return net, lambda T, N: {"xs": (T, N, 4), "h0": (N, H), "w": (4 + H, 2 * H)}


WEIGHTS = {"w": (3, 5), "u": (5, 5), "v": (5, 4)}  # of `words_net`
CASES: dict[str, Callable[[], Case]] = {
    **{name: (lambda name=name: preset(name)) for name in PRESETS},
    **{f"masked {name}": (lambda name=name: preset(name, masked=True)) for name in PRESETS},
    "memory": lambda: preset("LSTM", memory_optimization=True),
    "language model": language_model,
    "cell of moves": cell_of_moves,
    "stepped from Python": lambda: (words_net(), lambda T, N: {"words": (T, N, 3, 3), "h0": (N, 5), **WEIGHTS}),
    **{f"{kind} attention": (lambda kind=kind: attention(kind)) for kind in ("regular", "recurrent", "dot")},
}


def feeds_at(net: ro.Net, shapes: Shapes) -> dict[str, np.ndarray]:
    rng, feeds = np.random.default_rng(0), ro.init_params(net, 0, "float32")
    for spec in net.input_specs:
        if spec.name in shapes:
            size = shapes[spec.name]
            whole = spec.dtype == "int32"
            feeds[spec.name] = (
                rng.integers(1, 6, size).astype("int32") if whole else rng.normal(size=size).astype("float32")
            )
    return feeds


def templates(run: Run) -> int:
    return sum(len(one.templates) for table in run._templates for one in table._structures._plans.values())


def trained(run: Run, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    outputs, pullback = run.vjp(feeds, seed=3)
    grads = pullback({name: np.ones_like(a) for name, a in outputs.items() if a.dtype.kind == "f"})
    return {**outputs, **{f"gradient of {name}": array for name, array in grads.items()}}


def assert_same_bits(one: Mapping[str, np.ndarray], other: Mapping[str, np.ndarray]) -> None:
    assert one.keys() == other.keys()
    for name, array in one.items():
        assert array.tobytes() == other[name].tobytes(), name


def filled_in(net: ro.Net, shapes: Callable[[int, int], Shapes], backward: bool, **options: Any) -> int:
    """How many plans were filled in; each is compared with one that was made for its sizes."""
    (first, *others), filled = NEAR if "memory_budget" in options else SIZES, 0
    run = ro.compile(net, **options)
    run.plan(feeds_at(net, shapes(*first)), backward=backward)  # made directly itself
    for T, N in others:
        before, feeds = templates(run), feeds_at(net, shapes(T, N))
        planned = run.plan(feeds, backward=backward)
        direct = ro.compile(net, **options).plan(feeds, backward=backward)
        assert differences(planned, direct) == [], (T, N)
        filled += before == templates(run)
    return filled


CALLS = ("LSTM", "masked GRU", "language model")  # of which passes without a backward one are looked at too


@pytest.mark.parametrize(("name", "backward"), [*((name, True) for name in CASES), *((name, False) for name in CALLS)])
def test_filled_plans_are_those_made_directly(name: str, backward: bool) -> None:
    net, shapes = CASES[name]()
    assert filled_in(net, shapes, backward, threads=2) >= 1


@pytest.mark.parametrize("options", [{"checkpoints": "all"}, {"checkpoints": "memory"}, {"memory_budget": 0.5}])
def test_with_policies_and_budgets(options: dict[str, Any]) -> None:
    assert filled_in(*preset("LSTM"), backward=True, threads=1, **options) >= 1
    assert filled_in(*preset("GRU", masked=True), backward=True, threads=1, recycle=False, **options) >= 1


@pytest.mark.parametrize("name", ["LSTM", "masked LayerNormLSTM", "language model", "dot attention"])
def test_results_have_the_bits_of_a_direct_plan(name: str) -> None:
    net, shapes = CASES[name]()
    run, wanted = ro.compile(net, threads=2), {}
    for T, N in SIZES:
        feeds, direct = feeds_at(net, shapes(T, N)), ro.compile(net, threads=2)
        wanted[T, N] = trained(direct, feeds)
        assert_same_bits(trained(run, feeds), wanted[T, N])
        assert_same_bits(run(feeds), direct(feeds))
    for T, N in SIZES:  # once more: what a plan has worked out at its first run is its own
        assert_same_bits(trained(run, feeds_at(net, shapes(T, N))), wanted[T, N])


@pytest.mark.parametrize("seed", range(24))
def test_random_nets(seed: int) -> None:
    made = ro.testing.random_net(seed)
    tuning = replace(PLAIN, around="rows")
    run = ro.compile(made.net, threads=1, tuning=tuning)
    for larger in ({}, {2: 7, 3: 5, 4: 11, 5: 6}, {2: 3, 3: 2, 4: 9, 5: 8}, {3: 3, 2: 8, 4: 7, 5: 12}):
        shapes = {n: tuple(larger.get(size, size) for size in a.shape) for n, a in made.feeds.items()}
        try:
            direct = ro.compile(made.net, threads=1, tuning=tuning).plan(shapes, dtype="float64")
        except RnnopsError:  # the net has some of these sizes written in it
            with pytest.raises(RnnopsError):
                run.plan(shapes, dtype="float64")
            continue
        assert differences(run.plan(shapes, dtype="float64"), direct) == []


def calls_of(action: Callable[[], Any]) -> int:
    """How many Python functions are called."""
    count = 0

    def note(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal count
        count += event == "call"

    sys.setprofile(note)
    try:
        action()
    finally:
        sys.setprofile(None)
    return count


def test_a_new_size_costs_what_filling_in_numbers_costs() -> None:
    """By calls of Python functions: planning takes hundreds of thousands, about half a microsecond each."""
    net, shapes = language_model()
    run = ro.compile(net, threads=1)
    feeds = {T: feeds_at(net, shapes(T, 8)) for T in (50, 51, 52, 53)}
    for T in (50, 51, 52):
        trained(run, feeds[T]), run(feeds[T])
    known = calls_of(lambda: trained(run, feeds[52])), calls_of(lambda: run(feeds[52]))
    new = calls_of(lambda: trained(run, feeds[53])), calls_of(lambda: run(feeds[53]))
    assert new[0] - known[0] < 8000
    assert new[1] - known[1] < 4000


def test_hundreds_of_lengths_in_turn_are_planned_once(monkeypatch: pytest.MonkeyPatch) -> None:
    net, shapes = language_model()
    run, made = ro.compile(net, threads=1, tuning=PLAIN), []
    structure = pipeline.training_structure
    monkeypatch.setattr(pipeline, "training_structure", lambda *given: made.append(given) or structure(*given))
    lengths = [2 + 10 * i for i in range(40)]
    for T in lengths:
        run.plan(feeds_at(net, shapes(T, 4)))
    assert len(made) <= 20
    first, before = len(made), [run.plan(feeds_at(net, shapes(T, 4))).plan for T in lengths]
    again = [run.plan(feeds_at(net, shapes(T, 4))).plan for T in lengths]
    assert len(made) == first
    assert all(a is b for a, b in zip(before, again, strict=True))


def test_what_a_plan_works_out_later_is_its_own() -> None:
    """Layers, packed parameters, element numbers: made at the first use of a plan, and not of another one."""
    net, shapes = language_model()
    run = ro.compile(net, threads=1)
    bound = run.bind(**feeds_at(net, {}))
    for T in (20, 21, 22, 21):
        feeds = feeds_at(net, shapes(T, 4))
        alone = ro.compile(net, threads=1)
        _, pullback = run.vjp(feeds)
        _, other = alone.vjp(feeds)
        one, two = ({"loss": np.ones((), "f"), "scores": np.ones((T * 4, WORDS), "f")} for _ in range(2))
        for ours, theirs in zip(pullback.layers(one), other.layers(two), strict=True):
            assert ours[0] == theirs[0]
            assert all(a.tobytes() == b.tobytes() for a, b in zip(ours[2], theirs[2], strict=True))
        few = {name: feeds[name] for name in ("tokens", "labels")}
        assert_same_bits(bound(few), alone.bind(**feeds_at(net, {}))(few))


def test_sizes_that_happen_to_be_equal_are_a_structure_of_their_own() -> None:
    net, shapes = cell_of_moves()
    run = ro.compile(net, threads=1)
    for T, N in (
        (6, 5), (7, 6), (8, 8), (5, 8), (9, 4), (12, 16), (6, 6), (1, 7), (7, 1), (0, 5),
    ):  # fmt: skip
        feeds = feeds_at(net, shapes(T, N))
        assert_same_bits(trained(run, feeds), trained(ro.compile(net, threads=1), feeds))


def test_errors_about_sizes_are_those_of_a_first_plan() -> None:
    net, shapes = language_model()
    run = ro.compile(net, threads=1)
    for T in (5, 6, 7):
        run(feeds_at(net, shapes(T, 4)))
    wrong = {**feeds_at(net, shapes(8, 4)), "labels": np.zeros((9, 4), "int32")}
    with pytest.raises(RnnopsError) as first:
        ro.compile(net, threads=1)(wrong)
    with pytest.raises(RnnopsError) as later:
        run(wrong)
    assert str(first.value) == str(later.value)


def test_the_comparison_of_plans_sees_one_wrong_number() -> None:
    net, shapes = preset("LSTM")
    runs = [ro.compile(net, threads=1) for _ in range(2)]
    one, other = (run.plan(feeds_at(net, shapes(6, 4))) for run in runs)
    assert differences(one, other) == []
    (scan,) = [kernel for kernel in other.plan.compiled.forward.values() if hasattr(kernel, "states")]
    scan.compiled.text = replace(
        scan.compiled.text, sizes=(scan.compiled.text.sizes[0] + 1, *scan.compiled.text.sizes[1:])
    )
    assert [where for where in differences(one, other) if "sizes" in where]


def test_what_has_no_template_is_seldom_tried_again() -> None:
    """Under a budget recurrences run in parts, which are planned for each T: once and not twice."""
    made: list[object] = []

    def make(types: Mapping[str, Type]) -> ForwardPlan:
        made.append(types)
        raise_for_symbols(types["x"].shape)
        return None  # type: ignore[return-value]

    templates = PlanTemplates[ForwardPlan]()
    for T in range(100, 130):
        templates.plan("key", {"x": Type("float32", (T, 3))}, (), make)
    assert len(made) <= 30 + 5


def raise_for_symbols(shape: tuple[int, ...]) -> None:
    if any(type(size) is not int for size in shape):
        raise ValueError("no symbols")
