"""Models with functions of their own, and with ops that ONNX defines by simpler ones."""

from __future__ import annotations

import onnx

HEAD = '<ir_version: 10, opset_import: ["": {opset}, "own": 1]>'
OWN = '<domain: "own", opset_import: ["": {opset}, "own": 1]>'

FUNCTIONS = {
    "one in another": f"""
        {HEAD} g (float[T, N, 4] x) => (float[T, N, 4] y) {{ a = own.twice (x) y = own.soft <alpha = 0.5> (a) }}
        {OWN} twice (x) => (y) {{ y = Add (x, x) }}
        {OWN} soft <alpha> (x) => (y) {{ a = own.twice (x)
            f = Constant <value_float: float = @alpha> () y = Mul (a, f) }}
    """,
    "within a Scan": f"""
        {HEAD} g (float[T, N, 4] x, float[N, 4] h) => (float[N, 4] last, float[T, N, 4] y) {{
            last, y = Scan <num_scan_inputs = 1, body = b (float[N, 4] s, float[N, 4] v)
                => (float[N, 4] t, float[N, 4] o) {{ t = own.step (s, v) o = Identity (t) }}> (h, x) }}
        {OWN} step (h, x) => (y) {{
            half = Constant <value_float = 0.5> () s = Mul (h, half) a = Add (s, x) y = Tanh (a) }}
    """,
}


def parsed(text: str, opset: int = 20) -> onnx.ModelProto:
    return onnx.parser.parse_model(text.replace("{opset}", str(opset)))


LINEAR = """
    <ir_version: 12, opset_import: ["": 27]>
    g (float[2, T, 6] q, float[2, T, 6] k, float[2, T, 8] v, float[2, T, 2] decay)
        => (float[2, T, 8] y, float[2, 2, 3, 4] s)
    { y, s = LinearAttention <q_num_heads = 2, kv_num_heads = 2, update_rule = "gated"> (q, k, v, , decay) }
"""
ATTENTION = """
    <ir_version: 12, opset_import: ["": 24]>
    g (float[N, T, 6] q, float[N, S, 6] k, float[N, S, 6] v) => (float[N, T, 6] y)
    { y = Attention <q_num_heads = 2, kv_num_heads = 2, is_causal = 1> (q, k, v) }
"""
