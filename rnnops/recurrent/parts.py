"""Parts of a recurrence: the same ops over some of the steps, which together do what the whole does.

A part begins with the last L steps of each state before it. Parts count from the end, in order of execution, so that
all but the first have the same number of steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from rnnops.infer import infer_call
from rnnops.lazy import cached_property
from rnnops.op import Op
from rnnops.recurrent.op import input_types
from rnnops.recurrent.recurrence import Recurrence
from rnnops.recurrent.stepping import tensor_shape
from rnnops.recurrent.training_form import plain_form
from rnnops.schema import Call
from rnnops.types import OPAQUE, Type, is_float


@dataclass(frozen=True)
class Part:
    """Some steps of a recurrence.

    Args:
        first, last: in order of execution, `last` not included.
        low, high: in order of time.
    """

    first: int
    last: int
    low: int
    high: int

    @property
    def steps(self) -> int:
        return self.last - self.first


@dataclass(frozen=True)
class PartCalls:
    """The ops of a part.

    Args:
        advance: forward, nothing kept.
        keep: forward, with what backward reads.
        backward: the gradient.
    """

    advance: Call
    keep: Call
    backward: Call


@dataclass(frozen=True)
class Parts:
    """A recurrence in training form, cut into parts.

    Args:
        call: the RecurrentNetwork op.
        given: (`_all` given, `_last` given), for each output, of gradients from outside.
        unit: steps of a part.
    """

    call: Call
    given: tuple[tuple[bool, bool], ...]
    unit: int

    @cached_property
    def recurrence(self) -> Recurrence:
        return Recurrence(self.call.op, self.call.net)

    @cached_property
    def types(self) -> dict[str, Type]:
        """Of the op's inputs, by cell input."""
        return input_types(self.recurrence, self.call)

    @cached_property
    def size(self) -> tuple[int, int]:
        """T and N."""
        return self.recurrence.steps_and_batch(self.types)

    @cached_property
    def count(self) -> int:
        return -(-self.size[0] // self.unit)

    def part(self, number: int) -> Part:
        """A part, by its number in order of execution."""
        T, _ = self.size
        first = max(0, T - (self.count - number) * self.unit)
        last = T - (self.count - number - 1) * self.unit
        low, high = (T - last, T - first) if self.recurrence.reverse else (first, last)
        return Part(first, last, low, high)

    @cached_property
    def initial(self) -> dict[str, Type]:
        """Types of states before a part, `[L, N, ...]`, by state input."""
        batch = self.size[1]
        found = {}
        for state in self.recurrence.states:
            kind = self.types[state.input]
            length, *rest = tensor_shape(kind.shape, state.feature_rank, 0, batch)
            found[state.input] = Type(kind.dtype, (length, *rest))
        return found

    @cached_property
    def every(self) -> tuple[bool, ...]:
        """For each output, whether all steps of it are wanted: by others, or to go on from."""
        return tuple(
            bool(self.call.op.outputs[2 * i]) or (i < len(self.recurrence.states) and self.length(i) > 1)
            for i in range(len(self.recurrence.output_names()))
        )

    def calls(self, steps: int) -> PartCalls:
        """The ops of a part of so many steps."""
        kinds = self._part_types(steps)
        op = self._op(steps)
        keep = _inferred(op, kinds, self.call)
        return PartCalls(_inferred(plain_form(op), kinds, self.call), keep, self._backward(keep))

    # -- ops -----------------------------------------------------------------------------------------------------

    def length(self, i: int) -> int:
        """L of a state, by the number of its output."""
        return self.initial[self.recurrence.states[i].input].shape[0]

    def _op(self, steps: int) -> Op:
        """The op with the outputs that a part has."""
        op = self.call.op
        names: list[str] = []
        for i, every in enumerate(self.every):
            is_state = i < len(self.recurrence.states)
            last = is_state or bool(op.outputs[2 * i + 1])
            names += [
                op.outputs[2 * i] or f"{op.key}/part/all/{i}" if every else "",
                f"{op.key}/part/last/{i}" if last else "",
            ]
        attributes = {key: value for key, value in op.attributes.items() if key != "schedule"}
        attributes.update({"steps": steps} if attributes.get("steps") is not None else {})
        return replace(op, outputs=(*names, op.outputs[-1]), attributes=attributes)

    def _part_types(self, steps: int) -> list[Type]:
        types = []
        for name in self.recurrence.ports():
            kind = self.initial.get(name, self.types[name])
            if name in self.recurrence.sequences:
                kind = Type(kind.dtype, (steps, *kind.shape[1:]))
            types.append(kind)
        return types

    def _backward(self, keep: Call) -> Call:
        """The gradient op: states get the gradient of what comes after, `_all` what is given from outside."""
        recurrence = self.recurrence
        net = recurrence.op.attributes["backward"]
        bindings = recurrence.bindings()
        inputs = [outer if name in net.input_names and kind != "initial" else "" for kind, name, outer in bindings]
        types: list[Type | None] = [kind if name else None for kind, name in zip(keep.types, inputs, strict=True)]
        inputs.append(keep.op.outputs[-1])
        types.append(Type(OPAQUE, ()))
        for i in range(len(recurrence.output_names())):
            for place, there in zip((2 * i, 2 * i + 1), self.gets(i), strict=True):
                inputs.append(f"{recurrence.op.key}/part/grad/{place}" if there else "")
                types.append(keep.output_types[place] if there else None)
        outputs = tuple(
            f"{recurrence.op.key}/part/d {name}" if name in net.output_blobs else "" for name in recurrence.ports()
        )
        kinds = tuple((kind.dtype, kind.shape) for kind in keep.types if kind is not None)
        op = Op("RecurrentNetworkGradient", tuple(inputs), outputs, {**keep.op.attributes, "types": kinds})
        return _inferred(op, types, self.call)

    def gets(self, i: int) -> tuple[bool, bool]:
        """Whether `_all` and `_last` of an output get a gradient in a part."""
        every, last = self.given[i]
        if i >= len(self.recurrence.states):
            return every or last, False
        if not is_float(self.initial[self.recurrence.states[i].input].dtype):
            return False, False
        return (True, False) if self.length(i) > 1 else (every, True)


def _inferred(op: Op, types: Sequence[Type | None], call: Call) -> Call:
    """An op of these types of inputs, in the net of a call."""
    return infer_call(op, list(types), [None] * len(types), call.net, call.float_dtype)[0]
