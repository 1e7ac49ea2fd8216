"""Typical mistakes: each of `examples/mistakes.py` has an error of ours; misspelt names are told what is near."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from each import check_each
from rejection import rejects

import rnnops as ro
from rnnops.errors import did_you_mean, named_arguments

FILE = Path(__file__).parent.parent / "examples" / "mistakes.py"


def mistakes() -> Any:
    spec = spec_from_file_location("mistakes", FILE)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


TOLD = {
    "a function that saves": "Did you mean model.Model.save",
    "a layer of PyTorch": "Did you mean model.Dense?",
    "a net without a name": "Net: missing a required argument: 'name'",
    "a shape in the place of a dtype": "net.input('sized', shape=(7, 2, 3))",
    "names in a list": "Names go one by one: net.inputs('x', 'h').",
    "blobs in a list": "It holds several: y=...[0].",
    "an axis left out": "Give axis=.",
    "a function of NumPy that ro has": "np.einsum has no op for blobs. Use ro.einsum.",
    "an elementwise function of NumPy without an op": "x != x is True where x is NaN.",
    "elements that are set": "ro.where(mask, value, x) and ro.concat(",
    "a complex number": "Complex numbers are pairs of reals",
    "complex numbers as a dtype": "Complex numbers are pairs of reals",
    "complex numbers": "Complex numbers are pairs of reals: feed array.real and array.imag",
    "the equation behind its operands": 'It comes first: ro.einsum("ni,ij->nj", x, w).',
    "a list of numbers as an operand": "np.array(values)",
    "a blob as a number": "A run gives numbers: ro.compile(net)(feeds).",
    "a blob as a bool": "ro.where",
    "a blob as a count": "A run gives numbers",
    "a blob in a formatted string": "A run gives numbers",
    "the number of a tensor": "ro.compile(net)(feeds)",
    "backward of a tensor": "run.vjp",
    "initial values of another shape": "wanted [3, 4]; got [4, 3]",
    "initial values with NaN": "1 NaN of 2 values, the first at [1]",
    "the last value of a state that the cell does not return": "A state is returned: dict(h=...).",
    "a parameter before the star": "A parameter stands after `*`.",
    "a cell that is compiled": "ro.scan(cell, xs, h=h0)",
    "a preset cell that is called": "cell.apply_over_sequence(net, x)",
    "no array": "Every input needs an array: zeros for a state",
    "rows of several lengths": "pad them, and give lengths=",
    "lengths of floats": "Convert it: lengths.astype('int32').",
    "options by position": "training=True, seed=0",
    "NaN in a feed": "blob 'h0': a feed is not finite, and reaches output 'y'; got NaN at [0, 0]",
    "NaN that an op makes": "op 'Log -> log_0', blob 'log_0': the first NaN is made here",
    "a number as the gradient of an array": "wanted float64[7, 2, 4]; got float. Make a loss of one number",
    "a gradient of another dtype": "Convert it: array.astype('float64').",
    "a budget that is too small": "memory_budget=0.364; got 10 bytes. Most of it: h_all/step_workspaces 448 B.",
    "links of a stream the wrong way round": "An output feeds an input: {'y': 'h0'}.",
    "an input of a stream that is called rows": "stream({'rows': array})",
    "an export that is unknown": "got 'elf'",
    "a parameter of no size": "blob 'w': not a shape; wanted integers of 0 or more; got (3, -1). No size can be left",
    "a net in the place of a cell": "Give cell in place of cell.net: ro.scan takes cells, ro.recurrent_net takes nets.",
    "initial values of a name that a layer has not": "blob 'weight': init= names no parameter of 'dense'",
    "initial values without a name": 'a dict of names, {"gates_t_w": array, "*_b": "zeros"}; got',
    "a gradient net of a run": "give Run.net.",
    "a gradient net by a blob": "got Blob. Inputs go by name: 'xs'.",
    "shapes of a gradient net in a dict": "got dict. Shapes are unpacked: **shapes.",
    "a gradient net without shapes": "Give it by name: xs= an array or its shape.",
    "an online step that mixes its states": "op 'MatMul -> mat_mul_1': this op mixes elements",
    "an online step with a misspelt state": "blob 'h0': the net has no such input",
    "an online step of a sequence": "wanted [7, 1, 4], as output 'h' has; got float[1, 4]. A step takes one time step",
    "an online step of a net": "Of a net, name them: online_net(net, ['w'], states=",
    "an online step with more rows": "wanted (1, 4); got (2, 4). The net fixes this shape. Make the net for other rows",
    "gradients that end after no step": "truncate= is not a number of steps; wanted an integer of 1 or more; got 0",
    "an inverse": "Did you mean solve, of the unit matrix for an inverse?",
    "a vector behind solve": "wanted [..., 3, k]; got [3]. Give a vector as ro.unsqueeze(b, [-1]).",
    "a matrix that is singular": "op 'Solve -> solve_0': a matrix is singular or not positive definite",
    "an initial state of an export without states": "States are named by states=, output -> input.",
    "an initial state of an export under its output": "That output feeds 'h0': name the input.",
    "shapes of an export in shapes=": "blob 'shapes'",
    "a layer behind one of several outputs": "blob 'dense': an input is not a blob",
    "the activation as a word": "Give ro.tanh.",
    "an optimizer that steps": "a SGD has no attribute 'step'",
    "a model with a method of PyTorch's": "Did you mean get_params?",
    "a model that is compiled without inputs": "missing a required argument: 'inputs'",
    "a model that is called with arrays before compile": "call model.compile([x, ...])",
}


def test_what_mistakes_are_told() -> None:
    module = mistakes()

    def check(case: tuple[str, str]) -> None:
        assert case[1] in module.message(module.MISTAKES[case[0]])

    check_each(TOLD.items(), check, lambda case: case[0])
    assert "Take the first, dense(y[0])." in module.message(module.MISTAKES["a layer behind one of several outputs"])


def test_a_hundred_mistakes() -> None:
    module = mistakes()
    assert len(module.MISTAKES) >= 100
    check_each(list(module.MISTAKES), lambda name: module.message(module.MISTAKES[name]))


def test_hints_name_what_there_is() -> None:
    net = mistakes().NET
    told = {name: str(rejects(ro.ModelError, lambda name=name: ro.model.Dense(4, name))) for name in ("ReLU", "tanhh")}
    assert told["ReLU"].endswith("Give ro.relu.")
    assert told["tanhh"].endswith("got 'tanhh'")
    for value, hint in ((ro.model.Dense(4), "model.compile([x])"), (ro.compile(net), "give Run.net"), (print, None)):
        message = str(rejects(ro.NetError, lambda value=value: ro.compile(value)))
        assert hint in message if hint else message.endswith("got builtin_function_or_method")


def test_a_property_of_a_layer_that_fails_says_why() -> None:
    class Halves(ro.model.Layer):
        @property
        def half(self) -> int:
            return self.size // 2

        def forward(self, x: ro.Blob) -> ro.Blob:
            return x

    rejects(ro.errors.UnknownNameError, lambda: Halves().half, "no attribute 'size'")


def test_states_that_a_cell_does_not_return() -> None:
    module = mistakes()
    told = [
        module.message(module.MISTAKES[f"a state {kind}that the cell does not return"]) for kind in ("", "of a blob ")
    ]
    assert "The cell does not return 'h', so it is a sequence. A state is returned: dict(h=...)." in told[0]
    assert "If 'h' is a state, the cell must return it, dict(h=...)" in told[1]
    assert "swapaxes" not in told[1]


def test_of_floats_of_two_dtypes_the_fewer_are_blamed() -> None:
    net = ro.Net("n")
    net.outputs(y=net.input("first/one") + net.input("m") + net.input("x"))
    run, wide, narrow = ro.compile(net, device="reference"), np.ones(2), np.ones(2, "float32")
    told = "blob 'x'", "wanted float32 as 'first/one' has; got float64", "x.astype('float32')"
    rejects(ro.FeedError, lambda: run({"first/one": narrow, "m": narrow, "x": wide}), *told)
    told = "blob 'first/one'", "wanted float32 as 'm' has; got float64", "array.astype('float32')"
    rejects(ro.FeedError, lambda: run({"first/one": wide, "m": narrow, "x": narrow}), *told)
    told = "blob 'm'", "wanted float32 or float64; got int64", "m.astype('float32')"
    rejects(ro.FeedError, lambda: run({"first/one": wide, "m": np.ones(2, int), "x": wide}), *told)


def test_plans_of_runs_without_parameters_say_bind() -> None:
    run = ro.compile(mistakes().NET)
    for plan in (run.plan, lambda **shapes: run.export_native("folder", **shapes)):
        told = "w_x, w_h", "as no shape is declared", "Bind what stays the same, as parameters do, first: run.bind("
        rejects(ro.FeedError, lambda plan=plan: plan(xs=(7, 2, 3), h0=(2, 4), lengths=(2,), ids=(2,)), *told)


def test_integers_for_an_input_of_a_cell_that_is_float() -> None:
    net = ro.Net("n")
    told = 'cell.input("x", "int32")', 'with ro.cell as dtypes={"x": "int32"}'
    rejects(ro.RecurrentError, lambda: ro.scan(mistakes().cell, net.input("ids", "int32"), h=net.input("h")), *told)


def test_attributes_that_belong_to_the_library() -> None:
    class Own(ro.model.Layer):
        def __init__(self, **given: Any) -> None:
            for name, value in given.items():
                setattr(self, name, value)

        def forward(self, x: Any) -> Any:
            return x

    told = "of Own belongs to the library", "another name than forward, is_training, named, parameter, scope."
    for name in ("scope", "named", "is_training"):
        rejects(ro.ModelError, lambda name=name: Own(**{name: 1}), f"self.{name} ", *told)
    rejects(ro.ModelError, lambda: setattr(Plain(), "arrays", {}), "self.arrays of Plain", "arrays, compile, eval")
    rejects(ro.ModelError, lambda: setattr(Plain(), "run", Own()), "self.run of Plain")
    own = Own(name="a", size=2, forward=abs)
    assert (own.name, own.size, own.forward(-1)) == ("a", 2, 1)  # type: ignore[attr-defined]


def test_dotted_names_of_parameters() -> None:
    net = ro.Net("n")
    net.outputs(y=net.input("x") + net.parameter("dense/b", (2,)))
    run, params = ro.compile(net, device="reference"), {"dense.b": np.ones(2)}
    for call in (lambda: run.bind(**params), lambda: run(params, x=np.ones(2))):
        rejects(ro.FeedError, call, "blob 'dense.b'", "In nets it is 'dense/b': model.arrays has such names")


def test_sizes_that_are_defaults_of_a_cell() -> None:
    @ro.cell
    def step(x: Any, h: Any, *, size: int = 4) -> dict[str, Any]:
        return {"h": ro.tanh(x + h * float(size))}

    told = "Its 'size' has a default", "make the cell in a function of it, def make(size): ... return ro.cell(step)."
    rejects(ro.RecurrentError, lambda: ro.scan(step, fresh_input(), h=np.ones(4), size=8), *told)


def test_a_file_of_another_model_has_a_short_error(tmp_path: Path) -> None:
    class Line(ro.model.Model):
        def __init__(self, layers: int) -> None:
            self.layers = [ro.model.Dense(3) for _ in range(layers)]

        def forward(self, x: Any) -> Any:
            for layer in self.layers:
                x = layer(x)
            return x

    few, many = (Line(layers) for layers in (1, 9))
    for model in (few, many):
        model.set_optimizer(ro.model.Adam(0.1))
        model.compile([np.ones((2, 3), "float32")], is_train=False)
    few.save(tmp_path / "few")
    error = rejects(
        ro.SaveError, lambda: many.load(tmp_path / "few"), "missing, float32[3]", "more\nset_optimizer(...)"
    )
    lines = str(error).splitlines()
    assert len(lines) == 1 + 12 + 1 + 1
    assert "  layers.8.b" not in lines[1]
    assert not any(line.startswith("  optimizer.") for line in lines[:13])


def test_lengths_of_another_number_of_rows() -> None:
    module = mistakes()
    told = "wanted int32[2]; got int32[3]. Each row needs one length."
    rejects(ro.TypeRuleError, lambda: module.RUN(module.fed(lengths=np.array([1, 2, 3]))), told)


def test_products_of_numpy_without_an_op() -> None:
    x = fresh_input()
    for product in (lambda: np.dot(x, x), lambda: np.inner(x, x), lambda: np.vdot(x, x)):
        rejects(ro.NetError, product, "has no op for blobs", "is x @ w.")
    for product in (lambda: np.einsum("tnd,de->tne", x, x), lambda: np.tensordot(x, x), lambda: np.outer(x, x)):
        rejects(ro.NetError, product, "has no op for blobs", "Use ro.einsum")


def test_functions_of_numpy_that_ro_has() -> None:
    x = fresh_input()
    for name, arguments in {"argmax": (), "tile": (2,), "pad": (2,), "cumprod": (), "einsum": ("tnd->tn",)}.items():
        given = (*arguments, x) if name == "einsum" else (x, *arguments)
        told = f"np.{name} has no op for blobs", f"Use ro.{name}."
        rejects(ro.NetError, lambda name=name, given=given: getattr(np, name)(*given), *told)


def test_what_a_misspelt_name_may_have_meant() -> None:
    known = ("w_x", "w_h", "lengths")
    assert did_you_mean("w_y", known) in ("Did you mean w_x?", "Did you mean w_h?")
    assert did_you_mean("Lengths", known) == "Did you mean lengths?"
    assert did_you_mean("dim", known, {"dim": "axis"}) == "Did you mean axis?"
    assert did_you_mean("something", known) is None


def test_a_type_error_from_within_stays_what_it_is() -> None:
    @named_arguments
    def adding(x: Any) -> Any:
        return x + "1"

    with pytest.raises(TypeError) as caught:
        adding(1)
    assert not isinstance(caught.value, ro.RnnopsError)
    rejects(ro.ArgumentError, lambda: adding(y=1), "'x'")


def test_attributes_that_are_not_there() -> None:
    x = ro.Net("n").input("x")
    assert not hasattr(x, "nothing")
    assert not hasattr(ro, "nothing")
    rejects(ro.UnknownNameError, lambda: x.premute, "a Blob has no attribute 'premute'")
    rejects(ro.UnknownNameError, lambda: x.nothing, "net 'n'", "blob 'x'")
    rejects(ro.UnknownNameError, lambda: ro.Net("n").paramter, "net 'n'", "parameter")
    with pytest.raises(AttributeError):
        object.__new__(ro.Blob).nothing  # noqa: B018 - before it has a net
    with pytest.raises(AttributeError):
        x.__nothing__  # noqa: B018


def test_arguments_of_runs() -> None:
    net = ro.Net("n")
    net.outputs(y=net.input("x") @ net.parameter("w", (2, 2)))
    start: Any = ro.init_params
    params = start(net, seed=0)
    runs: list[Any] = [ro.compile(net), ro.compile(net, device="reference"), ro.compile(net, check_numerics=True)]
    unpacked = "A dict is unpacked: bind(**params)."
    for run in runs:
        rejects(ro.ArgumentError, lambda run=run: run.bind(params), "bind: too many positional arguments", unpacked)
        rejects(ro.FeedError, lambda run=run: run.bind(params=params), "bind names no input", unpacked)
        rejects(ro.ArgumentError, lambda run=run: run.stream({"y": "x"}, row=2), "Did you mean rows?")
    rejects(ro.ArgumentError, lambda: start(net, 0, dtyp="float64"), "Did you mean dtype?")


class Plain(ro.model.Model):
    def forward(self, x: Any) -> Any:
        return x


def fresh_input() -> ro.Blob:
    return ro.Net("m", sizes_for="float32").input("xs", shape=(7, 2, 3))


def flags() -> dict[str, Callable[[Any], Any]]:
    """Public arguments that are on or off, each as a call with some value of it."""
    net, cell = ro.Net("n"), ro.cells.LSTMCell(3, 4, name="own")
    x = net.input("x", shape=(7, 2, 3))
    net.outputs(y=x)
    run, feeds = ro.compile(net), {"x": np.ones((7, 2, 3))}
    bound, model, xs = run.bind(), Plain(), fresh_input()
    open_net = xs.net
    weights = {"w_x": np.ones((3, 4)), "w_h": np.ones((4, 4)), "h": np.zeros(4)}

    @ro.cell
    def step(x: Any, h: Any, *, w_x: Any, w_h: Any) -> dict[str, Any]:
        return {"h": ro.tanh(x @ w_x + h @ w_h)}

    return {
        "recycle": lambda flag: ro.compile(net, recycle=flag),
        "check_numerics": lambda flag: ro.compile(net, check_numerics=flag),
        "training of a call": lambda flag: run(feeds, training=flag),
        "training of a bound call": lambda flag: bound(feeds, training=flag),
        "training of vjp": lambda flag: run.vjp(feeds, training=flag),
        "backward of plan": lambda flag: run.plan(backward=flag),
        "backward of a bound plan": lambda flag: bound.plan(backward=flag),
        "backward of profile": lambda flag: run.profile(feeds, backward=flag, rounds=1),
        "backward of warm_up": lambda flag: run.warm_up(backward=flag),
        "gradients": lambda flag: ro.testing.check_devices(net, feeds, ["reference"], gradients=flag),
        "training of check_devices": lambda flag: ro.testing.check_devices(net, feeds, ["reference"], training=flag),
        "opened": lambda flag: net.draw(opened=flag),
        "reverse": lambda flag: ro.scan(step, fresh_input(), reverse=flag, **weights),
        "forward_only of scan": lambda flag: ro.scan(step, fresh_input(), forward_only=flag, **weights),
        "forward_only": lambda flag: ro.cells.LSTMCell(3, 4, forward_only=flag),
        "memory_optimization": lambda flag: ro.cells.GRUCell(3, 4, memory_optimization=flag),
        "drop_states": lambda flag: ro.LSTM(open_net, xs, None, None, 3, 4, drop_states=flag),
        "return_params": lambda flag: ro.LSTM(open_net, xs, None, None, 3, 4, return_params=flag),
        "return_last_layer_only": lambda flag: ro.GRU(open_net, xs, None, None, 3, [4], return_last_layer_only=flag),
        "linear_before_reset": lambda flag: ro.cells.GRUCell(3, 4, linear_before_reset=flag),
        "positive": lambda flag: ro.cells.MinGRUCell(3, 4, positive=flag),
        "reverse of an unrolled cell": lambda flag: ro.cells.UnrolledCell(cell, 7).apply_over_sequence(
            open_net, xs, reverse=flag
        ),
        "attention_memory_optimization": lambda flag: ro.cells.AttentionCell(
            3, xs, None, cell, 4, "regular", attention_memory_optimization=flag
        ),
        "mode": model.train,
        "bias": lambda flag: ro.model.Dense(4, bias=flag),
        "bias of LayerNorm": lambda flag: ro.model.LayerNorm(bias=flag),
        "bidirectional": lambda flag: ro.model.RNN("lstm", 4, bidirectional=flag),
        "trainable_states": lambda flag: ro.model.Attention("lstm", 4, trainable_states=flag),
        "nesterov": lambda flag: ro.model.SGD(0.1, momentum=0.5, nesterov=flag),
    }


def test_flags_that_are_none() -> None:
    def check(case: tuple[str, Callable[[Any], Any]]) -> None:
        name, call = case
        for wrong in ("no", None, 0.5, [], 2):
            with pytest.raises(
                (ro.ArgumentError, ro.RecurrentError), match=f"{name.split()[0]}.* is neither on nor off"
            ):
                call(wrong)
        call(np.True_)
        call(0)

    check_each(flags().items(), check, lambda case: case[0])


def test_flags_of_models() -> None:
    model = Plain()
    for name in ("is_train", "use_graph", "sequential"):
        rejects(ro.ArgumentError, lambda name=name: model.compile([], **{name: "no"}), name, "neither on nor off")
    rejects(ro.ArgumentError, lambda: model.load("file", include_state="no"), "include_state")  # type: ignore[arg-type]


def test_indices_that_are_none() -> None:
    net = ro.Net("n")
    x, scores = net.input("x"), net.input("scores")
    for key in ([0.5], ["a"], np.zeros(0), scores):
        rejects(ro.NetError, lambda key=key: x[key], "blob 'x'", "indices are not integers")
    rejects(ro.NetError, lambda: x[[[1], [1, 2]]], "blob 'x'", "indices are not an array", "[[1], [1, 2]]")
    net.outputs(none=x[[]], columns=x[:, []], nested=x[[[]]])
    for device in ("reference", "cpu"):
        found = ro.compile(net, device)(x=np.ones((3, 2)), scores=np.ones(1))
        assert [found[name].shape for name in ("none", "columns", "nested")] == [(0, 2), (3, 0), (1, 0, 2)]


def test_constants_without_a_net() -> None:
    hint = "Ops take NumPy arrays and numbers directly, x @ A; else use ro.constant(x.net, A)."
    constant: Any = ro.constant
    rejects(ro.ArgumentError, lambda: constant(np.ones(2)), "'value'", hint)
    rejects(ro.NetError, lambda: constant(np.ones(2), "int32"), "this is not a net", hint)


def test_options_for_kernels_that_are_none() -> None:
    net = ro.Net("n")
    net.outputs(y=net.input("x"))
    wrong: list[Any] = [3, {"width": 128}, "fast"]
    for tuning in wrong:
        rejects(
            ro.DeviceError, lambda tuning=tuning: ro.compile(net, tuning=tuning), "tuning= is not an Options", "net 'n'"
        )


def test_pullbacks_are_not_copied() -> None:
    net = ro.Net("n")
    net.outputs(y=ro.exp(net.input("x")))
    out, pullback = ro.compile(net).vjp(x=np.ones(2))
    for copying in (pickle.dumps, copy.copy, copy.deepcopy):
        rejects(ro.GradientError, lambda copying=copying: copying(pullback), "net 'n'", "run.vjp(feeds)")
    assert pullback(out["y"])["x"].shape == (2,)


def test_streams_are_copied_and_not_pickled() -> None:
    net = ro.Net("n")
    net.outputs(h_next=net.input("x") + net.input("h", shape=(1, 2)))
    stream, x = ro.compile(net).stream({"h_next": "h"}), np.ones((1, 2), "float32")
    stream(x=x)
    rejects(ro.StreamError, lambda: pickle.dumps(stream), "net 'n'", "dict(stream.states)")
    for other in (copy.copy(stream), copy.deepcopy(stream)):
        other(x=x)
        np.testing.assert_array_equal(other.states["h"], 2 * x)
    np.testing.assert_array_equal(stream.states["h"], x)
    run, states = pickle.loads(pickle.dumps((stream.run, dict(stream.states))))
    again = run.stream({"h_next": "h"}, initial=states)
    again(x=x)
    np.testing.assert_array_equal(again.states["h"], 2 * x)


def test_errors_of_streams_say_what_the_stream_has() -> None:
    net = ro.Net("n")
    last, ys = ro.scan(mistakes().cell, net.input("x"), h=net.input("h"))
    net.outputs(y=ys["h"], last=last["h"])
    run = ro.compile(net, device="reference").bind(w_x=np.ones((3, 2), "float32"), w_h=np.eye(2, dtype="float32"))
    stream, x = run.stream({"last": "h"}, rows=4, shapes={"h": ("N", 2)}), np.ones((1, 4, 3), "float32")
    told = "blob 'h'", "This stream has 4 rows, so a sequence of one step is [1, 4, ...]; it was fed x float32"
    rejects(ro.RecurrentError, lambda: stream(x=x[:, 1:]), *told, "[1, 3, 3]")
    rejects(ro.RecurrentError, lambda: stream(x[0]), *told, "[4, 3]")
    told = "blob 'x'", "wanted float32; got float64", "x.astype('float32')", "dtype= of run.stream"
    rejects(ro.FeedError, lambda: stream(x=x.astype("float64")), *told)
    rejects(ro.FeedError, stream, "an input is not fed")
    rejects(
        ro.StreamError, lambda: stream.leave(9), "the stream has no such row; wanted a number from 0 to 3, or a mask"
    )
    stream.leave(1)
    assert repr(stream) == "<stream of net 'n': 3 of 4 rows; states h float32[4, 2]>"


def test_preset_cells_are_pickled_and_copied() -> None:
    lstm = ro.cells.LSTMCell(3, 4, forget_bias=1.0)
    for cell in (lstm, ro.cells.MultiRNNCell([lstm, ro.cells.GRUCell(4, 2)]), ro.cells.UnrolledCell(lstm, 7)):
        for again in (pickle.loads(pickle.dumps(cell)), copy.deepcopy(cell)):
            nets = []
            for one in (cell, again):
                y, _ = one.apply_over_sequence((x := fresh_input()).net, x)
                y.net.outputs(y=y)
                nets.append(str(y.net))
            assert nets[0] == nets[1]
