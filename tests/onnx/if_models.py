"""Graphs with If, as text after their names: by data, by constants, by sizes, in each other and in Scans."""

from __future__ import annotations

from typing import Any

import onnx.parser

X = "float[N,3] x"
BRANCHES = """
    <then_branch = t() => (float[N,3] r) <float[3] v = {4, 5, 6}> { z2 = Mul(z, v) r = Add(z2, w) },
     else_branch = e() => (float[N,3] r) { z2 = Sub(z, w) r = Tanh(z2) }>"""
BY_DATA = f"({X}, bool c) => (float[N,3] y) <float[3] w = {{1, 2, 3}}> {{ z = Neg(x) y = If(c) {BRANCHES} }}"
TWO_AXES = BY_DATA.replace("bool c", "bool[1,1] c")
BY_CONSTANT = BY_DATA.replace(", bool c", "").replace("w = {1, 2, 3}", "w = {1, 2, 3}, bool c = {1}")
BY_FIXED_SIZE = f"""({X}) => (float[N,3] y) <float[3] w = {{1, 2, 3}}> {{
    z = Neg(x) sizes = Shape(x) one = Constant<value_int = 1>() three = Constant<value_int = 3>()
    size = Gather(sizes, one) c = Equal(size, three) y = If(c) {BRANCHES} }}"""
BY_OPEN_SIZE = f"""({X}) => (float y) <int64[1] first = {{0}}> {{
    size = Shape<start = 0, end = 1>(x) one = Constant<value_ints = [1]>() c = Equal(size, one)
    y = If(c) <then_branch = t() => (float[3] r) {{ r = Squeeze(x, first) }},
               else_branch = e() => (float[N,3] r) {{ r = Identity(x) }}> }}"""
TO_A_SCALAR = BY_OPEN_SIZE.replace("r = Identity(x)", "r = ReduceMax<keepdims = 0>(x)")
INSIDE_ITSELF = f"""({X}, bool c, bool d) => (float[N,3] y) <float[3] w = {{1, 2, 3}}> {{
    y = If(c) <
        then_branch = t() => (float[N,3] r) {{
            w2 = Mul(w, w)
            r = If(d) <then_branch = a() => (float[N,3] q) {{ s = Add(x, w2) q = Sin(s) }},
                       else_branch = b() => (float[N,3] q) {{ s = Mul(x, w2) q = Cos(s) }}> }},
        else_branch = e() => (float[N,3] s) {{ s = Identity(x) }}> }}"""
TWO_RESULTS = f"""({X}, bool c) => (float[N,3] y, float[N] z) {{
    y, z = If(c) <then_branch = t() => (float[N,3] r, float[N] s) {{
                      r = Sin(x) s = ReduceMax<keepdims = 0, axes = [1]>(x) }},
                  else_branch = e() => (float[N,3] r, float[N] s) {{
                      r = Identity(x) s = ReduceMin<keepdims = 0, axes = [1]>(r) }}> }}"""
IN_A_SCAN = """(float[T,N,3] x, float[N,3] h0, bool c) => (float[N,3] h, float[T,N,3] y) {
    h, y = Scan<num_scan_inputs = 1,
                body = step(float[N,3] h_in, float[N,3] x_t) => (float[N,3] h_out, float[N,3] y_t) {
        h_out = If(c) <then_branch = t() => (float[N,3] r) { s = Add(h_in, x_t) r = Tanh(s) },
                       else_branch = e() => (float[N,3] r) { s = Sub(h_in, x_t) r = Sin(s) }>
        y_t = Neg(h_out) }>(h0, x) }"""
A_SCAN_INSIDE = """(float[T,N,3] x, float[N,3] h0, bool c) => (float[N,3] y) <float[3] w = {1, 2, 3}> {
    y = If(c) <then_branch = t() => (float[N,3] r) {
                   w2 = Tanh(w)
                   r, all = Scan<num_scan_inputs = 1,
                                 body = step(float[N,3] w, float[N,3] x_t) => (float[N,3] s, float[N,3] o) {
                                     s = Add(w, x_t) o = Mul(s, w2) }>(h0, x) },
               else_branch = e() => (float[N,3] s) { s = Mul(h0, w) }> }"""
BY_WINDOW = f"""(float[N,window] x, float[1,N,2] h) => (float[N,2] y, float[1,rows,2] hn)
    <float[1,6,3] w = {{{", ".join(["0.5", "-0.25"] * 9)}}}, float[1,6,2] u = {{{", ".join(["0.25"] * 12)}}}> {{
    w1 = Shape<start = 1, end = 2>(x) three = Constant<value_ints = [3]>() size = Div(w1, three)
    first = Constant<value_ints = [0]>() one = Constant<value_ints = [1]>() two = Constant<value_ints = [2]>()
    x1 = Slice(x, first, three, one) c = Equal(size, two)
    y, hn = If(c) <
        then_branch = t() => (float[N,2] a, float[1,N,2] b) {{
            s = Unsqueeze(x1, first) all, b = GRU<hidden_size = 2>(s, w, u, "", "", h) a = Squeeze(b, first) }},
        else_branch = e() => (float[N,2] a, float[1,N,2] b) {{
            all, b = GRU<hidden_size = 2>(x1, w, u, "", "", h) a = Squeeze(b, first) }}> }}"""
