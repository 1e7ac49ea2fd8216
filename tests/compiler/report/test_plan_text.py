"""`run.plan`: which plan it is, what it says of loops, products, sums and aliases, its source, and bad feeds."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from memory_nets import NETS, D, H, N, T, feeds_of, recurrent_model
from small_runs import lstm_feeds, lstm_net, product_net

import rnnops as ro
from rnnops.compiler import PlannedRun
from rnnops.compiler.run.compiled_scan import Options
from rnnops.util import readable


def plain_run(net: ro.Net, **tuning: Any) -> ro.Run:
    return ro.compile(net, device="cpu", tuning=Options(compiled=False, **tuning))


def sections(planned: PlannedRun) -> dict[str, str]:
    """What `describe` says of each pass of each recurrence, and of all of them under `""`, in one line each."""
    first, *rest = planned.describe().split("\n\n")
    titled = dict(part.split(":\n", 1) for part in rest)
    return {title: " ".join(text.split()) for title, text in {"": first, **titled}.items()}


# -- which plan --------------------------------------------------------------------------------------------------------


def test_shapes_and_arrays_give_the_plan_that_calls_use() -> None:
    run, feeds = plain_run(lstm_net()), lstm_feeds("float32")
    run.vjp(feeds)
    run(feeds)
    (training,), (forward,) = run._training._plans.values(), run._forward._plans.values()
    shapes = {"x": feeds["x"].shape, "lengths": list(feeds["lengths"].shape)}
    for given in (shapes, feeds, {**shapes, "x": feeds["x"]}):
        assert run.plan(given).plan is training
        assert run.plan(given, backward=False).plan is forward
    assert run.plan(shapes, dtype="float64").plan is not training
    assert run.plan(shapes, dtype=np.float32, wrt=["x"]).plan is not training
    longer = run.plan(shapes | {"x": (9, *feeds["x"].shape[1:])}).plan
    run.vjp(lstm_feeds("float32", steps=9))
    assert len(run._training) == 4, "the call found the plan"
    assert longer is not training


def test_what_is_bound_is_planned_with() -> None:
    feeds = lstm_feeds("float64")
    parameters = {name: feeds[name] for name in feeds if name not in ("x", "lengths")}
    planned = plain_run(lstm_net()).bind(**parameters).plan(x=feeds["x"].shape, lengths=feeds["lengths"].shape)
    assert planned.plan.program.float_dtype == "float64"
    assert "packed once, as it is bound: s/i2h_w" in planned.describe()


@pytest.mark.parametrize(
    ("given", "names"),
    [
        ({"x": (T, N, D)}, ["lengths", "left out", "no shape is declared"]),
        ({"x": (T, N, D), "lengths": (N,), "q": (1,)}, ["q", "no such input"]),
        ({"x": (T, -1, D), "lengths": (N,)}, ["x", "not a shape", "-1"]),
        ({"x": (T, N, 0.5), "lengths": (N,)}, ["x", "not a shape", "0.5"]),
        ({"x": (T, True, D), "lengths": (N,)}, ["x", "not a shape"]),
        ({"x": T, "lengths": (N,)}, ["x", "not an array", "int"]),
        ({"x": "xyz", "lengths": (N,)}, ["x", "not an array", "str"]),
        ({"x": (T, N, D), "lengths": np.zeros(N)}, ["lengths", "int32", "float64"]),
        ({"x": (T, N, D), "lengths": (N,), "s/i2h_w": (1, D)}, ["s/i2h_w", "wrong shape", f"[1, {D}]"]),
        ({"x": np.zeros((T, N, D)), "lengths": (N,), "dtype": "float32"}, ["float32", "float64"]),
        ({"x": (T, N, D), "lengths": (N,), "dtype": "int32"}, ["dtype", "int32"]),
        ({"x": (T, N, D), "lengths": (N,), "dtype": object()}, ["dtype", "object"]),
        ({"x": (T, N, D), "lengths": (N,), "wrt": "y"}, ["wrt", "y"]),
    ],
)
def test_bad_feeds_are_named(given: dict[str, Any], names: list[str]) -> None:
    run = plain_run(recurrent_model("LSTM", False, True, 1))
    options = {name: given[name] for name in ("dtype", "wrt") if name in given}
    with pytest.raises(ro.FeedError) as caught:
        run.plan({name: value for name, value in given.items() if name not in options}, **options)
    assert all(name in str(caught.value) for name in names), caught.value


def test_sizes_that_do_not_fit_are_type_errors() -> None:
    with pytest.raises(ro.TypeRuleError):
        plain_run(recurrent_model("LSTM", False, False, 1)).plan(x=(T, N, D + 1))


# -- what it says ------------------------------------------------------------------------------------------------------


def test_loops_products_and_what_is_kept_of_an_lstm() -> None:
    said = sections(plain_run(recurrent_model("LSTM", False, False, 1), tile=8).plan(x=(T, N, D)))
    assert list(said) == ["", "recurrence 's/hidden_t_all', forward", "recurrence 's/hidden_t_all', backward"]
    head, forward, backward = said.values()
    assert f"x float32[{T}, {N}, {D}]" in head
    assert "gradients of: x, s/initial_hidden_state" in head
    assert "around recurrences, in the interpreter, backward: nothing" in head
    for passed, order in ((forward, "first to the last"), (backward, "last to the first")):
        assert f"{T} steps (T) from the {order}, {N} rows (N)" in passed
        assert f"1 thread, tiles of 8 steps, {8 * N} rows of products" in passed
        assert "rows are independent" in passed
    kept = "state s/hidden_t_prev, state s/cell_t_prev, sigmoid_0, sigmoid_1, tanh_0, sigmoid_2"
    assert f"kept of each step: {kept}" in forward
    assert "computed again: tanh_1, transpose_1, transpose_0" in backward
    assert "split_0, split_1, split_2, split_3 of " in forward
    assert readable(8 * N * 4 * H * 4) in forward, "the gates of a tile"
    assert f"gradient of input_t {readable(T * N * D * 4)}" in backward


def test_products_of_a_tile_come_before_the_loop_and_weight_gradients_behind_it() -> None:
    said = sections(plain_run(recurrent_model("LSTM", False, False, 1)).plan(x=(T, N, D)))
    _, forward, backward = said.values()
    at_once, loop = "all steps of a tile at once: ", "loop over steps: "
    assert re.search(f"{at_once}\\S+ = input_t @ s/i2h_w.*{loop}\\S+ \\+= s/hidden_t_prev @ s/gates_t_w", forward)
    assert re.search(f"{loop}for each row .* elementwise ops in . loop nest.*{at_once}", backward)
    flops = re.findall(r"([\d.]+) GFLOP", forward)
    assert [float(count) for count in flops] == [pytest.approx(2e-9 * T * N * D * 4 * H, rel=0.01)] * 2
    assert len(re.findall("GFLOP", backward)) == 4
    assert "summed over steps and rows by products of whole tiles: " in backward
    assert "summed over steps row by row, rows at the end: " in backward


def test_recompute_lengths_and_dtype() -> None:
    feeds = {"x": (T, N, D), "lengths": (N,)}
    planned = plain_run(recurrent_model("LSTM", True, True, 1)).plan(feeds, dtype="float64")
    head, forward, backward = sections(planned).values()
    assert "floats are float64" in head
    assert "kept of each step: state s/hidden_t_prev, state s/cell_t_prev 100 steps" in forward
    assert "mat_mul_0" in backward[: backward.index("steps (T)")], "products are computed again"
    assert "rows end by 'seq_lengths'" in forward


def test_what_is_the_same_at_every_step_and_where_the_batch_axis_is() -> None:
    _, forward, _ = sections(plain_run(NETS["window"](), around="none").plan(feeds_of(NETS["window"]()))).values()
    assert "once, before the first step: Tanh -> changed(w)" in forward
    assert "batch axis: 1 of seen; 0 of all others" in forward


def test_rows_that_are_one_say_why() -> None:
    said = sections(plain_run(NETS["mixed rows"](), around="rows").plan(feeds_of(NETS["mixed rows"]())))
    forward, backward = (text for title, text in said.items() if title.startswith("recurrence"))
    assert "rows are not shared out: a sum over rows is used in its step" in forward
    assert "for all rows at once" in forward
    assert "rows are not shared out: " in backward
    assert "Add" in next(text for title, text in said.items() if title.startswith("fused ops"))


def test_a_pass_without_gradients() -> None:
    planned = plain_run(recurrent_model("GRU", False, False, 1)).plan(x=(T, N, D), backward=False)
    said = sections(planned)
    assert list(said) == ["", "recurrence 's/hidden_t_all', forward"]
    assert "gradients" not in said[""]
    assert "kept of each step" not in said["recurrence 's/hidden_t_all', forward"]
    assert "backward" not in str(planned.memory())


def test_what_is_not_compiled_says_why() -> None:
    said = sections(plain_run(recurrent_model("LSTM", False, False, 1)).plan(x=(0, N, D)))
    assert "not compiled: RecurrentNetwork -> s/hidden_t_all" in said[""]
    assert "no steps" in said[""]
    assert "runs in the interpreter, step by step" in said["recurrence 's/hidden_t_all', forward"]


def test_the_reference_device_says_that_it_interprets() -> None:
    planned = ro.compile(recurrent_model("LSTM", False, False, 1), device="reference").plan(x=(T, N, D))
    said = sections(planned)
    assert "on device 'reference'" in said[""]
    assert "everything runs in the interpreter" in said[""]
    assert "kept of each step: state s/hidden_t_prev" in said["recurrence 's/hidden_t_all', forward"]
    assert planned.source == ""
    assert "Not counted: what the interpreter needs" in str(planned.memory())


def test_a_net_without_recurrences() -> None:
    planned = plain_run(product_net(), around="none").plan(x=(3, 2), w=(2, 4))
    assert "in the interpreter, forward: MatMul -> mat_mul_0, Tanh -> tanh_0" in planned.describe()
    assert planned.source == ""
    forward = planned.memory().forward
    assert [(row.what, row.kind, row.nbytes) for row in forward.rows if row.kind == "kept"] == [("tanh_0", "kept", 48)]


# -- source ------------------------------------------------------------------------------------------------------------


def test_source_is_the_text_of_the_modules_that_run() -> None:
    run = plain_run(recurrent_model("LSTM", False, False, 1))
    planned = run.plan(x=(T, N, D))
    kernels = list(planned.plan.compiled.kernels)
    texts = [kernel.compiled.text.shown() for kernel in kernels]
    titles = [f"# recurrence 's/hidden_t_all', {name}" for name in ("forward", "backward")]
    assert planned.source == "\n\n".join(f"{title}\n{text}" for title, text in zip(titles, texts, strict=True))
    compile(planned.source, "source", "exec")
    other = run.plan(x=(2 * T, N + 1, D)).source
    assert other == planned.source, "steps and rows are arguments"


def test_bytes_are_readable() -> None:
    sizes = {0: "0 B", 1023: "1023 B", 1024: "1 KiB", 1536: "1.5 KiB", 13238272: "12.62 MiB", 2**31: "2 GiB"}
    assert {size: readable(size) for size in sizes} == sizes
