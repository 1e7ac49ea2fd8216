"""Cells with an input size and a hidden size, and the table of these cells by name.

**The table of cells by name**: `@register_cell` enters a class under its `default_name`. Such a cell is made with
`(input size, hidden size, name=..., **options)`. Its inputs and outputs are vectors `[N, D]` and `[N, H]`. Its states
may have any axes.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from inspect import Parameter, Signature, getdoc, signature
from math import isfinite, prod
from types import MappingProxyType
from typing import Any, ClassVar, TypeVar

import numpy as np

from rnnops.cells.base import Extra, Initializer, RNNCell, Step, Stepped
from rnnops.errors import NetError, check_flags
from rnnops.net.blob import Blob
from rnnops.net.schema import docstring, sections_of
from rnnops.ops.base import number
from rnnops.ops.movement import split


class SizedCell(RNNCell):
    """Base of cells with an input size D and a hidden size H.

    On the page of each cell, `x [N, D]` is the input of a step, and `h_prev` is the state h before the step. `@` is the
    product of matrices, `*` the elementwise product. A state that is not a vector has more axes than `[N, H]`.
    Parameters are named below the cell's name, such as `lstm/i2h_w`. Parameters called xavier start uniform in
    +-`sqrt(3 / inputs)`, where inputs is the size of the last axis.

    A state without a given start has one more parameter, its value before the first step. For `hidden_t` it is
    `initial_hidden_state [H]`, and starts with zeros.

    A subclass sets `default_name`, sets `state_names` if its states differ, and defines `step`. A subclass with its own
    options also takes `**options` and passes them on. Its signature and docstring then list its own options and these.
    `training_options` are the options with which `rnnops train` makes the cell.

    Args:
        input_size: features of x, D.
        hidden_size: number of units, H.
        forget_bias: added to the forget gate before its sigmoid, in cells that have this gate.
        memory_optimization: True to compute gates again in the backward pass, so that a step stores only its states.
        drop_states: True for zero states past a row's end. By default states stay there.
        name: absolute prefix of parameter names. Cells of one given name share their parameters in a net. The default
            is `default_name`, and a second cell with that name in a net is an error.
        forward_only: True for a recurrence without a gradient, which keeps no values for one.
        initializer: a function of (net, cell) that is called if no initial states are given. It returns a list of
            blobs, `[H]`, `[N, H]` or `[1, N, H]` each. By default initial states are parameters.
        init: initial values of parameters, by name or pattern below the cell's name, as for `Net.set_init`.

    Raises:
        NetError: forget_bias is not a finite number, name is not a name, or initializer is not a function. When the
            cell is applied: sizes are not integers of 0 or more.
        ArgumentError: an argument is unknown or missing, or a flag is not a bool.

    Example:
        >>> class Leaky(ro.cells.SizedCell):
        ...     default_name = "leaky"
        ...     def step(self, step, x_t, states, extra=()):
        ...         (x,) = self.projected(step, x_t, 1, extra=extra)
        ...         return self.stepped(step, [0.9 * states[0] + 0.1 * x], states)
        >>> net = ro.Net("model", sizes_for="float32")
        >>> y, states = Leaky(3, 4).apply_over_sequence(net, net.input("x", shape=(7, 2, 3)))
        >>> y.shape, [spec.name for spec in net.parameters]
        ((7, 2, 4), ['leaky/initial_hidden_state', 'leaky/i2h_w', 'leaky/i2h_b'])
    """

    training_options: ClassVar[Mapping[str, Any]] = {}
    state_names: ClassVar[tuple[str, ...]] = ("hidden_t",)  # names below the cell's name
    recurrent_params: ClassVar[tuple[str, ...]] = ()  # names of parameters that are used with the states, also biases

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.__signature__ = _joined(signature(cls.__init__), signature(cls.__mro__[1]))  # type: ignore[attr-defined]
        if isinstance(cls.state_names, str):
            raise NetError(f"{cls.__name__}: state_names is a string", wanted="a tuple of names", came=cls.state_names)
        if cls.__doc__:
            cls.__doc__ = _joined_docs(cls)

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        forget_bias: float = 0.0,
        memory_optimization: bool = False,
        drop_states: bool = False,
        name: str | None = None,
        forward_only: bool = False,
        initializer: Initializer | None = None,
        init: Mapping[str, object] | None = None,
    ) -> None:
        super().__init__(name, forward_only, initializer, init)
        self.input_size, self.hidden_size = input_size, hidden_size
        self.forget_bias = finite(forget_bias, "forget_bias", self.name)
        flags = {"memory_optimization": memory_optimization, "drop_states": drop_states}
        check_flags(type(self).__name__, **flags)
        self.memory_optimization, self.drop_states = memory_optimization, drop_states

    def get_state_names(self) -> list[str]:
        return [f"{self.name}/{state}" for state in self.state_names]

    def get_state_dims(self) -> list[int]:
        return [self.hidden_size] * len(self.get_state_names())

    def get_output_dim(self) -> int:
        return self.hidden_size

    def get_recurrent_params(self) -> list[str]:
        return [f"{self.name}/{parameter}" for parameter in self.recurrent_params]

    def projected(self, step: Step, x_t: Blob, parts: int, recompute_as: str = "", extra: Extra = ()) -> list[Blob]:
        """`W x + b`, cut into parts.

        Args:
            step: the step under construction.
            x_t: [N, D].
            parts: number of parts. The product has the parameters `i2h_w [parts H, D]` and `i2h_b [parts H]`.
            recompute_as: a label for the product, so that the backward pass computes it again. For cells whose gates
                are this product.
            extra: (blob, feature size) of more blobs that the product reads. `i2h_w` has as many more columns.

        Returns:
            A list of blobs, [N, H] each.
        """
        product = step.linear(x_t, self.input_name, self.input_size, parts * self.hidden_size, extra)
        if recompute_as:
            step.labelled(product, f"{self.name}/{recompute_as}", self.memory_optimization)
        return list(split(product, parts, axis=-1)) if parts > 1 else [product]

    def kept(self, step: Step, new: Sequence[Blob], previous: Sequence[Blob]) -> list[Blob]:
        """New states, which stay past a row's end, or become zero with `drop_states`.

        Args:
            step: the step under construction.
            new: one blob for each state.
            previous: the states before, in the same order.

        Returns:
            A list of blobs, one for each state.
        """
        return [step.masked(*pair, self.drop_states) for pair in zip(new, previous, strict=True)]

    def stepped(self, step: Step, new: Sequence[Blob], previous: Sequence[Blob]) -> Stepped:
        """The result of a step whose output is its first state.

        Args:
            step, new, previous: as in `kept`.

        Returns:
            The first of the states from `kept`, and all of them.
        """
        states = self.kept(step, new, previous)
        return states[0], states


def count_of(value: object, what: str, cell: str) -> int:
    """The value itself. Raises NetError if it is not an integer of 1 or more."""
    if not isinstance(value, int | np.integer) or isinstance(value, bool) or value < 1:
        raise NetError(f"{what} is not a size", blob=cell, wanted="an integer of 1 or more", came=repr(value))
    return int(value)


def finite(value: object, what: str, cell: str) -> float:
    """A finite number that a cell takes. Raises NetError for all other values."""
    found = number(value, f"{what} of '{cell}'")
    if not isfinite(found):
        raise NetError(f"{what} is not a finite number", blob=cell, came=repr(value))
    return found


def _joined(own: Signature, of_base: Signature) -> Signature:
    """A signature without self. If it takes further options, the arguments of the base are added."""
    kept = [one for one in list(own.parameters.values())[1:] if one.kind is not Parameter.VAR_KEYWORD]
    if len(kept) + 1 < len(own.parameters):
        names = {one.name for one in kept}
        further = [one for one in of_base.parameters.values() if one.name not in names]
        kept += [one.replace(kind=Parameter.KEYWORD_ONLY) for one in further]
    return Signature(kept)


def _joined_docs(cell: type[SizedCell]) -> str:
    """The docstring of a cell. Arguments and errors that it leaves out are taken from its base."""
    of_base, own = sections_of(getdoc(cell.__mro__[1]) or ""), sections_of(cell.__doc__ or "")
    arguments, errors = ({**_entries(of_base, name), **_entries(own, name)} for name in ("Args", "Raises"))
    in_order = [arguments[name] for name in signature(cell).parameters if name in arguments]
    told = dict.fromkeys([*in_order, *_entries(own, "Args").values()])
    return docstring({**own, "Args": "".join(told).rstrip(), "Raises": "".join(errors.values()).rstrip()})


def _entries(sections: Mapping[str, str], heading: str) -> dict[str, str]:
    """The entry of each argument or error in a section of a docstring."""
    entries = re.split(r"^(?=    \S)", f"{sections.get(heading, '')}\n", flags=re.M)
    return {name.strip(): entry for entry in entries if entry.strip() for name in re.split("[(:]", entry)[0].split(",")}


class ShapedCell(SizedCell):
    """Base of sized cells whose states are not vectors. A subclass defines `get_state_shapes`."""

    @abstractmethod
    def get_state_shapes(self) -> list[tuple[int, ...]]: ...

    def get_state_dims(self) -> list[int]:
        return [prod(shape) for shape in self.get_state_shapes()]


Entered = TypeVar("Entered", bound=type[SizedCell])
_TABLE: dict[str, type[SizedCell]] = {}
CELLS: Mapping[str, type[SizedCell]] = MappingProxyType(_TABLE)
"""Classes of cells by name, read-only. `ro.model.RNN("gru", 64)` and `rnnops train --cell gru` look names up here.

