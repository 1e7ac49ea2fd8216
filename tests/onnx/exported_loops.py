"""Loops as jax2onnx and tf2onnx write them: places of steps that are compared, chosen and put together before a Slice.

Written down from what `jax.lax.fori_loop`, `.at[i].set`, `jax.lax.dynamic_slice`, `tf.while_loop` and Keras's
`TimeDistributed` become, with shorter names; what other exporters write is in `loop_models.py`.
"""

from __future__ import annotations

from loop_models import BODY, ROW, YES, H, T, X

INT32 = "Constant <value = int32 {{{0}}}> ()".format
FAR = "Constant <value = int32[1] {1000000000}> ()"

FORI_PLACE = "j = Cast <to = 6> (i)"
FORI_BACK = f"t = Cast <to = 6> (i) three = {INT32(3)} j = Sub (three, t)"
FIXED = "(float[4, 3, 2] x, float[3, 2] h)"
TAKEN = "four = Constant <value_int = 4> ()"
STATE = "d = Identity (c) p = Add (a, xt) b = Tanh (p)"


def jax_read(place: str) -> str:
    """x[j]: the size is added where j is below 0, and the starts along the other axes are put beside it."""
    return f"""{place} zero32 = {INT32(0)} size32 = {INT32(4)} below = Less (j, zero32) up = Add (j, size32)
        k32 = Where (below, up, j) k64 = Cast <to = 7> (k32) first = Constant <value_ints = [0]> ()
        k = Unsqueeze (k64, first) o64 = Cast <to = 7> (zero32) o = Unsqueeze (o64, first)
        starts = Concat <axis = 0> (k, o, o) lengths = Constant <value_ints = [1, 3, 2]> ()
        ends = Add (starts, lengths) axes = Constant <value_ints = [0, 1, 2]> ()
        xs = Slice (x, starts, ends, axes) xt = Squeeze (xs, first)"""


def jax_loop(place: str, inputs: str = FIXED) -> str:
    """`lax.fori_loop(0, 4, lambda i, h: tanh(h + x[i]), h)`."""
    return f"""{inputs} => (float[3, 2] last) {{ {TAKEN} {YES} last = Loop (four, go, h) <body = s
        ({BODY}, float[3, 2] a) => (bool d, float[3, 2] b) {{ {jax_read(place)} {STATE} }}> }}"""


def jax_write(place: str, operand: str, sizes: str) -> str:
    """`o.at[i].set(b)`: updates outside of the array are left out, by NonZero of which are inside."""
    return f"""({X.replace("T, N", "4, 3")}, float[3, 2] h, float{sizes} o) => (float[3, 2] last, float{sizes} all) {{
        {TAKEN} {YES} last, all = Loop (four, go, h, o) <body = s ({BODY}, float[3, 2] a, float{sizes} u) => (bool d,
            float[3, 2] b, float{sizes} v) {{ xt = Gather (x, i) {STATE} {place} zeros = Constant <value_ints = [0]> ()
            ones = Constant <value_ints = [1]> () zero = Constant <value_int = 0> () one = Constant <value_int = 1> ()
            column = Gather <axis = 1> (places, zeros) ge = GreaterOrEqual (column, zero) sizes = Shape ({operand})
            size1 = Gather (sizes, zeros) size = Squeeze (size1, zeros) last0 = Sub (size, one)
            le = LessOrEqual (column, last0) inside = And (ge, le) flat = Squeeze (inside, ones)
            found = NonZero (flat) turned = Transpose <perm = [1, 0]> (found) valid = Squeeze (turned, ones)
            indices = Gather (places, valid) lead = Unsqueeze (b, zeros) updates = Gather (lead, valid)
            v = ScatterND ({operand}, indices, updates) }}> }}"""


