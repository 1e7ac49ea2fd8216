"""Loops that write in carried arrays, as `torch.while_loop`, TorchScript and hand-written files do."""

from __future__ import annotations

from loop_models import BODY, ROW, YES, H, T, X

AROUND = """one = Constant <value_int = 1> () zeros = Constant <value_ints = [0]> ()
    ones = Constant <value_ints = [1]> () column = Constant <value_ints = [-1, 1]> ()
    flat = Constant <value_ints = [-1]> () none = Constant <value_float = 0.0> ()"""
CELL = "xt = Gather (x, i) p = Add (a, xt) b = Tanh (p)"
AT_TRIP = "j = Reshape (i, column) lead = Unsqueeze (b, zeros) v = ScatterND (u, j, lead)"
ZEROS = "o = Expand (none, sizes)"
STEPS = "float[T, N, 2]"


def written(write: str, cell: str = CELL, buffer: str = ZEROS, kind: str = STEPS, inputs: str = f"{X}, {H}") -> str:
    """A Loop over the steps of x that carries rows a and an array u."""
    return f"""({inputs}) => ({ROW} last, {kind} all) {{ {T} {YES} {AROUND} {buffer}
        last, all = Loop (trips, go, h, o) <body = s ({BODY}, {ROW} a, {kind} u) => (bool d, {ROW} b, {kind} v) {{
            d = Identity (c) {cell} {write} }}> }}"""


def counted(number: str, place: str, read: str) -> str:
    """The same, with a counter that decides how long it goes on: `while k < T`."""
    return f"""({X}, {H}) => ({ROW} last, {STEPS} all, int64 n) {{ {T} {AROUND} {ZEROS} {number}
        go1 = Less (k0, trips) go = Squeeze (go1)
        n1, last, all = Loop (, go, k0, h, o) <body = s ({BODY}, int64 k, {ROW} a, {STEPS} u) =>
            (bool d, int64 k2, {ROW} b, {STEPS} v) {{ {read} p = Add (a, xt) b = Tanh (p)
            {place} k2 = Add (k, one) d1 = Less (k2, trips) d = Squeeze (d1) }}> n = Squeeze (n1) }}"""