BY_WINDOW_WITHOUT_NAMES = BY_WINDOW.replace("float[N,window] x, float[1,N,2] h", "float[?,?] x, float[1,?,2] h")
SQUEEZED = f"""(float[N,W,3] x) => (float[N,1,1,2] y) <int64[1] one = {{1}},
    float[1,6,3] w = {{{", ".join(["0.5", "-0.25"] * 9)}}}, float[1,6,2] u = {{{", ".join(["0.25"] * 12)}}}> {{
    s = Shape<start = 1, end = 2>(x) c = Equal(s, one)
    z = If(c) <then_branch = t() => (float[N,3] a) {{ a = Squeeze(x, one) }},
               else_branch = e() => (float[N,W,3] b) {{ b = Identity(x) }}>
    q = Unsqueeze(z, one) y, h = GRU<hidden_size = 2>(q, w, u) }}"""  # as PyTorch's exporters write x.squeeze(1)
SQUEEZED_TWICE = SQUEEZED.replace(
    "q = Unsqueeze(z, one)",
    """s2 = Shape<start = 1, end = 2>(x) c2 = Equal(s2, one)
    v = If(c2) <then_branch = t2() => (float[N,3] f) { f = Squeeze(x, one) },
                else_branch = e2() => (float[N,W,3] g) { g = Identity(x) }>
    zv = Add(z, v) q = Unsqueeze(zv, one)""",
)
SQUEEZED_BY_OPPOSITES = SQUEEZED.replace(
    "q = Unsqueeze(z, one)",
    """d = Not(c)
    v = If(d) <then_branch = t2() => (float[N,W,3] f) { f = Identity(x) },
               else_branch = e2() => (float[N,3] g) { g = Squeeze(x, one) }>
    zv = Add(z, v) q = Unsqueeze(zv, one)""",
)
SQUEEZED_BY_MANY = SQUEEZED.replace("c = E", "c0 = E").replace(
    "z = If(c)", " ".join(f"c{i + 1} = And(c{i}, c{i})" for i in range(16)) + " z = If(c16)"
)
ALL = {
    "by data": BY_DATA,
    "a condition with axes": TWO_AXES,
    "by a constant": BY_CONSTANT,
    "by a fixed size": BY_FIXED_SIZE,
    "by an open size": BY_OPEN_SIZE,
    "to a scalar": TO_A_SCALAR,
    "inside itself": INSIDE_ITSELF,
    "two results": TWO_RESULTS,
    "in a Scan": IN_A_SCAN,
    "a Scan inside": A_SCAN_INSIDE,
}


def model_of(graph: str) -> Any:
    """A model of a graph."""
    return onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 16]> g {graph}')


SQUEEZED_BY_RANK = SQUEEZED.replace(
    "q = Unsqueeze(z, one)",
    """zs = Shape(z) n = Size(zs) rank = Constant<value_int = 2>() d = Equal(n, rank)
    q = If(d) <then_branch = t2() => (float[N,1,3] f) { f = Unsqueeze(z, one) },
               else_branch = e2() => (float[N,1,W,3] g) { g = Unsqueeze(z, one) }>""",
)  # as Silero's files do
ROWS_OF_TWO_NAMES = f"""(float[T,N,3] x, float[1,M,2] h) => (float y) <int64[1] one = {{1}},
    float[1,6,3] w = {{{", ".join(["0.5", "-0.25"] * 9)}}}, float[1,6,2] u = {{{", ".join(["0.25"] * 12)}}}> {{
    a, b = GRU<hidden_size = 2>(x, w, u, "", "", h)
    s = Shape(a) n = Size(s) rank = Constant<value_int = 4>() c = Equal(n, rank)
    y = If(c) <then_branch = t() => (float[T,1,N,2] f) {{ f = Tanh(a) }},
               else_branch = e() => (float[T,1,1,N,2] g) {{ g = Unsqueeze(a, one) }}> }}"""
OF_OTHER_WIDTHS = f"""(float[N,W,3] x, bool c) => (float[1,N,2] y) <int64[1] one = {{1}}, int64[1] two = {{2}},
    float[1,6,3] w = {{{", ".join(["0.5", "-0.25"] * 9)}}}, float[1,6,2] u = {{{", ".join(["0.25"] * 12)}}}> {{
    s = Shape<start = 1, end = 2>(x) d = Equal(s, one) e = Equal(s, two)
    y = If(c) <
        then_branch = t() => (float[1,1,2] a) {{
            v = If(d) <then_branch = t2() => (float[N,3] f) {{ f = Squeeze(x, one) }},
                       else_branch = e2() => (float[N,W,3] g) {{ g = Identity(x) }}>
            q = Unsqueeze(v, one) all, a = GRU<hidden_size = 2>(q, w, u) }},
        else_branch = e() => (float[1,1,2] b) {{
            z = If(e) <then_branch = t3() => (float[N,3] h) {{ h = ReduceMax<axes = [1], keepdims = 0>(x) }},
                       else_branch = e3() => (float[N,W,3] i) {{ i = Identity(x) }}>
            r = Unsqueeze(z, one) every, b = GRU<hidden_size = 2>(r, w, u) }}> }}"""
OF_OTHER_WIDTHS_INSIDE = (
    OF_OTHER_WIDTHS.replace("bool c)", "bool c, bool o)").replace(
        "y = If(c)", "y = If(o) < then_branch = t0() => (float[1,N,2] y1) { y1 = If(c)"
    )[:-1]
    + """}, else_branch = e0() => (float[1,N,2] y2) {
        m = ReduceMax<axes = [1], keepdims = 0>(x) k = Unsqueeze(m, one) p, y2 = GRU<hidden_size = 2>(k, w, u) }> }"""
)