# x[i] in a tf.while_loop: the end is beyond every axis, and so are the steps
TF_LOOP = f"""({X}, {H}) => ({ROW} last) {{ sizes = Shape (x) sizes32 = Cast <to = 6> (sizes)
    zeros = Constant <value_ints = [0]> () ones = Constant <value_ints = [1]> () twos = Constant <value_ints = [2]> ()
    {{count}} n = Squeeze (n1, zeros) nf = Cast <to = 1> (n) {{start}}
    last, k = Loop (, go, h, k0) <body = s ({BODY}, {ROW} a, int32 t) => (bool d, {ROW} b, int32 t2) {{{{
        one = {INT32(1)} {{count_on}} {{place}}
        kf = Cast <to = 1> (k1) far_f = Constant <value = float[1] {{{{1e9}}}}> () end_f = Max (kf, far_f)
        end32 = Cast <to = 6> (end_f) far = {FAR.replace("{", "{{").replace("}", "}}")} at_end = Equal (end32, far)
        none = Constant <value = int32[1] {{{{0}}}}> () step1 = Constant <value = int32[1] {{{{1}}}}> ()
        back = Less (step1, none) open = And (at_end, back) low = Constant <value = int32[1] {{{{-1000000000}}}}> ()
        ends = Where (open, low, end32) axes = Constant <value = int32[1] {{{{{{axis}}}}}}> ()
        xs = Slice (x, starts, ends, axes, far) axes64 = Cast <to = 7> (axes) {{squeeze}}
        p = Add (a, xt) b = Tanh (p) }}}}> }}"""
UP = {
    "start": f"k0 = {INT32(0)} f0 = Constant <value_float = 0.0> () go = Less (f0, nf)",
    "count_on": "t2 = Add (t, one) tf = Cast <to = 1> (t2) d = Less (tf, nf)",
}
DOWN = {
    "start": f"one0 = {INT32(1)} k0 = Sub (n, one0) none0 = {INT32(0)} go = GreaterOrEqual (k0, none0)",
    "count_on": f"t2 = Sub (t, one) none1 = {INT32(0)} d = GreaterOrEqual (t2, none1)",
}
FIRST_AXIS = {
    "count": "n1 = Slice (sizes32, zeros, ones, zeros)",
    "place": "k1 = Unsqueeze (t, zeros) starts = Concat <axis = 0> (k1)",
    "axis": "0",
    "squeeze": "xt = Squeeze (xs, zeros)",
}


def tf_loop(**parts: str) -> str:
    """A while loop of TensorFlow that counts and reads."""
    text = TF_LOOP
    for name, part in parts.items():
        text = text.replace("{" + name + "}", part)
    return text.replace("{{", "{").replace("}}", "}")


# x[:, i] in a tf.while_loop: masks say which of the axes begin and end where they do
TF_SECOND_AXIS = f"""(float[N, T, 2] x, {H}) => ({ROW} last) {{ one0 = Constant <value_int = 1> () sizes = Shape (x)
    trips = Gather (sizes, one0) {YES} zeros = Constant <value_ints = [0]> ()
    last = Loop (trips, go, h) <body = s ({BODY}, {ROW} a) => (bool d, {ROW} b) {{ d = Identity (c)
        t = Cast <to = 6> (i) k = Unsqueeze (t, zeros) o = Constant <value = int32[1] {{0}}> ()
        far2 = Constant <value = int32[2] {{1000000000, 1000000000}}> () none = Constant <value = int32[2] {{0, 0}}> ()
        strides = Constant <value = int32[2] {{1, 1}}> () back = Less (strides, none)
        mask = Constant <value = bool[2] {{1, 0}}> () begin = And (back, mask) stack = Concat <axis = 0> (o, k)
        starts = Where (begin, far2, stack) f2 = Constant <value = float[2] {{1e9, 1e9}}> ()
        stack_f = Cast <to = 1> (stack) end_f = Max (stack_f, f2) end32 = Cast <to = 6> (end_f)
        at_end = Equal (end32, far2) open = And (at_end, back)
        low = Constant <value = int32[2] {{-1000000000, -1000000000}}> () ends = Where (open, low, end32)
        axes = Constant <value = int32[2] {{0, 1}}> () steps = Constant <value = int32[2] {{1, 1000000000}}> ()
        xs = Slice (x, starts, ends, axes, steps) ones = Constant <value_ints = [1]> () xt = Squeeze (xs, ones)
        p = Add (a, xt) b = Tanh (p) }}> }}"""