ELEMENTS = "lead = Unsqueeze (b, zeros) s = Shape (lead) j = Expand (i, s) v = ScatterElements <axis = 0> (u, j, lead)"
NEXT = "k = Add (i, one) j = Reshape (k, column) lead = Unsqueeze (b, zeros) v = ScatterND (u, j, lead)"
LONGER = "more = Add (sizes, first) o0 = Expand (none, more) h1 = Unsqueeze (h, zeros) o = ScatterND (o0, corner, h1)"
FIRST = "first = Constant <value_ints = [1, 0, 0]> () corner = Constant <value = int64[1, 1] {0}> ()"
BACK = "last0 = Sub (trips, one)"
AT_ID = "id = Gather (ids, i) j = Reshape (id, column) lead = Unsqueeze (b, zeros)"
FORMS = {
    "slices": written(AT_TRIP),
    "slices at a list of one": written("j = Reshape (i, flat) v = ScatterND (u, j, b)"),
    "elements": written(ELEMENTS),
    "elements of one axis": written(
        "j = Reshape (i, flat) m = ReduceMean <keepdims = 0> (b) m1 = Reshape (m, flat) v = ScatterElements (u, j, m1)",
        buffer="s0 = Shape <end = 1> (x) o = Expand (none, s0)",
        kind="float[T]",
    ),
    "while k < T": counted(
        "k0 = Constant <value_int = 0> ()",
        "w = Reshape (k, flat) j = Gather (w, zero) lead = Unsqueeze (b, zeros) s = Shape (lead) "
        "g = Expand (j, s) v = ScatterElements <axis = 0> (u, g, lead)",
        "xt = Gather (x, k)",
    ),
    "while k < T, k in an array of one": counted(
        "k0 = Constant <value_ints = [0]> ()", "v = ScatterND (u, k, b)", "xs = Gather (x, k) xt = Squeeze (xs, zeros)"
    ).replace("int64 k", "int64[1] k"),
    "while k < T from 1": counted(
        "k0 = Constant <value_int = 1> ()", "j = Reshape (k, flat) v = ScatterND (u, j, b)", "xt = Gather (x, k)"
    ),
    "while k < the size of the new array": counted(
        "k0 = Constant <value_int = 0> ()", AT_TRIP.replace("(i,", "(k,"), "xt = Gather (x, k)"
    ).replace("d1 = Less (k2, trips)", "s1 = Shape <end = 1> (v) n1 = Squeeze (s1) d1 = Less (k2, n1)"),
    "with an offset": written(NEXT, buffer=f"{FIRST} {LONGER}", kind="float[K, N, 2]"),
    "backwards": written(
        "k = Sub (last0, i) j = Reshape (k, column) lead = Unsqueeze (b, zeros) v = ScatterND (u, j, lead)",
        buffer=f"{BACK} {ZEROS}",
    ),
    "from the end": written(
        "m = Neg (one) k = Sub (m, i) j = Reshape (k, flat) v = ScatterND (u, j, b)",
        cell="m1 = Neg (one) k1 = Sub (m1, i) xt = Gather (x, k1) p = Add (a, xt) b = Tanh (p)",
        buffer="o = Identity (o0)",
        kind="float[9, N, 2]",
        inputs=f"{X}, {H}, float[9, N, 2] o0",
    ),
    "the place before, at first the last one": written(
        "j = Reshape (k, flat) v = ScatterND (u, j, b)",
        cell="k = Sub (i, one) xt = Gather (x, k) p = Add (a, xt) b = Tanh (p)",
    ),
    "from the middle to the end": written(
        "m = Constant <value_int = -7> () k = Add (m, i) j = Reshape (k, flat) v = ScatterND (u, j, b)",
        buffer="o = Identity (o0)",
        kind="float[9, N, 2]",
        inputs=f"{X}, {H}, float[9, N, 2] o0",
    ),
    "a longer array": written(
        AT_TRIP, buffer="o = Identity (o0)", kind="float[B, N, 2]", inputs=f"{X}, {H}, float[B, N, 2] o0"
    ),
    "another axis": written(
        "lead = Unsqueeze (b, ones) s = Shape (lead) j = Expand (i, s) v = ScatterElements <axis = -2> (u, j, lead)",
        buffer="turned = Transpose <perm = [1, 0, 2]> (x) o = Sin (turned)",
        kind="float[N, T, 2]",
    ),
    "another axis of a longer array": written(
        "lead = Unsqueeze (b, ones) s = Shape (lead) j = Expand (i, s) v = ScatterElements <axis = 1> (u, j, lead)",
        buffer="o = Identity (o0)",
        kind="float[N, B, 2]",
        inputs=f"{X}, {H}, float[N, B, 2] o0",
    ),
    "two arrays": f"""({X}, {H}) => ({STEPS} all, {STEPS} back) {{ {T} {YES} {AROUND} {ZEROS} {BACK} o1 = Sin (x)
        last, all, back = Loop (trips, go, h, o, o1) <body = s ({BODY}, {ROW} a, {STEPS} u, {STEPS} e) =>
            (bool c, {ROW} b, {STEPS} v, {STEPS} f) {{ {CELL} {AT_TRIP} k = Sub (last0, i) l = Reshape (k, column)
            y = Mul (lead, lead) f0 = ScatterND (e, l, y) f = Identity (f0) }}> }}""",
    "sizes of the array": written(
        "step = Gather (u, i) s = Shape (step) r = Expand (b, s) l = Reshape (i, flat) n = Shape (l) "
        "us = Shape (u) far = Constant <value_ints = [9999]> () rest = Slice (us, ones, far) "
        "j = Unsqueeze (l, ones) rs = Concat <axis = 0> (n, rest) lead = Reshape (r, rs) v = ScatterND (u, j, lead)"
    ),
    "sizes of the new array": written(
        f"{AT_TRIP} s = Shape (v) n = Gather (s, one) f = Cast <to = 1> (n) b = Div (b0, f)",
        cell="xt = Gather (x, i) p = Add (a, xt) b0 = Tanh (p)",
    ).replace("Unsqueeze (b, zeros)", "Unsqueeze (b0, zeros)"),
    "no state": f"""({X}) => ({STEPS} all) {{ {T} {YES} {AROUND} {ZEROS} all = Loop (trips, go, o) <body = s
        ({BODY}, {STEPS} u) => (bool c, {STEPS} v) {{ xt = Gather (x, i) b = Sin (xt) {AT_TRIP} }}> }}""",
    "numbers of trips": f"""({X}) => (int64[T] all) {{ {T} {YES} {AROUND} s0 = Shape <end = 1> (x) o = Expand (zero, s0)
        all = Loop (trips, go, o) <body = s ({BODY}, int64[T] u) => (bool c, int64[T] v) {{ j = Reshape (i, column)
            k = Reshape (i, flat) v = ScatterND (u, j, k) }}> }}""",
    "the same at each trip": f"""({X}, {H}) => ({STEPS} all) {{ {T} {YES} {AROUND} {ZEROS} all = Loop (trips, go, o)
        <body = s ({BODY}, {STEPS} u) => (bool c, {STEPS} v) {{ j = Reshape (i, flat) v = ScatterND (u, j, h) }}> }}""",
    "parts of steps": written(
        "lead = Unsqueeze (b, zeros) part = Slice (lead, zeros, ones, flat) s = Shape (part) j = Expand (i, s) "
        "v = ScatterElements <axis = 0> (u, j, part)"
    ),
    "in a Loop": f"""({X}, {H}) => ({ROW} last, {STEPS} all) {{ {T} {YES} {AROUND} {ZEROS}
        two = Constant <value_int = 2> () last, all = Loop (two, go, h, o) <body = t (int64 n, bool c0, {ROW} a0,
        {STEPS} u0) => (bool c0, {ROW} b0, {STEPS} v0) {{ b0, v0 = Loop (trips, go, a0, u0) <body = s
            ({BODY}, {ROW} a, {STEPS} u) => (bool c, {ROW} b, {STEPS} v) {{ {CELL} {AT_TRIP} }}> }}> }}""",
    "two places in a Loop": f"""({X}, {H}) => ({ROW} last, float[2, T, N, 2] all) {{ {T} {YES} {AROUND}
        two = Constant <value_int = 2> () twos = Constant <value_ints = [2]> () s0 = Concat <axis = 0> (twos, sizes)
        o = Expand (none, s0) last, all = Loop (two, go, h, o) <body = t (int64 n, bool c0, {ROW} a0,
        float[2, T, N, 2] u0) => (bool c0, {ROW} b0, float[2, T, N, 2] v0) {{
            b0, v0 = Loop (trips, go, a0, u0) <body = s ({BODY}, {ROW} a, float[2, T, N, 2] u) =>
                (bool c, {ROW} b, float[2, T, N, 2] v) {{ {CELL} n1 = Reshape (n, flat) i1 = Reshape (i, flat)
                j = Concat <axis = 0> (n1, i1) v = ScatterND (u, j, b) }}> }}> }}""",
    "places that data say": written(f"{AT_ID} v = ScatterND (u, j, lead)", inputs=f"{X}, {H}, int64[T] ids"),
    "sums": written(
        f'{AT_ID} v = ScatterND <reduction = "add"> (u, j, lead)',
        buffer="o = Sin (x)",
        inputs=f"{X}, {H}, int64[T] ids",
    ),
    "an offset that data say": written(
        "k = Add (i, e) j = Reshape (k, flat) v = ScatterND (u, j, b)",
        buffer="o = Identity (o0)",
        kind="float[9, N, 2]",
        inputs=f"{X}, {H}, float[9, N, 2] o0, int64 e",
    ),
}  # fmt: skip
STATES = {
    "the step before is read": written(
        f"{AT_TRIP} m = Sub (i, one) w = Gather (u, m) b = Add (b0, w)",
        cell="xt = Gather (x, i) p = Add (a, xt) b0 = Tanh (p)",
        buffer="o = Sin (x)",
    ),
    "the new array is read": written(
        f"{AT_TRIP} w = ReduceMean <axes = [0], keepdims = 0> (v) b = Sub (b0, w)",
        cell="xt = Gather (x, i) p = Add (a, xt) b0 = Tanh (p)",
    ).replace("Unsqueeze (b, zeros)", "Unsqueeze (b0, zeros)"),
    "the other array is read": f"""({X}, {H}) => ({STEPS} all, {STEPS} more) {{ {T} {YES} {AROUND} {ZEROS} o1 = Sin (x)
        last, all, more = Loop (trips, go, h, o, o1) <body = s ({BODY}, {ROW} a, {STEPS} u, {STEPS} e) =>
            (bool c, {ROW} b, {STEPS} v, {STEPS} f) {{ {CELL} {AT_TRIP} w = ReduceMax <axes = [0]> (u)
            f = ScatterND (e, j, w) }}> }}""",
    "elements at places that data say": written(
        "id = Gather (ids, i) lead = Unsqueeze (b, zeros) s = Shape (lead) j = Expand (id, s) "
        "v = ScatterElements (u, j, lead)",
        inputs=f"{X}, {H}, int64[T] ids",
    ),
}  # fmt: skip
STATES["the step before is read"] = STATES["the step before is read"].replace(
    AT_TRIP, AT_TRIP.replace("(b, z", "(b0, z")
)
