"""What must hold of kernel IR, whatever made it: dtypes meet their like, and names stand for something.

Tests verify every module that is written; targets trust what was verified.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from rnnops.compiler.lower.expressions import (
    INDEX,
    BinaryExpr,
    CastExpr,
    Choice,
    CompareExpr,
    Expr,
    Load,
    Logic,
    Name,
    Negated,
    ScalarCall,
    names_in,
    parts_of,
)
from rnnops.compiler.lower.kernel import (
    Array,
    Assign,
    Callee,
    DeviceModule,
    Do,
    For,
    If,
    Module,
    Parameter,
    Statement,
    Store,
    buffers_of,
    expressions_of,
    statements_of,
)
from rnnops.types import BOOL

ON_DEVICE = (
    *("turn_of", "arrive", "await_group", "cuda.syncthreads"),
    *("load_columns", "fetch_columns", "step_product", "load_rows", "clear_own"),
    *("partial_product", "add_partials", "load_fragments", "tensor_product"),
)
ON_HOST = ("on.launch", "on.multiply")
KERNEL_NUMBERS = ("low", "begin", "end", "steps", "rank", "blocks", "lane", "lanes")
TEAM_NUMBERS = ("mates", "mate", "teams", "team")
PRODUCTS = ("gemm_packed", "gemm_tn", "pack_into", "pack_transposed_into")
AS_THEY_LIE = ("gemm_tn", "gemm_nn", "gemm_nt")  # which kernels call, too
OF_WORDS = [f"{name}_bfloat16" for name in PRODUCTS]
OF_WORDS += [f"{name}_{way}" for name in PRODUCTS if name != "gemm_tn" for way in ("int8", "bytes")]
RUNTIME = (*PRODUCTS, *AS_THEY_LIE, *OF_WORDS, "wait", "list_rows", "prefetch")


class KernelError(ValueError):
    """Kernel IR that means nothing."""


def verify(module: Module) -> None:
    """Raise KernelError for a module that means nothing."""
    for program in module.programs:
        _Scope(program.name, program.parameters, {}, AS_THEY_LIE).check(program.body)
    sizes = map(Parameter, module.sizes)
    called = {program.name: len(program.parameters) for program in module.programs}
    _Scope("scan", [*module.driver.parameters, *module.arrays, *sizes], called).check(module.driver.body)


def verify_device(module: DeviceModule) -> None:
    """The same for kernels of a device and what launches them.

    Limit: pointwise kernels of a device, whose lanes fold numbers beside their places, are not looked into.
    """
    called = {program.name: len(program.parameters) for program in module.programs}
    for kernel in module.kernels:
        numbers = map(Parameter, (*KERNEL_NUMBERS, *(TEAM_NUMBERS if kernel.teams else ()), *kernel.sizes))
        memory = [Parameter("status", "int64[]"), Parameter("counters", "uint32[]"), *kernel.arrays, *kernel.folded]
        memory += kernel.fragments
        if kernel.weights:
            memory += [Parameter("shared", f"{module.dtype}[]"), Parameter("kept", f"{module.weights}[]")]
        _Scope(kernel.name, [*numbers, *memory], called, ON_DEVICE).check(kernel.body)
    launched = {kernel.name: len(kernel.arrays) for kernel in module.kernels}
    known = [*map(Parameter, module.sizes), *module.arrays]
    _Scope("scan", known, launched, ON_HOST).check(module.driver.body)


class _Scope:
    """What names stand for in a function, and which functions it may call."""

    def __init__(
        self,
        function: str,
        known: Iterable[Parameter],
        called: Mapping[str, int] | None = None,
        runtime: Sequence[str] = RUNTIME,
    ) -> None:
        self.function, self.called, self.runtime, given = function, called, runtime, tuple(known)
        self.variables = {one.name: one.dtype for one in given if not one.is_memory}  # that are known here
        self.dtypes = dict(self.variables)  # of all, wherever they are known
        self.memory = {one.name: one.dtype for one in given if one.is_memory}

    def check(self, body: Sequence[Statement]) -> None:
        for statement in body:
            for expression in expressions_of(statement):
                self._expression(expression)
            self._statement(statement)

    def _statement(self, s: Statement) -> None:
        if isinstance(s, Assign):
            self._set(s.name, s.value.dtype)
        elif isinstance(s, Store):
            self._place(s.buffer, s.index, s.value.dtype if s.value.dtype != BOOL else "uint8")
        elif isinstance(s, For):
            self._need(
                all(x.dtype == INDEX for x in expressions_of(s)), f"a loop over {s.index} that goes by no {INDEX}"
            )
            changed = {one.name for one in statements_of(s.body) if isinstance(one, Assign)}
            bounds = {s.index} | {name for bound in (s.end, s.step) for name in names_in(bound)}
            self._need(not bounds & changed, f"a loop over {s.index} that changes where it ends")
            self._inner(s.body, s.index)
        elif isinstance(s, If):
            self._need(s.test.dtype == BOOL, f"a test that is {s.test.dtype}", s.test)
            self._inner(s.body)
        else:
            self._call(s)

    def _inner(self, body: Sequence[Statement], *indices: str) -> None:
        """Check what may never run: variables that it alone sets are not known behind it."""
        before = dict(self.variables)
        for index in indices:
            self._set(index, INDEX)
        self.check(body)
        self.variables = before

    def _call(self, s: Do) -> None:
        self._need(self.called is not None, f"a call of {s.function}, which only drivers may call")
        known = self.called or {}
        self._need(s.function in known or s.function in self.runtime, f"a call of {s.function}, which nobody has")
        wanted = known.get(s.function, len(s.arguments))
        self._need(wanted == len(s.arguments), f"a call of {s.function} with {len(s.arguments)} for {wanted} arguments")
        for buffer in buffers_of(s):
            self._need(buffer in self.memory, f"no memory is called {buffer}")
        for argument in s.arguments:
            if isinstance(argument, Callee):
                given = sum(isinstance(other, Array) for other in s.arguments)
                problem = f"a launch of {argument.name} with {given} arrays"
                self._need(known.get(argument.name) == given, problem)
        for name in s.results:
            self._set(name, INDEX)

    def _set(self, name: str, dtype: str) -> None:
        old = self.dtypes.setdefault(name, dtype)
        self._need(old == dtype, f"{name} is {old}, and gets {dtype}")
        self.variables[name] = dtype

    def _place(self, buffer: str, index: Expr, dtype: str) -> None:
        self._need(buffer in self.memory, f"no memory is called {buffer}")
        self._need(self.memory[buffer] == dtype, f"{buffer} holds {self.memory[buffer]}, and meets {dtype}")
        self._need(index.dtype == INDEX, f"a place in {buffer} that is {index.dtype}", index)

    def _expression(self, e: Expr) -> None:
        for part in parts_of(e):
            self._expression(part)
        if isinstance(e, Name):
            self._need(
                self.variables.get(e.name) == e.dtype, f"{e.name} is {self.variables.get(e.name)}, not {e.dtype}"
            )
        elif isinstance(e, Load):
            self._place(e.buffer, e.index, e.dtype)
        else:
            self._need(_is_typed(e), "operands that do not fit", e)

    def _need(self, holds: bool, problem: str, where: Expr | None = None) -> None:
        """Raise KernelError for what does not hold; the text of an expression is made for an error only."""
        if not holds:
            raise KernelError(f"in {self.function}: {problem}" + ("" if where is None else f": {where}"))


def _is_typed(e: Expr) -> bool:
    """Whether operands have the dtypes that an operator wants."""
    dtypes = [part.dtype for part in parts_of(e)]
    if isinstance(e, CompareExpr):
        return e.dtype == BOOL and dtypes[0] == dtypes[1]
    if isinstance(e, Logic):
        return e.operator in ("and", "or") and {e.dtype, *dtypes} == {BOOL}
    if isinstance(e, Choice):
        return dtypes == [BOOL, e.dtype, e.dtype]
    if isinstance(e, ScalarCall) and e.function == "uniform":
        return e.dtype == "float64" and set(dtypes) == {INDEX}
    if isinstance(e, BinaryExpr | Negated | ScalarCall):
        return set(dtypes) == {e.dtype} and (e.dtype != BOOL or isinstance(e, Negated))
    return isinstance(e, CastExpr) or not dtypes