# Keras's TimeDistributed: the steps one after the other, each at a place that is read from a table of them
TF_TABLE = f"""({X}) => (float[T, N, 2] all) {{ {T} {YES} one0 = Constant <value_int = 1> ()
    numbers = Range (zero, trips, one0) ones = Constant <value_ints = [1]> () table64 = Unsqueeze (numbers, ones)
    table = Cast <to = 6> (table64) all = Loop (trips, go) <body = s ({BODY}) => (bool d, {ROW} out) {{
        d = Identity (c) zeros = Constant <value_ints = [0]> () k = Unsqueeze (i, zeros) k1 = Add (k, ones)
        row = Slice (table, k, k1, zeros) starts = Squeeze (row, zeros)
        kf = Cast <to = 1> (starts) far_f = Constant <value = float[1] {{1e9}}> () end_f = Max (kf, far_f)
        ends = Cast <to = 6> (end_f) far = {FAR} axes = Constant <value = int32[1] {{0}}> ()
        xs = Slice (x, starts, ends, axes, far) xt = Squeeze (xs, zeros) out = Sin (xt) }}> }}"""

# lax.scan over tokens whose step is looked up by dynamic_index_in_dim: data say where
JAX_LOOKUP = f"""(float[2, 3, 2] x, float[3, 2] h, int64[4] ids) => (float[3, 2] last) {{ {TAKEN} {YES}
    last = Loop (four, go, h) <body = s ({BODY}, float[3, 2] a) => (bool d, float[3, 2] b) {{
        id = Gather (ids, i) j = Cast <to = 6> (id) {jax_read("")} {STATE} }}> }}"""

# lax.dynamic_slice of two steps at each trip
JAX_WINDOW = f"""(float[5, 3, 2] x, float[3, 2] h) => (float[3, 2] last) {{ {TAKEN} {YES}
    last = Loop (four, go, h) <body = s ({BODY}, float[3, 2] a) => (bool d, float[3, 2] b) {{
        zeros = Constant <value_ints = [0]> () k = Unsqueeze (i, zeros) starts = Concat <axis = 0> (k, zeros, zeros)
        lengths = Constant <value_ints = [2, 3, 2]> () ends = Add (starts, lengths)
        axes = Constant <value_ints = [0, 1, 2]> () xs = Slice (x, starts, ends, axes)
        xt = ReduceSum <keepdims = 0> (xs, zeros) {STATE} }}> }}"""

AT_TRIP = "begin = Constant <value_ints = [0]> () k = Unsqueeze (i, begin) places = Unsqueeze (k, begin)"
ROLLED = """places = Constant <value = int64[1, 1] {0}> () back = Constant <value_ints = [-1]> ()
    begin = Constant <value_ints = [0]> () end = Constant <value_ints = [2]> () more = Constant <value_ints = [3]> ()
    tail = Slice (u, back, more, begin) head = Slice (u, begin, end, begin) w = Concat <axis = 0> (tail, head)"""

TEXTS = {
    "jax: fori_loop": jax_loop(FORI_PLACE),
    "jax: fori_loop from the end": jax_loop(FORI_BACK),
    "jax: a part of a step": jax_loop(FORI_PLACE, "(float[4, 5, 2] x, float[3, 2] h)"),
    "jax: at[i].set": jax_write(AT_TRIP, "u", "[4, 3, 2]"),
    "jax: roll and at[0].set": jax_write(ROLLED, "w", "[3, 3, 2]"),
    "jax: a lookup": JAX_LOOKUP,
    "jax: a window": JAX_WINDOW,
    "tf: while_loop": tf_loop(**FIRST_AXIS, **UP),
    "tf: while_loop down": tf_loop(**FIRST_AXIS, **DOWN),
    "tf: another axis": TF_SECOND_AXIS,
    "tf: TimeDistributed": TF_TABLE,
}
LOOKUPS = ("jax: a lookup", "jax: a window", "tf: TimeDistributed")  # steps that are not read one after the other
