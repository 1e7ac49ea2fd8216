"""Derivatives of runs: pullbacks, and derivatives in a direction.

A `Pullback` holds the values that a forward pass kept, and runs the backward pass on them once. `run.jvp` and `run.hvp`
(`ForwardMode`) are calls of tangent nets, which are made once for feeds of certain types.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Generator, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn, TypeGuard

import numpy as np

from rnnops.compiler.api.feeds import (
    Feeds,
    as_array,
    check_floats,
    check_gradients,
    checked_grad,
    checked_wrt,
    float_dtype_of,
    given_once,
    grads_by_output,
    memory_named,
    of_run,
)
from rnnops.compiler.memory.memory import MemoryInUse, Pool, on_host
from rnnops.compiler.run.compiled_scan import Options
from rnnops.compiler.run.forward import ScanResiduals
from rnnops.compiler.run.pipeline import PlanCache, TrainingPlan
from rnnops.errors import Attributes, FeedError, GradientError
from rnnops.interpreter import Program, Workspace, execute
from rnnops.net.net import Net
from rnnops.net.schema import RunContext
from rnnops.ops.base import numbers_of
from rnnops.recurrent.stepping import StepWorkspaces
from rnnops.types import Array, Type, type_of
from rnnops.util import LazyModule

if TYPE_CHECKING:
    from rnnops.compiler.api import derivative_nets as derivative_nets
    from rnnops.compiler.api.bound_run import TrainingLists
    from rnnops.compiler.run import layer_plan as layer_plan
    from rnnops.compiler.run.layer_plan import LayerGradients
    from rnnops.recurrent import parts as in_parts, training_form as training_form
else:  # a first call, and a backward pass in one piece, do without
    derivative_nets = LazyModule("rnnops.compiler.api.derivative_nets")
    layer_plan = LazyModule("rnnops.compiler.run.layer_plan")
    in_parts, training_form = LazyModule("rnnops.recurrent.parts"), LazyModule("rnnops.recurrent.training_form")


class _LentOutputs:
    """Makes outputs read-only until `end` is called or this object is dropped."""

    def __init__(self, arrays: Sequence[Array]) -> None:
        self._arrays = [weakref.ref(array) for array in arrays]
        for array in arrays:
            array.flags.writeable = False

    def end(self) -> None:
        arrays, self._arrays = self._arrays, []
        for reference in arrays:
            array = reference()
            if array is not None:
                array.flags.writeable = True

    __del__ = end


class Pullback(Attributes):
    """Maps gradients of outputs to gradients of inputs, once; made by `run.vjp`.

    It holds feeds and kept blobs until it is used or dropped, and nothing else holds them.

    Args:
        plan: the plan of the run.
        held: the values that backward reads, by blob.
        outputs: outputs of the forward pass. Those that backward reads are read-only until the pullback is used or
            dropped.
        context: seed and mode of the forward pass.
        fed: inputs whose gradients are wanted -> the arrays that were fed.

    Raises:
        GradientError: in calls, for gradients that do not fit, and for a second use.

    Example:
        >>> net = ro.Net("n")
        >>> net.outputs(y=ro.exp(net.input("x")))
        >>> out, pullback = ro.compile(net).vjp({"x": np.array([0.0, 1.0])})
        >>> pullback({"y": np.array([1.0, 2.0])})
        {'x': array([1.    , 5.4366])}
    """

    steps: Any = None  # the `RepeatedCalls` that answers training steps of the run
    _lent: _LentOutputs | None = None

    def __init__(
        self,
        plan: TrainingPlan,
        held: dict[str, Array],
        outputs: Mapping[str, Array],
        context: RunContext,
        fed: Mapping[str, Array],
    ) -> None:
        self._plan, self._context = plan, context
        self._held: dict[str, Array] | None = held
        self._fed: Mapping[str, Array] = fed
        self._lock = threading.Lock()
        read = MemoryInUse(part for value in held.values() for part in _parts(value))
        self._lent = _LentOutputs([array for array in outputs.values() if read.holds(array)])

    @memory_named(lambda pullback: str(pullback._plan.program.net.name))
    def __call__(self, grads: Mapping[str, Any] | Any) -> dict[str, Array]:
        """Run the backward pass.

        Args:
            grads: output name -> gradient of the output's shape and dtype; zero for outputs that are left out. If there
                is one float output, its gradient may be given without a name. An output without axes takes a Python
                number: `{"loss": 1.0}`.

        Returns:
            Input name -> gradient, of the feed's shape and dtype.

        Raises:
            GradientError: an output is unknown or takes no gradient, a gradient has another shape or dtype, or this is
                a second use.
        """
        self._plan.compiled.wake()
        workspace, _ = self._take(self._checked(grads))
        try:
            with self._plan.compiled.running_backward() as kernels:
                found = self.kernels_of(self._plan.backward, kernels)
                execute(self._plan.backward, workspace, self._context, (), None, found, self._plan.residuals.kept)
        finally:
            self._release()
        return self._results(workspace)

    def layers(
        self, grads: Mapping[str, Any] | Any, output: Sequence[str] = (), freeze: str | None = None
    ) -> Generator[LayerGradients, None, None]:
        """Run the backward pass layer by layer, the last one first; nothing runs until it is iterated.

        Args:
            grads: as in a call.
            output: names of layers; the gradients of their inputs are wanted.
            freeze: name of the last layer to run; nothing is computed for layers below.

        Yields:
            For each layer `(param_names, param_values, param_grads, layer_grads)`. The first three are lists for inputs
            in `wrt` that no layer below uses. Values are the arrays that were fed; you may overwrite them from then on.
            `layer_grads` is blob -> gradient for the blobs that a layer in `output` reads; for other layers it is
            empty. All arrays of gradients are your own.

        Raises:
            GradientError: as for a call, and for a name that is not a layer.

        Example:
            >>> net = ro.Net("n")
            >>> x, v, w = net.inputs("x", "v", "w")
            >>> with net.layer("below"):
            ...     h = ro.tanh(x * v)
            >>> with net.layer("above"):
            ...     net.outputs(y=h * w)
            >>> feeds = {"x": np.ones(1), "v": np.zeros(1), "w": np.ones(1)}
            >>> out, pullback = ro.compile(net).vjp(feeds, wrt=["v", "w"])
            >>> for names, values, grads, _ in pullback.layers(np.ones(1)):
            ...     print(names, grads)
            ['w'] [array([0.])]
            ['v'] [array([1.])]
        """
        given = self._checked(grads)
        self._asked_for_parts()
        steps = layer_plan.steps_of(self._plan, output, freeze)
        workspace, fed = self._take(given)
        iterator = layer_plan.run_steps(steps, workspace, self._context, fed, self)
        weakref.finalize(iterator, self._release)  # in case it is dropped before it was started
        return iterator

    def release(self) -> None:
        """Let the caller write to outputs again that this pullback made read-only."""
        self._release()

    def _release(self) -> None:
        if self._lent is not None:
            self._lent.end()

    def __reduce__(self) -> NoReturn:
        hint = "Pickle or copy the run and its feeds: run.vjp(feeds) gives another pullback."
        raise self._error("a pullback is not pickled or copied: it is used once, and lends memory", hint=hint)

    def _take(self, given: Mapping[str, Array]) -> tuple[Workspace, Mapping[str, Array]]:
        """The values that a backward pass reads, and the feeds. The pullback drops both."""
        with self._lock:
            held, self._held = self._held, None
            fed, self._fed = self._fed, {}
        if held is None:
            raise self._used()
        workspace = Workspace()
        workspace.local.update(held)
        for output, name in self._plan.gradient.output_grads.items():
            workspace[name] = given[output] if output in given else self._zeros(name)
        return workspace, fed

    def step_blobs(self, name: str) -> Array:
        """All steps of a blob of a cell.

        Args:
            name: name of a kept blob or of a state; `<result name>:<blob>` if several recurrences have the name.

        Returns:
            `[T, ...]`, a copy.

        Raises:
            GradientError: the blob is not kept (the error lists all that are), or the pullback was used.
        """
        self._asked_for_parts()
        arrays = self._step_arrays()
        found = [stack for key, stack in arrays.items() if isinstance(name, str) and name in (key[1], ":".join(key))]
        if len(found) != 1:
            problem = "several recurrences keep a blob of this name" if found else "this step blob is not kept"
            wanted = f"one of {', '.join(map(':'.join, arrays)) or 'none'}"
            raise self._error(problem, blob=str(name), wanted=wanted)
        return self._own(found[0]())

    def _asked_for_parts(self) -> None:
        """Note that a pullback is asked for more than gradients: from now on steps of the run are not recorded. Raises
        GradientError for a pullback that was used."""
        if self.steps is not None:
            self.steps.by_parts = True
        if self._held is None:
            raise self._used()

    def held_arrays(self) -> dict[str, Array]:
        """Every array that the backward pass will read, by blob; empty after the pullback was used.

        Returns:
            Name of a blob of the outer net, or `<result name>:<blob>` for a blob of a recurrence -> array.
        """
        arrays: dict[str, Array] = {}
        for name, value in (self._held or {}).items():
            parts = value.named_arrays() if _is_left(value) else {"": value}
            arrays.update((f"{name}:{part}".rstrip(":"), array) for part, array in parts.items())
        return arrays

    def _step_arrays(self) -> dict[tuple[str, str], Callable[[], Array]]:
        """(first result, blob) -> a function that stacks its steps."""
        arrays: dict[tuple[str, str], Callable[[], Array]] = {}
        for call in self._plan.program.calls:
            held = (self._held or {}).get(call.op.outputs[-1]) if call.op.outputs else None
            if _is_left(held):
                rounded = training_form.rounded_blobs(call.op.attributes["cell"])
                for blob, stack in held.stacks(call.op).items():
                    numbers = partial(_numbers_of, stack) if blob in rounded else stack
                    arrays[call.op.key, rounded.get(blob, blob)] = numbers
        return arrays

    def _checked(self, grads: Mapping[str, Any] | Any) -> dict[str, Array]:
        names = self._plan.gradient.output_grads
        given = grads_by_output(self._plan.program.net.name, grads, names)
        return {output: self._checked_array(output, value) for output, value in given.items()}

    def _checked_array(self, output: str, value: Any) -> Array:
        names = self._plan.gradient.output_grads
        if output not in names:
            raise self._error("no float output of this name", blob=str(output), wanted=f"one of {', '.join(names)}")
        if output in self._plan.gradient.refused:
            raise self._plan.gradient.refused[output].again()
        wanted = self._plan.backward.types[names[output]]
        return checked_grad(self._plan.program.net.name, output, value, wanted, self._array)

    def _array(self, output: str, value: Any) -> Array:
        return as_array(self._plan.program.net.name, output, value, "a gradient")

    def kernels_of(self, program: Program, kernels: Mapping[str, Any]) -> Mapping[str, Any]:
        """Key -> runner for ops of a backward pass.

        Args:
            program: the ops.
            kernels: the runners of compiled ops.
        """
        return kernels

    def as_read(self, fed: Any) -> Array:
        """A fed array in the form in which backward passes hold it.

        Args:
            fed: the array of the caller.
        """
        found: Array = fed
        return found

    def _own(self, stack: Any) -> Array:
        """An array for the caller."""
        return np.asarray(stack)

    def _zeros(self, name: str) -> Array:
        kind: Type = self._plan.backward.types[name]
        return np.zeros(kind.shape, kind.dtype)

    def _results(self, workspace: Workspace) -> dict[str, Array]:
        results: dict[str, Array] = {}
        taken = MemoryInUse(workspace_inputs(workspace, self._plan))
        for name, blob in self._plan.backward.net.output_blobs.items():
            array = workspace[blob]
            results[name] = array.copy() if taken.holds(array) or not array.flags.writeable else array
            taken.add(results[name])
        return results

    def _error(self, problem: str, blob: str | None = None, **details: Any) -> GradientError:
        return GradientError(problem, net=self._plan.program.net.name, blob=blob, **details)

    def _used(self) -> GradientError:
        return self._error(
            "this pullback was used already", hint="Call run.vjp again: a pullback gives its memory back at its use."
        )


class RepeatedPullback(Pullback):
    """The pullback of a recorded training step."""

    _slow: Pullback | None = None

    def __init__(self, lists: TrainingLists, every: Sequence[Array], feeds: Sequence[Any]) -> None:
        self._plan, self._lists = lists.plan, lists
        self._given = [(every, feeds)]  # empty after its use; only one thread can take the item out

    @memory_named(lambda pullback: str(pullback._plan.program.net.name))
    def __call__(self, grads: Mapping[str, Any] | Any) -> dict[str, Array]:
        lists, given = self._lists, self._given
        dys = given_once(lists.grads, (grads,), {}) if given else None
        if dys is not None:
            taken = self._taken_once()
            found = lists.pull(taken[0], dys)
            if found is not None:
                return found
            given.append(taken)
        checked = self._checked(grads)
        if self._slow is not None:
            return self._slow(checked)
        blobs = self._plan.gradient.output_grads
        dys = [np.ascontiguousarray(checked[n]) if n in checked else self._zeros(blobs[n]) for n in blobs]
        found = lists.pull(self._taken_once()[0], dys, check=False)
        assert found is not None
        return found

    def _taken_once(self) -> tuple[Sequence[Array], Sequence[Any]]:
        try:
            return self._given.pop()
        except IndexError:
            raise self._used() from None

    def layers(self, *arguments: Any, **options: Any) -> Generator[LayerGradients, None, None]:
        return self._by_plan().layers(*arguments, **options)

    def step_blobs(self, name: str) -> Array:
        return self._by_plan().step_blobs(name)

    def held_arrays(self) -> dict[str, Array]:
        return self._by_plan().held_arrays() if self._given or self._slow is not None else {}

    def _by_plan(self) -> Pullback:
        """A pullback of the same step that runs op by op, and has all blobs by name."""
        if self._slow is None:
            slow = self._lists.by_plan(self._taken_once()[1])
            slow.steps.by_parts, self._slow = True, slow
        return self._slow


def workspace_inputs(workspace: Workspace, plan: TrainingPlan) -> list[Array]:
    """The arrays that a backward pass was given and that are still in the workspace."""
    given = (workspace.local.get(name) for name in plan.backward.net.input_names)
    return [array for array in given if array is not None and hasattr(array, "flags")]


def _numbers_of(stack: Callable[[], Array]) -> Array:
    """The numbers of blobs that were stored as bfloat16."""
    return numbers_of(on_host(stack()))


def _is_left(value: object) -> TypeGuard[StepWorkspaces | ScanResiduals | in_parts.PartedResiduals]:
    """True for an object that a recurrence leaves for its backward pass."""
    return isinstance(value, StepWorkspaces | ScanResiduals | in_parts.PartedResiduals)


def _parts(value: Any) -> Iterable[Array]:
    """The arrays that a kept blob consists of."""
    return value.arrays() if _is_left(value) else [value]


Arrays = dict[str, Array]  # by name


@dataclass(frozen=True)
class Derived:
    """The run of a net that was derived from another net.

    Args:
        run: the run.
        t, d: prefixes of the names of tangents and of gradients.
    """

    run: Any
    t: str
    d: str = ""

    def grad_inputs(self) -> dict[str, Any]:
        """Output of the original net -> the input of this net that takes its gradient."""
        specs = self.run.net.input_specs
        return {spec.name.removeprefix(self.d): spec for spec in specs if spec.name.startswith(self.d)}


class ForwardMode(Attributes):
    """Derivatives in a direction, as methods of runs."""

    net: Net
    device: str
    _options: Options
    _bound: Arrays
    _random_ops: dict[bool, str | None]
    _derived: PlanCache[Derived]
    _read: Callable[[tuple[Feeds, ...], Feeds], tuple[Arrays, Hashable]]
    _fed: Callable[..., Any]
    _context: Callable[[int | None, bool], RunContext]

    @memory_named(of_run)
    def jvp(
        self, feeds: Feeds, tangents: Feeds, *, seed: int | None = None, training: bool = True
    ) -> tuple[Arrays, Arrays]:
        """Forward pass with derivatives of outputs in a direction, by the net of `ro.tangent_net`.

        Nothing is kept for a backward pass, so `checkpoints=` and `memory_budget=` change nothing. The net is made at
        the first call with feeds of these shapes.

        Args:
            feeds: input name -> array, as for a call; without inputs that are bound.
            tangents: float input name -> array of the feed's shape and dtype. All other inputs have a zero tangent.
            seed: as for a call.
            training: whether Dropout is active.

        Returns:
            Output name -> array, and float output name -> its derivative in the direction of `tangents`.

        Raises:
            FeedError: as for a call, and for tangents that are not for a float input, or have another shape or dtype.
            TypeRuleError: as for a call.
            GradientError: an op has no gradient.

        Example:
            >>> net = ro.Net("n")
            >>> x = net.input("x")
            >>> net.outputs(y=x * x)
            >>> out, moved = ro.compile(net).jvp({"x": np.array([1.0, 3.0])}, {"x": np.array([1.0, 0.5])})
            >>> moved["y"]
            array([2., 3.])
        """
        arrays, kinds = self._read((feeds,), {})
        moving = self._directions("tangents", tangents, arrays)
        made = self._derived.get((kinds, (*moving,)), lambda: self._with_tangents((*moving,), arrays))
        found = self._answered(made, arrays, moving, {}, self._context(seed, training))
        moved = {name: found[made.t + name] for name in self.net.output_blobs if made.t + name in found}
        return {name: found[name] for name in self.net.output_blobs}, moved

    @memory_named(of_run)
    def hvp(
        self,
        feeds: Feeds,
        vectors: Feeds,
        grads: Any = 1.0,
        wrt: Any = None,
        *,
        seed: int | None = None,
        training: bool = True,
    ) -> tuple[Arrays, Arrays, Arrays]:
        """Outputs, gradients, and products of the Hessian and a vector: the derivative of gradients in a direction.

        Gradients are those of `vjp`. One forward pass of the tangent net of the gradient net gives all three. This net
        is made at the first call with feeds of these shapes. `checkpoints=` and `memory_budget=` have no effect on it.

        Args:
            feeds: input name -> array, as for a call; without inputs that are bound.
            vectors: float input name -> array of the feed's shape and dtype. All other inputs have a zero vector.
            grads: gradients of outputs, as a pullback takes them. 1.0 is for a net whose float output is one number.
            wrt: names of the inputs whose gradients and products are wanted; the inputs of `vectors` if left out.
            seed: as for a call.
            training: whether Dropout is active.

        Returns:
            Output name -> array, input name -> gradient, and input name -> product.

        Raises:
            FeedError: as for `jvp`, and for names in `wrt` that are not float inputs.
            TypeRuleError: as for a call.
            GradientError: the net cannot be differentiated, or `grads` do not fit the outputs.

        Example:
            >>> net = ro.Net("n")
            >>> x = net.input("x")
            >>> net.outputs(loss=ro.reduce_sum(x * x * x, keepdims=0))
            >>> out, grads, products = ro.compile(net).hvp({"x": np.array([1.0, 2.0])}, {"x": np.ones(2)})
            >>> grads["x"], products["x"]
            (array([ 3., 12.]), array([ 6., 12.]))
        """
        arrays, kinds = self._read((feeds,), {})
        moving = self._directions("vectors", vectors, arrays)
        names = (*moving,) if wrt is None else checked_wrt(self.net, wrt)
        given = (*grads,) if isinstance(grads, Mapping) else None
        key = kinds, (*moving,), names, given
        made = self._derived.get(key, lambda: self._with_products((*moving,), names, given, arrays))
        weights = self._checked_grads(made, grads, self._float_dtype_of(arrays))
        found = self._answered(made, arrays, moving, weights, self._context(seed, training))
        outputs = {name: found[name] for name in self.net.output_blobs}
        gradients, products = ({name: found[p + name] for name in names} for p in (made.d, made.t + made.d))
        return outputs, gradients, products

    def _directions(self, what: str, given: Any, arrays: Arrays) -> Arrays:
        """Checked tangents of inputs, in the net's order."""
        if not isinstance(given, Mapping):
            wanted, came = "a dict of input name -> array", type(given).__name__
            raise FeedError(f"{what} are not a dict", net=self.net.name, wanted=wanted, came=came)
        found: Arrays = {}
        for name in checked_wrt(self.net, (*given,), what):
            found[name] = self._fed(self.net.name, name, given[name], "a tangent")
            wanted_type, came_type = type_of(arrays[name]), type_of(found[name])
            if came_type != wanted_type:
                raise FeedError(
                    "a tangent of a wrong type",
                    net=self.net.name,
                    blob=name,
                    wanted=str(wanted_type),
                    came=str(came_type),
                    hint="Give it the shape and the dtype of the feed.",
                )
        return found

    def _checked_grads(self, made: Derived, grads: Any, float_dtype: str) -> Arrays:
        """Input of the derived net -> the gradient of an output that it takes."""
        specs = made.grad_inputs()

        def read(output: str, value: Any) -> Array:
            array: Array = self._fed(self.net.name, output, value, "a gradient")
            return array

        return {
            made.d + name: checked_grad(self.net.name, name, value, Type(float_dtype, specs[name].shape), read)
            for name, value in grads_by_output(self.net.name, grads, specs).items()
        }

    def _answered(
        self, made: Derived, arrays: Arrays, moving: Arrays, weights: Arrays, context: RunContext
    ) -> Mapping[str, Array]:
        """Outputs of a derived net."""
        tangents = {made.t + name: array for name, array in moving.items()}
        is_random = self._random_ops[context.training] is not None  # calls without seed and training may be recorded
        how: dict[str, Any] = {"seed": context.seed, "training": context.training} if is_random else {}
        free = {name: array for name, array in arrays.items() if name not in self._bound}
        found: Mapping[str, Array] = made.run({**free, **tangents, **weights}, **how)
        return found

    def _with_tangents(self, moving: tuple[str, ...], arrays: Arrays) -> Derived:
        self._check_derivatives(self._float_dtype_of(arrays))
        net = derivative_nets.tangent_of(self.net, moving, {name: array.shape for name, array in arrays.items()})
        return Derived(self._run_of(net), derivative_nets.free_prefix(self.net, "t"))

    def _with_products(
        self, moving: tuple[str, ...], names: tuple[str, ...], given: tuple[str, ...] | None, arrays: Arrays
    ) -> Derived:
        """The run of the tangent net of the gradient net, with only the outputs that are needed."""
        self._check_derivatives(self._float_dtype_of(arrays))
        shapes: dict[str, Any] = {name: array.shape for name, array in arrays.items()}
        first = derivative_nets.gradient_of(self.net, names, given, shapes)
        t, d = derivative_nets.free_prefix(first, "t"), derivative_nets.free_prefix(self.net, "d")
        both = derivative_nets.tangent_of(first, moving, shapes)
        results = [*self.net.output_blobs, *(p + name for p in (d, t + d) for name in names)]
        net = both.with_ops(both.ops, {name: both.output_blobs[name] for name in results}).snapshot()
        return Derived(self._run_of(net), t, d)

    def _check_derivatives(self, float_dtype: str) -> None:
        check_gradients(self.net, self._options)
        check_floats(self.net, self._options.precision, float_dtype)

    def _float_dtype_of(self, arrays: Arrays) -> str:
        return float_dtype_of(self.net, arrays) or "float32"

    def _run_of(self, net: Net) -> Any:
        """A run like this one of another net, with the same bound inputs."""
        made: Any = type(self)
        return made(net, self.device, replace(self._options, pool=Pool()), self._bound)
