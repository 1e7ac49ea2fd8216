"""Sizes that are computed: what follows from constants and shapes is read, what nothing can decide is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx.parser
import pytest
from devices import DEVICES
from rejection import rejects

from rnnops.onnx import OnnxError, load


def written(folder: Path, graph: str, opset: int = 17) -> Path:
    """A file with a graph from `float[T, N, 4] x` (and what the text adds) to y."""
    text = f'<ir_version: 8, opset_import: ["" : {opset}]> g (float[T, N, 4] x{graph}'
    onnx.save(onnx.parser.parse_model(text), folder / "model.onnx")
    return folder / "model.onnx"


def ran(path: Path, shape: tuple[int, ...], **constants: Any) -> np.ndarray[Any, Any]:
    """What a file makes of `0, 1, 2, ...`; both devices must agree."""
    net = load(path, constants)
    x = np.arange(np.prod(shape), dtype="float32").reshape(shape)
    found = DEVICES["reference"](net)(x=x)["y"]
    np.testing.assert_array_equal(DEVICES["plain"](net)(x=x)["y"], found)
    return found


COMPUTED = """
    four = Constant<value_ints = [4]>()
    zeros = ConstantOfShape<value = int64[1] {0}>(four)
    last = Constant<value_ints = [2, 1]>()
    all = Concat<axis = 0>(last, zeros)
    pairs_shape = Constant<value_ints = [-1, 2]>()
    pairs = Reshape(all, pairs_shape)
    from = Constant<value_ints = [-1]>()
    to = Constant<value_ints = [-9223372036854775807]>()
    axis = Constant<value_ints = [0]>()
    turned = Slice(pairs, from, to, axis, from)
    sides = Transpose<perm = [1, 0]>(turned)
    flat_shape = Constant<value_ints = [-1]>()
    flat = Reshape(sides, flat_shape)
    pads = Cast<to = 7>(flat)
