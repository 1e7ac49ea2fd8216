"""Records the forward plan of a run with bound inputs, for feeds of certain types."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from rnnops.compiler.execute.compiled_scan import Options
from rnnops.compiler.execute.job_list import Recorded
from rnnops.compiler.execute.recorded_array import NotRecordedError, RecordedArray, held, made_array
from rnnops.compiler.execute.recorder import Recorder
from rnnops.compiler.pipeline import ForwardPlan, forward_structure
from rnnops.interpreter import Workspace, execute
from rnnops.net import Net
from rnnops.schema import RunContext
from rnnops.types import Array, Type, type_of


def record(
    net: Net,
    bound: Mapping[str, Array],
    feeds: Sequence[Type],
    float_dtype: str,
    options: Options,
    recorder: Recorder,
) -> Recorded:
    """What a call does with feeds of certain types, in the order of the inputs that are not bound.

    Args:
        net: live.
        recorder: a new one.

    Raises NotRecordedError where Python has a part in it.
    """
    names = [name for name in net.input_names if name not in bound]
    types = {**{name: type_of(array) for name, array in bound.items()}, **dict(zip(names, feeds, strict=True))}
    plan = forward_structure(net, types, float_dtype, replace(options, device=recorder, recycle=False))
    stepped = [key for key, runner in plan.compiled.forward.items() if runner.compiled is None]
    if stepped:
        raise NotRecordedError(f"recurrence '{stepped[0]}' is stepped from Python")
    _run(plan, recorder, bound, names)  # whose sizes say that nothing is packed
    unpacked = [sizes.copy() for sizes in recorder.sizes]
    recorder.clear()
    outputs = {name: _own(array) for name, array in _run(plan, recorder, bound, names).items()}
    for number, array in enumerate(outputs.values()):
        made_array(array.shape, array.dtype, recorder.note, len(names) + number).assign(array)
    sizes = tuple((now, first, now.copy()) for now, first in zip(recorder.sizes, unpacked, strict=True))
    kinds = tuple((name, array.dtype, array.shape) for name, array in outputs.items())
    return Recorded(tuple(recorder.jobs), kinds, sizes, recorder.status, recorder.barrier, len(names))


def _own(output: RecordedArray) -> RecordedArray:
    """An output, copied where it is a view of what is given: where that lies, another output may be put before it."""
    return output.copy() if output.memory.given >= 0 else output


def _run(
    plan: ForwardPlan, recorder: Recorder, bound: Mapping[str, Array], names: Sequence[str]
) -> dict[str, RecordedArray]:
    """Run a plan with arrays that are not there yet; its outputs."""
    program, workspace = plan.program, Workspace()
    kinds = [program.types[name] for name in names]
    given: list[Any] = [made_array(kind.shape, kind.dtype, recorder.note, n) for n, kind in enumerate(kinds)]
    workspace.local.update(zip(names, given, strict=True))
    fixed: dict[str, Any] = {name: held(array, recorder.note) for name, array in bound.items()}
    workspace.local.update(fixed)
    kernels = {**recorder.references(program), **plan.compiled.forward}
    execute(program, workspace, RunContext(), kernels=kernels)
    outputs: dict[str, Any] = {name: workspace[blob] for name, blob in program.net.output_blobs.items()}
    return outputs
