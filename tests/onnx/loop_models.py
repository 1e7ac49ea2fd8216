"""Models of one Loop in many forms, as exporters write them."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx.parser
from onnx import ModelProto, helper, numpy_helper
from scan_models import run_node

Array = np.ndarray[Any, Any]

SIZES = {"T": 4, "N": 3, "B": 6}
MOST = 1000  # trips
X, H, ROW = "float[T, N, 2] x", "float[N, 2] h", "float[N, 2]"
T = "zero = Constant <value_int = 0> () sizes = Shape (x) trips = Gather (sizes, zero)"
YES = "go = Constant <value = bool {1}> ()"
BODY = "int64 i, bool c"
STEP = f"step ({BODY}, {ROW} a) => (bool d, {ROW} b, {ROW} out)"
CELL = "d = Identity (c) p = Add (a, xt) b = Tanh (p) out = Mul (b, a)"
ROWS = f"({X}, {H}) => ({ROW} last, float[T, N, 2] all)"


def rows(read: str, around: str = "", cell: str = CELL) -> str:
    """A Loop over rows that reads steps of x."""
    return f"{ROWS} {{ {T} {YES} {around} last, all = Loop (trips, go, h) <body = {STEP} {{ {read} {cell} }}> }}"


COUNTED = f"""({X}, {H}) => ({ROW} last, float[T, N, 2] all, int32 k, float[2, 2] w2) {{ {T}
    big = Constant <value_int = 9223372036854775807> () t0 = Constant <value = int32 {{0}}> ()
    trips32 = Cast <to = 6> (trips) f0 = Constant <value_float = 0.0> () ftrips = Cast <to = 1> (trips32)
    go = Less (f0, ftrips) w = Constant <value = float[2, 2] {{0.5, -0.2, 0.3, 0.1}}> ()
    last, k, w2, limit, all = Loop (big, go, h, t0, w, trips32) <body = s ({BODY}, {ROW} a, int32 t, float[2, 2] u,
        int32 n) => (bool d, {ROW} b, int32 t2, float[2, 2] u, int32 n, {ROW} out) {{
            one = Constant <value = int32 {{1}}> () t2 = Add (t, one) xt = Gather <axis = 0> (x, t)
            p = MatMul (a, u) q = Add (p, xt) b = Tanh (q) out = Identity (b)
            ft = Cast <to = 1> (t2) fn = Cast <to = 1> (n) d = Less (ft, fn) }}> }}"""
TEXTS = {
    "by the trip": rows("xt = Gather (x, i)"),
    "backwards": rows(
        "t1 = Sub (trips, one) j = Sub (t1, i) xt = Gather (x, j)", "one = Constant <value_int = 1> ()"
    ),
    "from the end": rows("m = Constant <value_int = -1> () j = Sub (m, i) xt = Gather (x, j)"),
    "an axis kept": rows(
        "j = Unsqueeze (i, zeros) one = Constant <value_ints = [1]> () k = Add (j, one) "
        "xs = Slice (x, j, k, zeros, one) xt = Squeeze (xs, zeros)",
        "zeros = Constant <value_ints = [0]> ()",
    ),
    "as an array of one": rows("j = Unsqueeze (i, zeros) xs = Gather (x, j) xt = Squeeze (xs, zeros)",
                               "zeros = Constant <value_ints = [0]> ()"),
    "with an offset": f"""({X}, {H}) => ({ROW} last) {{ {T} {YES} one = Constant <value_int = 1> ()
        less = Sub (trips, one) last = Loop (less, go, h) <body = s ({BODY}, {ROW} a) => (bool c, {ROW} b)
            {{ k = Add (i, one) xt = Gather (x, k) x0 = Gather (x, i) p = Sub (a, x0) q = Mul (p, xt) b = Sin
            (q) }}> }}""",
    "another axis": f"""(float[N, T, 2] x, {H}) => ({ROW} last) {{ one = Constant <value_int = 1> () sizes = Shape (x)
        trips = Gather (sizes, one) {YES} last = Loop (trips, go, h) <body = s ({BODY}, {ROW} a) => (bool c, {ROW} b)
            {{ xt = Gather <axis = 1> (x, i) p = Mul (a, xt) b = Tanh (p) }}> }}""",
    "counters and values that stay": COUNTED,
    "no trip count": COUNTED.replace("Loop (big,", "Loop (,"),
    "not of rows": f"""({X}, float[2] h) => (float[2] last, float[T] all) {{ {T} {YES}
        last, all = Loop (trips, go, h) <body = s ({BODY}, float[2] a) => (bool c, float[2] b, float out)
            {{ xt = Gather (x, i) m = ReduceMean <axes = [0], keepdims = 0> (xt) p = Add (a, m) b = Tanh (p)
               out = ReduceMax <keepdims = 0> (p) }}> }}""",
    "open sizes that are not rows": f"""({X}, float[2, N, 2] h, float s) => (float[2, N, 2] last, float t) {{ {T} {YES}
        last, t = Loop (trips, go, h, s) <body = s ({BODY}, float[2, N, 2] a, float e) => (bool c, float[2, N,
        2] b, float f)
            {{ xt = Gather (x, i) p = Add (a, xt) q = Mul (p, e) b = Tanh (q) f = ReduceMean <keepdims = 0> (b)
            }}> }}""",
    "the trip as a number": rows("f = Cast <to = 1> (i) two = Constant <value_float = 0.25> () g = Mul (f, two) "
                                 "xi = Gather (x, i) xt = Mul (xi, g)"),
    "an unknown place": f"""({X}, {H}, int64 k) => ({ROW} last) {{ {T} {YES}
        last = Loop (trips, go, h) <body = s ({BODY}, {ROW} a) => (bool c, {ROW} b)
            {{ xt = Gather (x, k) p = Add (a, xt) b = Tanh (p) }}> }}""",
    "every other trip": f"""({X}, {H}) => ({ROW} last) {{ {T} {YES} two = Constant <value_int = 2> ()
        last = Loop (trips, go, h) <body = s ({BODY}, {ROW} a) => (bool c, {ROW} b)
            {{ xt = Gather (x, i) k = Mod (i, two) odd = Cast <to = 9> (k)
               b = If (odd) <then_branch = t () => ({ROW} r) {{ r = Add (a, xt) }},
                             else_branch = e () => ({ROW} r) {{ r = Mul (a, xt) }}> }}> }}""",
    "in an If": f"""({X}, {H}, bool flag) => ({ROW} last) {{ {T} {YES}
        last = If (flag) <then_branch = t () => ({ROW} r) {{
            r = Loop (trips, go, h) <body = s ({BODY}, {ROW} a) => (bool c, {ROW} b)
                {{ xt = Gather (x, i) p = Add (a, xt) b = Tanh (p) }}> }},
            else_branch = e () => ({ROW} r) {{ r = Sin (h) }}> }}""",
    "in a Loop": f"""({X}, {H}) => ({ROW} last) {{ {T} {YES} three = Constant <value_int = 3> ()
        last = Loop (three, go, h) <body = s ({BODY}, {ROW} a) => (bool c, {ROW} b)
            {{ b = Loop (trips, go, a) <body = s2 (int64 j, bool c2, {ROW} a2) => (bool c2, {ROW} b2)
                {{ xt = Gather (x, j) p = Add (a2, xt) b2 = Tanh (p) }}> }}> }}""",
    "no trips": f"""({X}, {H}) => ({ROW} last, float[M, N, 2] all) {{ {YES} trips = Constant <value_int = 0> ()
        last, all = Loop (trips, go, h) <body = {STEP} {{ d = Identity (c) b = Tanh (a) out = Sin (a) }}> }}""",
    "counting only": f"""({X}) => (float[T] all) {{ {T} {YES}
        all = Loop (trips, go) <body = s ({BODY}) => (bool c, float out) {{ f = Cast <to = 1> (i) out = Sin (f)
        }}> }}""",
    "results handed through": f"""({X}, {H}) => ({ROW} last, {ROW} same, float[T, N, 2] all, int64[T] ks) {{ {T} {YES}
        last, same, all, ks = Loop (trips, go, h, h) <body = s ({BODY}, {ROW} a, {ROW} e)
            => (bool c, {ROW} b, {ROW} e, {ROW} e, int64 i) {{ xt = Gather (x, i) p = Add (a, xt) b = Mul (p,
            e) }}> }}""",
    "after the end": f"""({X}, {H}) => ({ROW} last, int64 k) {{ {T} {YES} one = Constant <value_int = 1> ()
        last, k = Loop (, go, h, one) <body = s ({BODY}, {ROW} a, int64 t) => (bool d, {ROW} b, int64 u)
            {{ two = Constant <value_int = 2> () u = Add (t, two) d = LessOrEqual (t, trips) b = Tanh (a) }}> }}""",
    "counting down": f"""({X}, {H}) => ({ROW} last, int64 k) {{ {T} one = Constant <value_int = 1> ()
        m = Sub (trips, one) go = GreaterOrEqual (m, zero)
        last, k = Loop (, go, h, m) <body = s ({BODY}, {ROW} a, int64 t) => (bool d, {ROW} b, int64 u)
            {{ u = Sub (t, one) d = GreaterOrEqual (u, zero) xt = Gather (x, t) p = Add (a, xt) b = Tanh (p) }}> }}""",
    "stacked": f"""({X}, {H}) => (float[N, T, 2] all, float[T, N, 2] more, int64 n) {{ {T} {YES} s0 = SequenceEmpty ()
        last, s1 = Loop (trips, go, h, s0) <body = s ({BODY}, {ROW} a, seq(float[N, 2]) q) => (bool c, {ROW} b,
            seq(float[N, 2]) r) {{ xt = Gather (x, i) p = Add (a, xt) b = Tanh (p) r = SequenceInsert (q, b) }}>
        all = ConcatFromSequence <axis = 1, new_axis = 1> (s1) n = SequenceLength (s1)
        more = ConcatFromSequence <axis = 0, new_axis = 1> (s1) }}""",
    "joined": f"""({X}, {H}) => (float[N, K] all, {ROW} third) {{ {T} {YES} s0 = SequenceConstruct (h) two =
        Constant <value_int = 2> ()
        last, s1 = Loop (trips, go, h, s0) <body = s ({BODY}, {ROW} a, seq(float[N, 2]) q) => (bool c, {ROW} b,
            seq(float[N, 2]) r) {{ xt = Gather (x, i) p = Add (a, xt) b = Tanh (p) r = SequenceInsert (q, b) }}>
        all = ConcatFromSequence <axis = -1> (s1) third = SequenceAt (s1, two) }}""",
    "steps of a sequence": f"""({X}, {H}) => ({ROW} last) {{ {YES} steps = SplitToSequence <axis = 0, keepdims = 0> (x)
        trips = SequenceLength (steps) last = Loop (trips, go, h) <body = s ({BODY}, {ROW} a) => (bool c, {ROW} b)
            {{ xt = SequenceAt (steps, i) p = Add (a, xt) b = Tanh (p) }}> }}""",
}  # fmt: skip


def loop_model(text: str) -> ModelProto:
    """The model of a text."""
    return onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> g {text}')


def loop_feeds(model: ModelProto, **sizes: int) -> dict[str, Array]:
    """Random inputs of a model."""
    random, feeds, known = np.random.default_rng(3), {}, {**SIZES, **sizes}
    for value in model.graph.input:
        kind = value.type.tensor_type
        shape = [known.get(dim.dim_param, dim.dim_value) for dim in kind.shape.dim]
        if kind.elem_type == onnx.TensorProto.FLOAT:
            feeds[value.name] = random.uniform(-1, 1, shape).astype("float32")
        else:  # of places one stands twice
            numbers = np.arange(np.prod(shape))[::-1] // 2 if shape else np.ones(())
            feeds[value.name] = numbers.reshape(shape).astype(onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type))
    return feeds


def evaluate(model: ModelProto, feeds: dict[str, Array]) -> dict[str, Array]:
    """Outputs of a model: a Loop as a plain loop over its body, other nodes in `onnx.reference`."""
    values: dict[str, Any] = {"": None, **feeds}
    return dict(zip([v.name for v in model.graph.output], run_graph(model.graph, values), strict=True))


def run_graph(graph: Any, values: dict[str, Any]) -> list[Any]:
    """The results of a graph; values that its nodes make are added to those that are there."""
    values.update({tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer})
    for node in graph.node:
        values.update(zip(node.output, run_any(node, values), strict=False))
    return [values[value.name] for value in graph.output]


def run_any(node: Any, values: dict[str, Any]) -> list[Any]:
    """The results of a node."""
    given = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    inputs = [values[name] for name in node.input]
    if node.op_type == "Loop":
        return run_loop(given["body"], values, *inputs)
    if node.op_type == "If":
        return run_graph(given["then_branch" if inputs[0] else "else_branch"], dict(values))
    if node.op_type in LISTS:
        return [LISTS[node.op_type](given, *inputs)]
    if node.op_type == "Identity":
        return inputs
    return run_node(node, {name: np.asarray(values[name]) for name in node.input})


def run_loop(body: Any, values: dict[str, Any], trips: Any, go: Any, *carried: Any) -> list[Any]:
    """What a Loop gives."""
    steps: list[list[Any]] = [[] for _ in body.output[len(carried) + 1 :]]
    state, number, go = list(carried), 0, go is None or bool(go)
    while go and (trips is None or number < trips):
        names = [value.name for value in body.input]
        local = {**values, **dict(zip(names, [np.int64(number), np.bool_(go), *state], strict=True))}
        go, *results = run_graph(body, local)
        go, number = bool(go), number + 1
        if number > MOST:
            raise ValueError("a Loop that does not end soon")
        state = results[: len(state)]
        for collected, result in zip(steps, results[len(state) :], strict=True):
            collected.append(result)
    return [*state, *(np.stack(collected) if collected else np.zeros((0, 3, 2), "float32") for collected in steps)]


def joined(given: dict[str, Any], parts: list[Any]) -> Array:
    join = np.stack if given.get("new_axis") else np.concatenate
    return np.asarray(join(parts, axis=given["axis"]))


def inserted(given: dict[str, Any], parts: list[Any], x: Array, place: Any = None) -> list[Any]:
    """SequenceInsert."""
    at = len(parts) if place is None else int(place)
    return [*parts[:at], x, *parts[at:]]


def pieces(given: dict[str, Any], x: Array, sizes: Any = None) -> list[Array]:
    """SplitToSequence."""
    axis, count = given.get("axis", 0), x.shape[given.get("axis", 0)]
    sizes = 1 if sizes is None else sizes.tolist()
    ends = np.cumsum(sizes)[:-1] if isinstance(sizes, list) else range(sizes, count, sizes)
    found = np.split(x, ends, axis)
    return [part.squeeze(axis) for part in found] if not given.get("keepdims", 1) else found


LISTS = {
    "ConcatFromSequence": joined,
    "SequenceAt": lambda given, parts, place: parts[int(place)],
    "SequenceConstruct": lambda given, *parts: list(parts),
    "SequenceEmpty": lambda given: [],
    "SequenceErase": lambda given, parts, place=-1: [part for i, part in enumerate(parts) if i != place % len(parts)],
    "SequenceInsert": inserted,
    "SequenceLength": lambda given, parts: np.int64(len(parts)),
    "SplitToSequence": pieces,
}  # fmt: skip
