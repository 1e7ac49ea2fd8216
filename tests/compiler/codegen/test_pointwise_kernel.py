"""Pointwise kernels as text: loads and stores once each, registers for what is used at once, names that are ours."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from scan_cases import lowered_step

import rnnops as ro
from rnnops.compiler.codegen.pointwise_kernel import PointwiseKernel, PointwiseWriter, SizeArguments
from rnnops.compiler.lower.expressions import Constants
from rnnops.compiler.schedule.loop_nests import fuse_nests
from rnnops.types import Type

Build = Callable[..., ro.Blob]


def written(
    build: Build, stored: Collection[str] = (), **kinds: Any
) -> tuple[PointwiseKernel, SizeArguments, Constants]:
    """A cell of one row as a pointwise kernel; the last result is stored."""
    cell = ro.Net("cell")
    blobs = {
        name: cell.input(name, kind[0] if kind and isinstance(kind[0], str) else None) for name, kind in kinds.items()
    }
    cell.outputs(y=build(**blobs))
    lowered = lowered_step(cell, **kinds)
    sizes, constants = SizeArguments(), Constants()
    last = lowered.statements[-1].target.owner
    writer = PointwiseWriter("row", lowered.types, {}, {last, *stored}, {}, sizes, constants)
    return writer.write(fuse_nests(lowered.statements)), sizes, constants


def lines_of(program: PointwiseKernel) -> list[str]:
    return [text for line in program.body for text in line.lines()]


def body(build: Build, stored: Collection[str] = (), **kinds: Any) -> list[str]:
    return [line.strip() for line in lines_of(written(build, stored, **kinds)[0])]


def test_a_chain_is_one_loop_in_registers() -> None:
    program, sizes, _ = written(lambda x, w: ro.tanh(x * w) + x, x=(40,), w=(40,))
    types = {owner: Type("float32", (40,)) for owner in program.pointers}
    assert str(program.function(types)).splitlines()[0] == "def row(p0, p1, p2, c0):"
    assert sizes.values == [40]
    lines = body(lambda x, w: ro.tanh(x * w) + x, x=(40,), w=(40,))
    assert lines[0] == "for i0 in range(c0):"
    assert sum("[" in line for line in lines) == 3, "x and w are read once, y is written once, nothing else is memory"


def test_what_others_read_is_stored() -> None:
    assert sum("] = " in line for line in body(lambda x: ro.tanh(x) * 2.0, x=(4,))) == 1
    assert sum("] = " in line for line in body(lambda x: ro.tanh(x) * 2.0, ["tanh_0"], x=(4,))) == 2


def test_what_another_loop_reads_goes_through_memory() -> None:
    lines = body(lambda x: ro.softmax(x, axis=0), x=(5,))
    assert sum(line.startswith("for ") for line in lines) == 3
    assert any("larger(" in line for line in lines)
    assert any("add_any_order(" in line for line in lines)


def test_numbers_of_a_row_are_variables() -> None:
    """One element of a row needs no memory, wherever in the row it is used."""
    lines = body(lambda x: x * ro.reduce_sum(x, axes=[0]), x=(5,))
    assert sum("] = " in line for line in lines) == 1


def test_sizes_of_0_and_1_stand_in_the_text() -> None:
    sizes = SizeArguments()
    assert [str(sizes.of(value)) for value in (0, 1, -1, 5, 7, 5)] == ["0", "1", "-1", "c0", "c1", "c0"]


def test_counts_of_short_innermost_loops_stand_in_the_text() -> None:
    """LLVM makes no vectors of a loop of 8 whose count it does not know."""
    loops = [line for line in body(lambda x, w: x * w, x=(40, 8), w=(8,)) if line.startswith("for ")]
    assert loops == ["for i0 in range(c0):", "for i1 in range(8):"]
    (long,) = (line for line in body(lambda x: x * 2.0, x=(33,)) if line.startswith("for "))
    assert long == "for i0 in range(c0):"


def test_names_from_a_net_never_reach_the_text() -> None:
    cell = ro.Net("cell")
    x = cell.input("import os")
    cell.outputs(y=ro.tanh(x).named("); evil("))
    lowered = lowered_step(cell, **{"import os": (3,)})
    writer = PointwiseWriter("row", lowered.types, {}, {"); evil("}, {}, SizeArguments(), Constants())
    text = "\n".join(lines_of(writer.write(fuse_nests(lowered.statements))))
    assert "evil" not in text
    assert "import" not in text


def test_constants_have_the_dtype_of_what_they_meet() -> None:
    _, _, constants = written(lambda n: n * 3 - 1, n=("int16", (4,)))
    assert all("np.int16(" in line for line in constants.lines())


def test_bools_are_bytes_in_memory() -> None:
    lines = body(lambda x: ro.where(ro.slice(ro.less(x, 0.5), [1], [3], [0]), 1.0, ro.slice(x, [0], [2], [0])), x=(4,))
    assert any(line.endswith("!= 0") for line in lines), "read with a test"


def test_memory_that_is_added_to_is_read_each_time() -> None:
    lines = body(lambda x: ro.reduce_sum(x * 2.0, axes=[0], keepdims=0), x=(4, 3))
    (added,) = (line for line in lines if line.startswith("p") and " + " in line.split(" = ")[1])
    place, value = added.split(" = ")
    assert value.startswith(place)


def test_unknown_indices_are_checked_and_known_ones_are_not() -> None:
    checked = body(lambda x, i: ro.gather(x, i, axis=0), x=(5,), i=("int32", (3,)))
    assert checked[0] == "wrong = 0"
    assert any("max(" in line and "min(" in line for line in checked)
    assert checked[-2:] == ["if wrong > 0:", "status[0] = 1"]
    known = body(lambda x: ro.gather(x, [4, 0, 1, -5], axis=0), x=(5,))
    assert not any("wrong" in line or "max(" in line for line in known)


def test_products_are_multiply_adds() -> None:
    lines = body(lambda x, m: ro.gather(x, 0, axis=0) @ m, x=(1, 4), m=(4, 8))
    assert any("add_product" in line for line in lines)


def test_loops_over_few_elements_are_written_out() -> None:
    """The loop around them is the innermost one then, which becomes vectors."""

    def mixed(x: ro.Blob, w: ro.Blob) -> ro.Blob:
        return ro.einsum("ik,ijk->kj", x, w)

    for size, loops in ((2, 1), (4, 1), (5, 3)):
        lines = body(mixed, x=(size, 8), w=(size, size, 8))
        assert sum(line.startswith("for ") for line in lines) >= loops, lines
        assert (sum("add_product(" in line for line in lines) == size * size) == (size < 5), lines
    assert not any("add_product(" in line for line in body(mixed, x=(2, 7), w=(2, 2, 7))), "too few for vectors"
