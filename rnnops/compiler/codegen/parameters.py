"""What drivers and kernels of a scan are given: parameters, numbers of a step, a thread's share, and a function that
copies."""

from __future__ import annotations

from collections.abc import Mapping

from rnnops.compiler.ir.expressions import Cast, Expr, Literal, Load, Name, share_of
from rnnops.compiler.ir.kernel import Assign, For, Function, Parameter, Pointer, Statement as Line, Store
from rnnops.compiler.ir.scan import Scan
from rnnops.compiler.schedule.places import Layouts
from rnnops.compiler.schedule.step_plan import StepPlan
from rnnops.types import BOOL

ZERO, ONE = Literal(0), Literal(1)
DRIVER_PARAMETERS = (
    Parameter("rank"),
    Parameter("threads"),
    *(Parameter(name, "int64[]") for name in ("barrier", "status")),
)
SCALARS: Mapping[str, Expr | Pointer] = {
    "t": Cast(Name("first") + Name("t"), dtype="int32"),
    "draw_t": Name("draw_t0") + Name("t"),
    "status": Pointer("status", ZERO),
}


def array_parameters(scan: Scan, plan: StepPlan, layouts: Layouts) -> list[Parameter]:
    """What the caller gives, and scratch; bools come as bytes."""
    tensors = [(array, scan.tensors[name].dtype, f"tensor {name}") for name, array in layouts.tensors.items()]
    arrays = [(array, plan.types[owner].dtype, owner) for owner, array in layouts.arrays.items()]
    scratch = [(f"w_{dtype}", dtype, "") for dtype in layouts.scratch]
    given = (*tensors, *arrays, *scratch)
    return [Parameter(name, "uint8[]" if dtype == BOOL else f"{dtype}[]", blob) for name, dtype, blob in given]


def copy_function(name: str, dtype: str) -> Function:
    """A function that copies numbers."""
    stored = "uint8" if dtype == BOOL else dtype
    taken = Parameter("p0", f"{stored}*"), Parameter("p1", f"{stored}*"), Parameter("size")
    body = Store("p0", Name("i0"), Load("p1", Name("i0"), dtype=stored))
    return Function(name, taken, (For("i0", ZERO, Name("size"), ONE, (body,)),))


def thread_share(names: tuple[str, str], rank: Expr, threads: Expr, count: Expr, block: Expr) -> tuple[Line, Line]:
    """First and last of what a thread takes."""
    first, last = share_of(rank, threads, count, block)
    return Assign(names[0], first), Assign(names[1], last)
