"""`run.jvp` and `run.hvp`: calls of tangent nets, which are made once for feeds of certain types."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from rnnops.arguments import Attributes, named_arguments
from rnnops.compiler.api.feeds import (
    Feeds,
    check_floats,
    check_gradients,
    checked_grad,
    checked_wrt,
    float_dtype_of,
    grads_by_output,
    memory_named,
    of_run,
)
from rnnops.compiler.memory.memory import Pool
from rnnops.compiler.run.compiled_scan import Options
from rnnops.compiler.run.pipeline import PlanCache
from rnnops.errors import FeedError
from rnnops.net.net import Net
from rnnops.net.schema import RunContext
from rnnops.types import Array, Type, type_of
from rnnops.util import LazyModule

if TYPE_CHECKING:
    from rnnops.compiler.api import gradient_net as gradient_nets, tangent_net as tangent_nets
else:  # a first call does without
    gradient_nets = LazyModule("rnnops.compiler.api.gradient_net")
    tangent_nets = LazyModule("rnnops.compiler.api.tangent_net")

Arrays = dict[str, Array]  # by name


@dataclass(frozen=True)
class Derived:
    """The run of a net that was derived from another.

    Args:
        t, d: what names of tangents and of gradients begin with.
    """

    run: Any
    t: str
    d: str = ""

    def grad_inputs(self) -> dict[str, Any]:
        """Output of the other net -> the input that takes its gradient."""
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
    @named_arguments
    def jvp(
        self, feeds: Feeds, tangents: Feeds, *, seed: int | None = None, training: bool = True
    ) -> tuple[Arrays, Arrays]:
        """Forward pass with derivatives of outputs in a direction, by the net of `ro.tangent_net`.

        Nothing is kept for a backward pass, so `checkpoints=` and `memory_budget=` change nothing. The net is made at
        the first call with feeds of these shapes.

        Args:
            feeds: input name -> array, as of a call; without inputs that are bound.
            tangents: float input name -> array of the feed's shape and dtype. Other inputs do not move.
            seed: as of a call.
            training: whether Dropout is active.

        Returns:
            Output name -> array, and float output name -> its derivative in the direction of `tangents`.

        Raises:
            FeedError: as a call, and for tangents of what is not a float input, or of another shape or dtype.
            TypeRuleError: as a call.
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
    @named_arguments
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

        Gradients are those of `vjp`. One forward pass of the tangent net of the gradient net gives all three. It is
        made at the first call with feeds of these shapes; `checkpoints=` and `memory_budget=` are not for it.

        Args:
            feeds: input name -> array, as of a call; without inputs that are bound.
            vectors: float input name -> array of the feed's shape and dtype. Other inputs do not move.
            grads: gradients of outputs, as a pullback takes them: 1.0 is for a net whose float output is one number.
            wrt: names of the inputs whose gradients and products are wanted; those that have vectors if left out.
            seed: as of a call.
            training: whether Dropout is active.

        Returns:
            Output name -> array, input name -> gradient, and input name -> product.

        Raises:
            FeedError: as `jvp`, and for names in `wrt` that are not float inputs.
            TypeRuleError: as a call.
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
        """Gradients of outputs by the inputs of the derived net that take them."""
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
        is_random = self._random_ops[context.training] is not None  # calls of others are recorded
        how: dict[str, Any] = {"seed": context.seed, "training": context.training} if is_random else {}
        free = {name: array for name, array in arrays.items() if name not in self._bound}
        found: Mapping[str, Array] = made.run({**free, **tangents, **weights}, **how)
        return found

    def _with_tangents(self, moving: tuple[str, ...], arrays: Arrays) -> Derived:
        self._check_derivatives(self._float_dtype_of(arrays))
        net = tangent_nets.tangent_of(self.net, moving, {name: array.shape for name, array in arrays.items()})
        return Derived(self._run_of(net), gradient_nets.free_prefix(self.net, "t"))

    def _with_products(
        self, moving: tuple[str, ...], names: tuple[str, ...], given: tuple[str, ...] | None, arrays: Arrays
    ) -> Derived:
        """The run of a tangent net of a gradient net, without what is not asked for."""
        self._check_derivatives(self._float_dtype_of(arrays))
        shapes: dict[str, Any] = {name: array.shape for name, array in arrays.items()}
        first = gradient_nets.gradient_of(self.net, names, given, shapes)
        t, d = gradient_nets.free_prefix(first, "t"), gradient_nets.free_prefix(self.net, "d")
        both = tangent_nets.tangent_of(first, moving, shapes)
        results = [*self.net.output_blobs, *(p + name for p in (d, t + d) for name in names)]
        net = both.with_ops(both.ops, {name: both.output_blobs[name] for name in results}).snapshot()
        return Derived(self._run_of(net), t, d)

    def _check_derivatives(self, float_dtype: str) -> None:
        check_gradients(self.net, self._options)
        check_floats(self.net, self._options.precision, float_dtype)

    def _float_dtype_of(self, arrays: Arrays) -> str:
        return float_dtype_of(self.net, arrays) or "float32"

    def _run_of(self, net: Net) -> Any:
        """A run like this one, of another net with the same inputs bound."""
        made: Any = type(self)
        return made(net, self.device, replace(self._options, pool=Pool()), self._bound)
