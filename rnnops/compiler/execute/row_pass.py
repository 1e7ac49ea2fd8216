"""A `FusedOps` op as a compiled scan of one step, whose rows are those of the group; nets of such ops."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from rnnops.compiler.buffers.demand import Demand
from rnnops.compiler.buffers.memory import OUTPUT, Buffer, Memory, on_host
from rnnops.compiler.execute.compiled_scan import CompiledScan, Options, compile_scan
from rnnops.compiler.execute.once import Once
from rnnops.compiler.execute.totals import Totals, totals_of
from rnnops.compiler.ir.lowered import UnsupportedError
from rnnops.compiler.ir.scan import Scan, Slot, Tensor
from rnnops.compiler.ir.tensor_name import Role, TensorName
from rnnops.compiler.rewrite.fuse_ops import body_program, fuse_ops
from rnnops.compiler.rewrite.fusion_groups import FusionGroup, group_of
from rnnops.errors import TypeRuleError
from rnnops.interpreter import Program
from rnnops.lazy import cached_property
from rnnops.schema import Call, RunContext, schema_of
from rnnops.types import Array


@dataclass
class RowPass:
    """Runs a FusedOps op."""

    call: Call
    program: Program
    compiled: CompiledScan
    totals: Totals

    def __call__(self, arrays: Sequence[Array], context: RunContext, make: Memory | None = None) -> tuple[Array, ...]:
        target = self.compiled.options.target
        make = make or target.memory
        given = dict(zip(self.program.net.input_names, arrays, strict=True))
        references = {name: given[name] for name in self.compiled.scan.references}
        made = {name: make(buffer) for name, buffer in self.tensors.items()}
        read = {slot.tensor: given[name] for name, slot in self.compiled.scan.reads.items()}
        try:
            sums = self.compiled.run({**read, **made}, references, context, make=make)
        except TypeRuleError:  # the reference says at which op, and what came
            schema_of(self.call.op.type).reference(self.call, *map(on_host, arrays), context=context)
            raise
        totals = self.totals.results(sums, references, make, target)
        results = {name.blob: array for name, array in made.items()}
        results.update((name, total.reshape(self.program.types[name].shape)) for name, total in totals.items())
        return tuple(results[name] for name in self.program.net.output_blobs)

    @cached_property
    def tensors(self) -> dict[TensorName, Buffer]:
        """Memory for results that have rows."""
        tensors = self.compiled.scan.tensors
        names = [slot.tensor for _, slot in self.compiled.scan.writes]
        return {name: Buffer(name.blob, OUTPUT, tensors[name].dtype, tensors[name].shape) for name in names}

    def demand(self) -> Demand:
        """The memory that a run takes."""
        totals = self.totals.made()
        sums = {**self.compiled.accumulators, **totals}
        results = tuple(self._lies_in(name, sums) for name in self.program.net.output_blobs)
        return Demand(
            made=tuple(self.tensors.values()),
            results=results,
            sums=(*self.compiled.accumulators.values(), *totals.values()),
            lent=tuple(self.compiled.lent.values()),
            lasting=tuple(self.compiled.lasting.values()),
            interpreted=tuple(self.totals.interpreted.values()),
        )

    def beside(self) -> dict[str, Once]:
        """Nets that run once, by when."""
        return self.totals.beside()

    def _lies_in(self, name: str, sums: dict[str, Buffer]) -> tuple[Buffer, ...]:
        found = self.tensors.get(Role.RESULT.of(name)) or sums.get(self.compiled.plan.sums.get(name, ""))
        return () if found is None else (found,)


def compile_fused(call: Call, program: Program, rows: FusionGroup, options: Options) -> RowPass:
    """Compile a FusedOps op. Raises UnsupportedError where an op has no compiled form.

    Args:
        rows: the ops of its body as a group.
    """
    names, results = program.net.input_names, program.net.output_blobs.values()
    reads = {name: Slot(Role.INPUT.of(name)) for name in names if name in rows.axes}
    writes = tuple((name, Slot(Role.RESULT.of(name))) for name in results if name not in rows.sums)
    kinds = {slot.tensor: program.types[name] for name, slot in (*reads.items(), *writes)}
    scan = Scan(
        program,
        steps=1,
        batch=rows.rows,
        reverse=False,
        reads=reads,
        references=tuple(name for name in names if name not in reads),
        timestep=None,
        writes=writes,
        additions=(),
        sums={name: name for name in results if name in rows.sums},
        tensors={name: Tensor(kind.dtype, kind.shape, 1) for name, kind in kinds.items()},
        batch_axes={name: rows.axes[name] for name in reads},
    )
    fixed = frozenset(name for name in names if name in options.fixed)
    compiled = compile_scan(scan, call.float_dtype, replace(options, tile=1), fixed)
    totals = totals_of(compiled.plan, program, lambda epilogue: compile_once(epilogue, options))
    return RowPass(call, program, compiled, totals)


def compile_groups(program: Program, options: Options, interpreted: dict[str, str]) -> dict[str, RowPass]:
    """What runs the FusedOps of a net; the reason goes into `interpreted` where the interpreter has to."""
    kernels: dict[str, RowPass] = {}
    for call in program.calls:
        if call.op.type == "FusedOps":
            body = body_program(call)
            try:
                kernels[call.op.key] = compile_fused(call, body, group_of(body), options)
            except UnsupportedError as reason:
                interpreted[call.op.label] = str(reason)
    return kernels


def compile_once(program: Program, options: Options) -> Once:
    """A net that runs once beside a loop over steps, compiled where all ops are to be."""
    if not options.all_ops:
        return Once(program)
    fused = fuse_ops(program, (), all_ops=True)
    return Once(fused, compile_groups(fused, options, {}))
