"""`compile` and `Run`: a net on a device, called with arrays.

Only `device="reference"` exists so far: the interpreter.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from rnnops.compiler.feeds import as_arrays, checked_seed, checked_wrt, merge_feeds
from rnnops.compiler.number_random_ops import first_live_random_op
from rnnops.compiler.plan import ForwardPlan, PlanCache, TrainingPlan, live_net, plan_forward, plan_training
from rnnops.compiler.pullback import Pullback
from rnnops.errors import DeviceError, FeedError, NetError
from rnnops.interpreter import Program, Workspace, execute, owned
from rnnops.net import Net, require_net
from rnnops.schema import RunContext
from rnnops.types import Array, type_of

DEVICES = ("reference",)
Feeds = Mapping[str, Any]


def compile(net: Net, device: str = "reference") -> Run:  # noqa: A001
    """Make a net ready to run; shapes are learnt at the call, plans are cached by shape.

    Args:
        device: `"reference"`, the NumPy interpreter.

    Raises DeviceError for an unknown device, NetError for a net without outputs.
    """
    require_net(net)
    if not isinstance(device, str) or device not in DEVICES:
        raise DeviceError("no such device", net=net.name, wanted=f"one of {', '.join(DEVICES)}", came=repr(device))
    if not net.output_blobs:
        raise NetError("the net has no outputs", net=net.name, hint="Call net.outputs(...).")
    return Run(net.snapshot(), device)


class Run:
    """A compiled net. Calls may come from several threads; all state of a backward pass lives in its pullback."""

    def __init__(self, net: Net, device: str, bound: Feeds | None = None) -> None:
        self.net, self.device = net, device
        self._live = live_net(net)
        self._bound = dict(bound or {})
        self._forward: PlanCache[ForwardPlan] = PlanCache()
        self._training: PlanCache[TrainingPlan] = PlanCache()

    def __call__(
        self, *dicts: Feeds, seed: int | None = None, training: bool = False, **feeds: Any
    ) -> dict[str, Array]:
        """Forward pass.

        Args:
            dicts, feeds: input name -> array.
            seed: of random ops; needed where they are live and `training` is on.
            training: whether Dropout is active.

        Returns: output name -> array. Raises FeedError and TypeRuleError for feeds that do not fit.
        """
        arrays, float_dtype = as_arrays(self.net, merge_feeds(self.net, (self._bound, *dicts), feeds))
        context = self._context(seed, training)
        types = {name: type_of(array) for name, array in arrays.items()}
        key = (float_dtype, *types.items())
        plan = self._forward.get(key, lambda: plan_forward(self._live, types, float_dtype))
        workspace = _filled(arrays)
        execute(plan.program, workspace, context)
        return _outputs(plan.program, workspace, arrays)

    def vjp(
        self, *dicts: Feeds, seed: int | None = None, training: bool = True, wrt: Any = None, **feeds: Any
    ) -> tuple[dict[str, Array], Pullback]:
        """Forward pass that keeps what backward reads, and the pullback that runs backward.

        Args:
            wrt: names of the inputs whose gradients are wanted; all float inputs if left out.

        Feeds are borrowed until the pullback is used or dropped; outputs that backward reads are read-only until then.
        Raises what a call raises, and GradientError where the net cannot be differentiated.
        """
        arrays, float_dtype = as_arrays(self.net, merge_feeds(self.net, (self._bound, *dicts), feeds))
        context, names = self._context(seed, training), checked_wrt(self.net, wrt)
        types = {name: type_of(array) for name, array in arrays.items()}
        key = (float_dtype, names, *types.items())
        plan = self._training.get(key, lambda: plan_training(self._live, types, float_dtype, names))
        workspace, kept = _filled(arrays), Workspace()
        kept.parent = workspace
        execute(plan.program, workspace, context, plan.residuals.kept, kept)
        outputs = _outputs(plan.program, kept, arrays)
        held = {name: kept[name] for name in (*plan.residuals.kept, *plan.residuals.free)}
        return outputs, Pullback(plan, held, outputs, context)

    def bind(self, **params: Any) -> Run:
        """A run with some inputs fed once and for all (copies are taken)."""
        for name in params:
            if name not in self.net.input_names:
                raise FeedError("bind names no input", net=self.net.name, blob=name)
        arrays, _ = as_arrays(self.net, {**self._bound, **params})
        return Run(self.net, self.device, {name: array.copy() for name, array in arrays.items()})

    def _context(self, seed: int | None, training: bool) -> RunContext:
        live = first_live_random_op(self._live) if training else None
        return RunContext(checked_seed(self.net, seed, live), bool(training))


def _filled(arrays: Mapping[str, Array]) -> Workspace:
    workspace = Workspace()
    workspace.local.update(arrays)
    return workspace


def _outputs(program: Program, workspace: Workspace, feeds: Mapping[str, Array]) -> dict[str, Array]:
    """Outputs as arrays of the caller's own: copies where they would share memory with feeds, constants or each other.

    `_all` and `_last` of a state stay views of one tensor where both are outputs; `_last` alone does not keep it alive.
    """
    arrays = {name: workspace[blob] for name, blob in program.net.output_blobs.items()}
    whole = {id(array if array.base is None else array.base) for array in arrays.values() if owned(array) is array}
    outputs: dict[str, Array] = {}
    for name, array in arrays.items():
        shared = not array.flags.writeable or any(np.may_share_memory(array, feed) for feed in feeds.values())
        again = any(array is other for other in list(arrays.values())[: len(outputs)])
        alone = array.base is not None and id(array.base) not in whole
        outputs[name] = array.copy() if shared or again or alone else array.view()
    return outputs
