"""Models of ops that ONNX defines by simpler ones."""

from __future__ import annotations

LINEAR = """
    <ir_version: 12, opset_import: ["" : 27]>
    g (float[2, T, 6] q, float[2, T, 6] k, float[2, T, 8] v, float[2, T, 2] decay)
        => (float[2, T, 8] y, float[2, 2, 3, 4] s)
    { y, s = LinearAttention <q_num_heads = 2, kv_num_heads = 2, update_rule = "gated"> (q, k, v, , decay) }
"""
FEWER_HEADS = """
    <ir_version: 12, opset_import: ["" : 27]>
    g (float[2, T, 6] q, float[2, T, 3] k, float[2, T, 4] v) => (float[2, T, 8] y, float[2, 1, 3, 4] s)
    { y, s = LinearAttention <q_num_heads = 2, kv_num_heads = 1, update_rule = "linear"> (q, k, v) }
"""
ATTENTION = """
    <ir_version: 12, opset_import: ["" : 24]>
    g (float[N, T, 6] q, float[N, S, 6] k, float[N, S, 6] v) => (float[N, T, 6] y)
    { y = Attention <q_num_heads = 2, kv_num_heads = 2, is_causal = 1> (q, k, v) }
"""
IN_A_SCAN = """
    <ir_version: 12, opset_import: ["" : 28]>
    g (float[T, N, 6] q, float[N, 6] s) => (float[N, 6] last, float[T, N, 6] y)
    { last, y = Scan <num_scan_inputs = 1, body = b (float[N, 6] a, float[N, 6] u) => (float[N, 6] t, float[N, 6] o)
        { p = SwiGLU (a, u) t = Tanh (p) o = Identity (t) }> (s, q) }
"""
ALL = {
    "linear attention": LINEAR,
    "fewer heads of keys": FEWER_HEADS,
    "attention": ATTENTION,
    "in a Scan": IN_A_SCAN,
}
SHAPES = {"q": (2, 5, 6), "decay": (2, 5, 2), "s": (5, 6)}
WIDTHS = {  # of k and v
    "linear attention": (6, 8),
    "fewer heads of keys": (3, 4),
    "attention": (6, 6),
    "in a Scan": (6, 6),
}