"""


@pytest.mark.parametrize(("mode", "numpy_mode"), [("constant", "constant"), ("reflect", "reflect"), ("edge", "edge")])
def test_pads_may_be_computed_from_constants(mode: str, numpy_mode: str, tmp_path: Path) -> None:
    path = written(tmp_path, f') => (float y) {{ {COMPUTED} y = Pad<mode = "{mode}">(x, pads) }}')
    for shape in ((2, 3, 4), (5, 1, 4)):
        x = np.arange(np.prod(shape), dtype="float32").reshape(shape)
        np.testing.assert_array_equal(ran(path, shape), np.pad(x, [(0, 0), (0, 0), (2, 1)], mode=numpy_mode))


def test_one_axis_may_be_cut_and_another_one_mirrored(tmp_path: Path) -> None:
    pads = "pads = Constant<value_ints = [1, 0, 0, 1, 0, -2]>()"
    path = written(tmp_path, f') => (float y) {{ {pads} y = Pad<mode = "reflect">(x, pads) }}')
    x = np.arange(24, dtype="float32").reshape(2, 3, 4)
    np.testing.assert_array_equal(ran(path, (2, 3, 4)), np.pad(x[:, :, :2], [(1, 1), (0, 0), (0, 0)], mode="reflect"))


def test_an_axis_that_is_mirrored_and_cut_is_refused(tmp_path: Path) -> None:
    pads = "pads = Constant<value_ints = [0, 0, -1, 0, 0, 2]>()"
    path = written(tmp_path, f') => (float y) {{ {pads} y = Pad<mode = "reflect">(x, pads) }}')
    rejects(OnnxError, lambda: load(path), "model.onnx", "'y' (Pad)", "'reflect'", "also cut", "[0, 0, -1, 0, 0, 2]")


def test_pads_that_open_sizes_decide_are_refused_where_signs_matter(tmp_path: Path) -> None:
    computed = (
        "s = Shape<start = 0, end = 1>(x) z = Constant<value_ints = [0]>() p = Concat<axis = 0>(z, z, s, z, z, z)"
    )
    path = written(tmp_path, f') => (float y) {{ {computed} y = Pad<mode = "edge">(x, p) }}')
    rejects(OnnxError, lambda: load(path), "model.onnx", "'y' (Pad)", "blob 'p'", "'pads'", "leaves open")
    path = written(tmp_path, f") => (float y) {{ {computed} y = Pad(x, p) }}")
    assert ran(path, (2, 3, 4)).shape == (2, 3, 6)


def test_what_is_equal_for_large_sizes_is_no_constant(tmp_path: Path) -> None:
    """`min(T, 3) - 2` is 1 for all sizes that a reader would make up, and -1 for T = 1."""
    nodes = """
        t = Shape<start = 0, end = 1>(x) three = Constant<value_ints = [3]>() two = Constant<value_ints = [2]>()
        least = Min(t, three) n = Sub(least, two) z = Constant<value_ints = [0]>() p = Concat<axis = 0>(z, n, z, z)
        axes = Constant<value_ints = [1, 2]>()
    """
    path = written(tmp_path, f") => (float y) {{ {nodes} y = Pad(x, p, , axes) }}", opset=18)
    assert [ran(path, (T, 3, 4)).shape for T in (1, 2, 7)] == [(1, 3, 3), (2, 3, 4), (7, 3, 5)]
    path = written(tmp_path, f') => (float y) {{ {nodes} y = Pad<mode = "edge">(x, p, , axes) }}', opset=18)
    rejects(OnnxError, lambda: load(path), "'y' (Pad)", "leaves open")


def test_minus_one_in_an_expand_keeps_a_size(tmp_path: Path) -> None:
    nodes = """
        three = Constant<value_ints = [3]>() ones = ConstantOfShape<value = int64[1] {1}>(three)
        minus = Constant<value_int = -1>() all = Mul(ones, minus) wanted = Constant<value_ints = [-1, 5, -1]>()
        keeps = Equal(wanted, all) shape = Where(keeps, ones, wanted) row = Constant<value_int = 0>()
        first = Gather<axis = 1>(x, row) axis = Constant<value_ints = [1]>() narrow = Unsqueeze(first, axis)
    """
    path = written(tmp_path, f") => (float y) {{ {nodes} y = Expand(narrow, shape) }}")
    assert [ran(path, (T, 3, 4)).shape for T in (1, 6)] == [(1, 5, 4), (6, 5, 4)]


def test_a_range_over_floats_may_end_at_a_size(tmp_path: Path) -> None:
    nodes = """
        s = Shape(x) i = Constant<value_int = 0>() t = Gather(s, i) limit = Cast<to = 1>(t)
        zero = Constant<value_float = 0.0>() step = Constant<value_float = 0.5>()
    """
    path = written(tmp_path, f") => (float y) {{ {nodes} y = Range(zero, limit, step) }}")
    assert ran(path, (3, 1, 4)).tolist() == [0.0, 0.5, 1.0, 1.5, 2.0, 2.5]


def test_a_body_knows_what_is_computed_from_constants_around_it(tmp_path: Path) -> None:
    body = "b (float[N, 4] s, float[N, 4] e) => (float[N, 4] n, float[N, 2, 2] y) { n = Add(s, e) f = Cast<to = 1>(p) "
    body += "m = ReduceMax(f) r = Reshape(n, p) y = Mul(r, m) }"
    nodes = f"""
        one = Constant<value_ints = [0]>() two = Constant<value_ints = [2]>() p = Concat<axis = 0>(one, two, two)
        row = Constant<value_int = 0>() zero = Gather(x, row)
        last, y = Scan<num_scan_inputs = 1, body = {body}>(zero, x)
    """
    assert ran(written(tmp_path, f") => (float y) {{ {nodes} }}"), (5, 3, 4)).shape == (5, 3, 2, 2)


REFUSED: dict[str, tuple[str, tuple[str, ...]]] = {
    "an integer input": (
        ", int64[3] s) => (float y) { y = Reshape(x, s) }",
        ("'y' (Reshape)", "'shape'", "'s'", "constants={'s': ...}")),
    "arithmetic on an integer input": (
        ", int64[N] n) => (float y) { s = ReduceMax(n) l = Cast<to = 7>(s) i = Constant<value_int = 0>() "
        "d = Constant<value_int = 1>() r = Range(i, l, d) y = Cast<to = 1>(r) }",
        ("'r' (Range)", "'limit'", "blob 'l'", "input 'n'", "constants={'n': ...}")),
    "float data": (
        ") => (float y) { a = ReduceMax(x) s = Cast<to = 7>(a) y = ConstantOfShape(s) }",
        ("'y' (ConstantOfShape)", "'shape'", "blob 's'", "result of 'ReduceMax -> a'")),
    "float arithmetic": (
        ") => (float y) { s = Shape(x) f = Cast<to = 1>(s) r = Sqrt(f) i = Cast<to = 7>(r) y = ConstantOfShape(i) }",
        ("'y' (ConstantOfShape)", "'shape'", "blob 'i'", "result of 'Sqrt -> r'", "integer arithmetic")),
    "axes": (", int64[1] a) => (float y) { y = Squeeze(x, a) }", ("'y' (Squeeze)", "'axes'", "constants={'a': ...}")),
    "where a slice ends": (
        ", int64[1] e) => (float y) { b = Constant<value_ints = [0]>() y = Slice(x, b, e) }",
        ("'y' (Slice)", "'ends'", "constants={'e': ...}")),
    "widths of pads": (", int64[6] p) => (float y) { y = Pad(x, p) }", ("'y' (Pad)", "'pads'", "constants={'p': ...}")),
    "widths where signs matter": (
        ', int64[6] p) => (float y) { y = Pad<mode = "reflect">(x, p) }',
        ("'y' (Pad)", "'pads'", "blob 'p'", "constants={")),
    "sizes of pieces": (
        ", int64[2] p) => (float y) { y, z = Split<axis = 2>(x, p) }", ("'y' (Split)", "'split'", "constants={'p'")),
    "how many classes": (
        ", int64 d) => (float y) { s = Shape(x) v = Constant<value_floats = [0.0, 1.0]>() y = OneHot(s, d, v) }",
        ("'y' (OneHot)", "'depth'", "constants={'d': ...}")),
    "data in a body": (
        ") => (float y) { r = Constant<value_int = 0>() z = Gather(x, r) l, y = Scan<num_scan_inputs = 1, body = b "
        "(float[N, 4] s, float[N, 4] e) => (float[N, 4] n, float y) { n = Add(s, e) m = ReduceMax(e) "
        "i = Cast<to = 7>(m) y = ConstantOfShape(i) }>(z, x) }",
        ("'l' (Scan)", "'y' (ConstantOfShape)", "'shape'", "result of 'ReduceMax -> m' of the body")),
    "a weight that does not fit": (
        ") => (float y) <float[2, 3] w = {1, 2, 3, 4, 5, 6}> { s = Constant<value_ints = [4, 2]>() v = Reshape(w, s) "
        "y = MatMul(x, v) }",
        ("'v' (Reshape)", "elements do not fit", "[4, 2]")),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_can_never_run_is_refused(name: str, tmp_path: Path) -> None:
    graph, mentioned = REFUSED[name]
    path = written(tmp_path, graph)
    rejects(OnnxError, lambda: load(path), "model.onnx", *mentioned)


def test_what_is_refused_can_be_given(tmp_path: Path) -> None:
    path = written(tmp_path, ", int64[2] s) => (float y) { y = Reshape(x, s) }")
    assert ran(path, (2, 3, 4), s=[-1, 4]).shape == (6, 4)
    path = written(tmp_path, ', int64[6] p) => (float y) { y = Pad<mode = "reflect">(x, p) }')
    assert ran(path, (2, 3, 4), p=[0, 0, 1, 0, 0, 1]).shape == (2, 3, 6)


def test_what_fits_only_some_sizes_is_read(tmp_path: Path) -> None:
    path = written(tmp_path, ") => (float y) { s = Constant<value_ints = [2, 12]>() y = Reshape(x, s) }")
    assert ran(path, (2, 3, 4)).shape == (2, 12)


def test_a_result_that_nobody_reads_is_no_input_that_is_left_out(tmp_path: Path) -> None:
    """Both have the empty name: bools of a Scan were taken for the lower bound of a Clip."""
    text = """<ir_version: 8, opset_import: ["" : 17]> g (float[2, 3, 4] x, float[3, 4] h) => (float[3, 4] y) {
        most = Constant<value = float {2}>()
        l, unread = Scan<num_scan_inputs = 1, body = b (float[3, 4] s, float[3, 4] e) => (float[3, 4] n, bool[3, 4] o)
            { n = Add(s, e) o = Less(s, e) }>(h, x)
        y = Clip(l, , most) }"""
    onnx.save(onnx.parser.parse_model(text), tmp_path / "model.onnx")
    feeds = {"x": np.ones((2, 3, 4), "float32"), "h": np.ones((3, 4), "float32")}
    assert DEVICES["reference"](load(tmp_path / "model.onnx"))(feeds)["y"].max() == 2


def test_a_table_of_places_is_cut_to_the_steps(tmp_path: Path) -> None:
    graph = """) => (float y) {
        begin = Constant<value_ints = [0]>() axis = Constant<value_ints = [1]>() steps = Shape<start = 1, end = 2>(x)
        most = Constant<value_ints = [1, 5, 4]>() table = ConstantOfShape<value = float[1] {3}>(most)
        cut = Slice(table, begin, steps, axis)
        placed = Add(x, cut)
        back = Constant<value = int64[1, 1, 4] {-1, -1, -1, -1}>() rows = Shape<start = 0, end = 1>(x)
        rest = Constant<value_ints = [1, 4]>() shape = Concat<axis = 0>(rows, rest) last = Expand(back, shape)
        y = GatherElements<axis = 1>(placed, last) }"""
    path = written(tmp_path, graph)
    for shape in ((2, 3, 4), (3, 5, 4), (2, 1, 4)):
        x = np.arange(np.prod(shape), dtype="float32").reshape(shape)
        np.testing.assert_array_equal(ran(path, shape), x[:, -1:] + 3)