Example:
    >>> ro.cells.CELLS["gru"](3, 4, name="mine").get_state_names()
    ['mine/hidden_t']
"""


def register_cell(cell: Entered) -> Entered:
    """A decorator that enters a class of cells in the table `CELLS`.

    Args:
        cell: a subclass of `SizedCell` with its own `default_name`, which becomes its key.

    Returns:
        The class itself.

    Raises:
        NetError: the class is not such a class, or its name is taken.

    Example:
        >>> @ro.cells.register_cell
        ... class Nothing(ro.cells.SizedCell):
        ...     default_name = "nothing"
        ...     def step(self, step, x_t, states, extra=()):
        ...         return states[0], list(states)
        >>> layer = ro.model.RNN("nothing", 4)
        >>> ro.cells.CELLS["nothing"] is Nothing
        True
    """
    if not (isinstance(cell, type) and issubclass(cell, SizedCell)):
        raise NetError("the table of cells holds classes of SizedCell", came=repr(cell))
    name = cell.__dict__.get("default_name")
    if not isinstance(name, str):
        raise NetError(f"{cell.__name__} has no default_name of its own", wanted='default_name = "..."')
    if _TABLE.setdefault(name, cell) is not cell:
        raise NetError(f"{cell.__name__}: this name of a cell is taken", wanted="another default_name", came=name)
    return cell
