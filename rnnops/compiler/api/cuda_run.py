"""Runs on a CUDA device: feeds are all on the host or all on the device, and results go to the same side.

All work of a call goes into one stream. With arrays of the device, a call returns before the work is done, unless an
index must be checked for its range. With NumPy arrays, it returns when results have been copied to the host.
"""

from __future__ import annotations

from collections.abc import Generator, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

from rnnops.checkpoints.policy import Saving
from rnnops.compiler.api.derivatives import Pullback
from rnnops.compiler.api.feeds import Feeds, check_bound, check_weights, is_on_cuda, resolved
from rnnops.compiler.api.run import Run
from rnnops.compiler.memory.memory import on_host
from rnnops.compiler.run.compiled_scan import REFERENCE, Options
from rnnops.compiler.run.pipeline import ForwardPlan, TrainingPlan
from rnnops.compiler.targets.cuda.target import DeviceReference, checked_late, cuda_target
from rnnops.errors import DeviceError, FeedError, TypeRuleError
from rnnops.interpreter import Program
from rnnops.kernels.cuda.device_array import DeviceArray, on_device, settled, zeros
from rnnops.kernels.cuda.facade import stream_of, synchronize, wait_for
from rnnops.kernels.cuda.memory import current_stream, in_stream
from rnnops.net.net import Net
from rnnops.net.schema import Call
from rnnops.types import Array

if TYPE_CHECKING:
    from rnnops.compiler.run.layer_plan import LayerGradients

OUT_OF_RANGE = "an index or a label is out of range, or an integer's power below 0"
EITHER_SIDE = (
    "ro.on_device(array) copies to the device, array.to_host() from it; run.bind(name=array) takes parameters from "
    "either side, and those of a model are there."
)


class CudaPullback(Pullback):
    """Maps gradients of outputs to gradients of inputs, on the device; used once."""

    on_host: bool  # whether gradients of inputs go to the host
    stream: Any  # the stream of the forward pass

    def __call__(self, grads: Mapping[str, Any] | Any, stream: Any = None) -> dict[str, Array]:
        """Run the backward pass.

        Args:
            grads: as on the CPU; NumPy arrays, or arrays of the device.
            stream: a stream of the device; that of the forward pass if left out.
        """
        with working(self._plan.program.net.name, self.stream if stream is None else stream):
            wait_for(self.stream, current_stream())
            with checked_late() as check:
                found = placed(super().__call__(grads), self.on_host)
            if check.failed():
                raise TypeRuleError(OUT_OF_RANGE, net=self._plan.program.net.name, hint="Were feeds written to?")
            wait_for(current_stream(), self.stream)  # that stream uses the memory of kept blobs again
            return found

    def layers(
        self, grads: Mapping[str, Any] | Any, output: Sequence[str] = (), freeze: str | None = None, stream: Any = None
    ) -> Generator[LayerGradients, None, None]:
        """Run the backward pass layer by layer, the last one first.

        Args:
            grads: as of a call.
            output, freeze: as on the CPU.
            stream: a stream of the device; that of the forward pass if left out.

        Yields: as on the CPU. Values are the arrays that were fed; gradients are on the side of the feeds.
        """
        chosen = self.stream if stream is None else stream
        with working(self._plan.program.net.name, chosen):
            wait_for(self.stream, current_stream())
            return self._each_layer(super().layers(grads, output, freeze), chosen)

    def _each_layer(
        self, layers: Generator[LayerGradients, None, None], stream: Any
    ) -> Generator[LayerGradients, None, None]:
        """Layer after layer, computed in a stream. The stream is not current while the consumer works. Yielded arrays
        are not held here."""
        try:
            while found := self._next_layer(layers, stream):
                yield found.pop()
        finally:
            layers.close()

    def _next_layer(self, layers: Iterator[LayerGradients], stream: Any) -> list[LayerGradients]:
        with working(self._plan.program.net.name, stream):
            found = [self._placed(*given) for given in islice(layers, 1)]
            wait_for(current_stream(), self.stream)  # that stream uses the memory of kept blobs again
            return found

    def _placed(self, names: list[str], values: list[Any], grads: list[Any], inputs: dict[str, Any]) -> LayerGradients:
        return names, values, [placed_one(grad, self.on_host) for grad in grads], placed(inputs, self.on_host)

    def _own(self, stack: Any) -> Array:
        return placed_one(stack, self.on_host)

    def _array(self, output: str, value: Any) -> Array:
        if not is_on_cuda(value):
            value = super()._array(output, value)
        found: Array = _adopted(self._plan.program.net.name, output, value)
        return found

    def kernels_of(self, program: Program, kernels: Mapping[str, Any]) -> Mapping[str, Any]:
        return with_references(program, kernels)

    def as_read(self, fed: Any) -> Array:
        found: Array = _adopted(self._plan.program.net.name, "", fed) if is_on_cuda(fed) else fed
        return found

    def _zeros(self, name: str) -> Array:
        kind = self._plan.backward.types[name]
        made: Array = zeros(kind.shape, kind.dtype)
        return made


