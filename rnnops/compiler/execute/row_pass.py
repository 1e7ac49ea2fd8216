"""Groups of fused ops as scans of one step, and totals of sums over rows and steps.

What sums over steps become: rows are added up, then what is linear in sums is computed, once.

A `FusedOps` op as a compiled scan of one step, whose rows are those of the group; nets of such ops.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from rnnops.compiler.buffers.memory import GRADIENT, OUTPUT, SUMS, Buffer, Demand, Memory, on_host
from rnnops.compiler.execute.compiled_scan import ON_SUMS, CompiledScan, Once, Options, compile_scan
from rnnops.compiler.ir.scan import Role, Scan, Slot, Tensor, TensorName, UnsupportedError
from rnnops.compiler.rewrite.fuse_ops import body_program, fuse_ops
from rnnops.compiler.rewrite.fusion_groups import FusionGroup, group_of
from rnnops.compiler.schedule.step_plan import StepPlan
from rnnops.compiler.targets.target import Target
from rnnops.errors import TypeRuleError
from rnnops.interpreter import Program, prepare
from rnnops.op import Input
from rnnops.schema import Call, RunContext, schema_of
from rnnops.types import Array, Shape
from rnnops.util import cached_property


@dataclass
class Totals:
    """Turns sums over steps into results.

    Args:
        epilogue: the ops that run on sums, None where there are none.
    """

    plan: StepPlan
    float_dtype: str
    epilogue: Once | None

    def results(
        self, sums: dict[str, Array], references: Mapping[str, Array], make: Memory, target: Target
    ) -> dict[str, Array]:
        """Totals by result.

        Args:
            sums: over steps, by owner.
            references: what is the same at every step.
        """
        added = dict(sums)
        for owner, buffer in self.over_rows.items():
            added[owner] = target.total(sums[owner], make(buffer))
        if self.epilogue is not None:
            workspace = self.epilogue({**references, **added}, target)
            added.update((name, workspace[name]) for name in self.epilogue.program.net.output_blobs)
        return {result: added[blob] for result, blob in self.plan.sums.items()}

    @cached_property
    def over_rows(self) -> dict[str, Buffer]:
        """Sums over rows, by owner of what is summed over steps row by row."""
        plan = self.plan
        summed = {o: plan.types[o] for o, by_row in plan.accumulators.items() if by_row}
        return {o: self._buffer(o, kind.dtype, kind.shape[1:]) for o, kind in summed.items()}

    @cached_property
    def interpreted(self) -> dict[str, Buffer]:
        """What the interpreter makes of sums, by owner."""
        if self.epilogue is None:
            return {}
        types = self.epilogue.program.types
        kinds = {name: types[name] for name in self.epilogue.program.net.output_blobs}
        return {name: self._buffer(name, kind.dtype, kind.shape) for name, kind in kinds.items()}

    def made(self) -> dict[str, Buffer]:
        """All that is allocated here, by owner."""
        return {**self.over_rows, **self.interpreted}

    def beside(self) -> dict[str, Once]:
        """What runs once, by when."""
        return {ON_SUMS: self.epilogue} if self.epilogue else {}

    def _buffer(self, owner: str, dtype: str, shape: Shape) -> Buffer:
        results = {blob: f"gradient of {result}" for result, blob in self.plan.sums.items()}
        kind = GRADIENT if owner in results else SUMS
        return Buffer(results.get(owner, owner), kind, dtype, shape)


def totals_of(plan: StepPlan, step: Program, once: Callable[[Program], Once]) -> Totals:
    """The totals of a step, with the ops on sums as a net of their own.

    Args:
        once: makes such a net ready to run.
    """
    if not plan.epilogue:
        return Totals(plan, step.float_dtype, None)
    made = {name for call in plan.epilogue for name in call.op.outputs}
    read = list(dict.fromkeys(name for call in plan.epilogue for name in call.op.inputs if name and name not in made))
    inputs = [Input(name, step.net.dtype_of(name), step.types[name].shape) for name in read]
    outputs = {blob: blob for blob in plan.sums.values() if blob in made}
    net = step.net.with_ops([call.op for call in plan.epilogue], outputs=outputs, inputs=inputs)
    epilogue = prepare(net, {name: step.types[name] for name in read}, step.float_dtype)
    return Totals(plan, step.float_dtype, once(epilogue))


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