class CudaRun(Run):
    """A net compiled for a CUDA device."""

    pullback: ClassVar[type[Pullback]] = CudaPullback
    symbolic: ClassVar[bool] = False  # kernels are compiled for fixed sizes
    repeats: bool = False

    def __call__(
        self, *dicts: Feeds, seed: int | None = None, training: bool = False, stream: Any = None, **feeds: Any
    ) -> dict[str, Array]:
        """Forward pass.

        Args:
            dicts, feeds: input name -> array: all NumPy arrays, or all arrays of the device. These may be of CuPy,
                PyTorch and others, by `__cuda_array_interface__` or DLPack; they are not copied.
            seed, training: as on the CPU.
            stream: a stream of the device: its address, or a stream of PyTorch, CuPy or numba; the default stream if
                left out.

        Returns: output name -> array, on the side of the feeds. Raises FeedError if feeds are on both sides.
        """
        with working(self.net.name, stream):
            with checked_late() as check:
                found = super().__call__(*dicts, seed=seed, training=training, **feeds)
            if check.failed():
                self._out_of_range(*self._read(dicts, feeds), seed, training)
            return placed(found, self._on_host(dicts, feeds))

    def vjp(
        self,
        *dicts: Feeds,
        seed: int | None = None,
        training: bool = True,
        wrt: Any = None,
        stream: Any = None,
        **feeds: Any,
    ) -> tuple[dict[str, Array], Pullback]:
        """Forward pass that keeps values for backward, and the pullback. Arguments: as on the CPU, and `stream`."""
        with working(self.net.name, stream):
            with checked_late() as check:
                found, pullback = super().vjp(*dicts, seed=seed, training=training, wrt=wrt, **feeds)
            if check.failed():
                self._out_of_range(*self._read(dicts, feeds), seed, training)
            assert isinstance(pullback, CudaPullback)
            pullback.on_host, pullback.stream = self._on_host(dicts, feeds), current_stream()
            return placed(found, pullback.on_host), pullback

    def bind(self, *, weights: Any = None, **params: Any) -> Run:
        """A run with some inputs fed once and for all, as copies on the device. `weights="int8"` is an error here."""
        if isinstance(weights, str):
            check_weights(self.net.name, weights, self.device, self._options)
        elif weights is not None:
            params["weights"] = weights
        arrays = {**self._bound, **{name: on_device(self._checked(name, array)) for name, array in params.items()}}
        copies = {name: settled(array.copy()) if name in params else array for name, array in arrays.items()}
        return CudaRun(self.net, self.device, self._options, copies, self._saving)

    def _out_of_range(self, arrays: Mapping[str, Any], _: Hashable, seed: int | None, training: bool) -> NoReturn:
        """Raise TypeRuleError for an index that was out of range. The reference's error has the op and the value."""
        exact = Run(self.net, "reference", replace(REFERENCE, precision=self._options.precision))
        exact({name: on_host(array) for name, array in arrays.items()}, seed=seed, training=training)
        raise TypeRuleError(OUT_OF_RANGE, net=self.net.name)

    def _checked(self, name: str, value: Any) -> Any:
        check_bound(self.net, name)
        return self._fed(self.net.name, name, value)

    def _on_host(self, dicts: Sequence[Feeds], named: Feeds) -> bool:
        """True if feeds are on the host. Raises FeedError if only some are."""
        return are_on_host(self.net.name, {name: value for feeds in (*dicts, named) for name, value in feeds.items()})

    def _read(self, dicts: tuple[Feeds, ...], named: Feeds) -> tuple[dict[str, Any], Hashable]:
        self._on_host(dicts, named)
        return super()._read(dicts, named)

    def _fed(self, net: str, name: str, value: Any, what: str = "a feed") -> Any:
        return _adopted(net, name, value) if is_on_cuda(value) else super()._fed(net, name, value, what)

    def _kernels(self, plan: ForwardPlan | TrainingPlan, kernels: Mapping[str, Any]) -> Mapping[str, Any]:
        return with_references(plan.program, kernels)

    def _reference(self, call: Call) -> Any:
        return DeviceReference(call)

    def _clock(self) -> float:
        synchronize(current_stream())
        return super()._clock()

    def _workspace_arrays(self, plan: ForwardPlan | TrainingPlan, arrays: dict[str, Any]) -> dict[str, Any]:
        return {name: on_device(a) for name, a in arrays.items()}


@contextmanager
def working(net: str, stream: Any) -> Iterator[None]:
    """Within this context, all work goes into a stream, and errors of the device name the net."""
    try:
        with in_stream(stream_of(stream)):
            yield
    except DeviceError as error:
        if error.net is not None:
            raise
        found = DeviceError(error.problem, net=net, wanted=error.wanted, came=error.came, hint=error.hint)
        raise found from error


def compile_for_cuda(net: Net, options: Options, saving: Saving, weights: str | None) -> CudaRun:
    """Make a net ready to run on the current CUDA device. Raises DeviceError if there is none."""
    device = options.device or cuda_target(net.name, weights, options.precision)
    chosen = replace(options, device=device, around="all", recycle=False)
    return CudaRun(net.snapshot(), "cuda", chosen, saving=saving)


def are_on_host(net: str, feeds: Mapping[str, Any]) -> bool:
    """True if feeds are on the host. Raises FeedError if only some are."""
    there = {name: is_on_cuda(value) for name, value in feeds.items()}
    if len(set(there.values())) > 1:
        sides = [", ".join(name for name, side in there.items() if side is on_card) for on_card in (False, True)]
        raise FeedError(
            "some feeds are on the host and some on the CUDA device",
            net=net,
            blob=min(sides, key=len),
            wanted="all NumPy arrays, or all arrays of the device",
            came=f"on the host: {sides[0]}; on the device: {sides[1]}",
            hint=EITHER_SIDE,
        )
    return not any(there.values())


def with_references(program: Program, kernels: Mapping[str, Any]) -> Mapping[str, Any]:
    """Kernels, and runners for all other ops on arrays of the device."""
    others = [call for call in program.calls if call.op.key not in kernels]
    return {**{call.op.key: DeviceReference(call) for call in others}, **kernels} if others else kernels


def placed(results: dict[str, Array], on_host: bool) -> dict[str, Array]:
    """Results on the host or on the device."""
    return {name: placed_one(array, on_host) for name, array in results.items()}


def placed_one(array: Any, on_the_host: bool) -> Array:
    """One result on the host or on the device."""
    found: Array = on_host(array) if on_the_host else on_device(array)
    return found


def _adopted(net: str, name: str, value: Any) -> DeviceArray:
    try:
        return on_device(resolved(value))
    except DeviceError:
        raise
    except Exception as error:  # whatever the other library raises
        problem = "a feed is not an array of the CUDA device"
        wanted = "an array with __cuda_array_interface__ or __dlpack__"
        raise FeedError(problem, net=net, blob=name, wanted=wanted, came=error) from None
