"""Where a cell's step is written: the net it goes to, what masks it, and what it asks to be recomputed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count

from rnnops.blob import Blob
from rnnops.errors import NetError
from rnnops.net import Net
from rnnops.ops.movement import concat, transpose
from rnnops.ops.select import select_valid
from rnnops.scopes import absolute_names
from rnnops.types import Array


@dataclass
class Step:
    """One step under construction, as a cell's `step` gets it: it gives parameters, products and masks.

    Args:
        net: the step net, or the outer net where a single step or an unrolled one is written there.
        outer: the outer net, where `net` is a step net; None where they are the same.
        seq_lengths: [N] int32, None where all rows have full length.
        timestep: [1] int32, needed with lengths.
        prefix: before the names of labelled blobs (`timestep_3/` in an unrolled net).
        recompute: names of labelled blobs that cells with memory optimization do not want stored.
        references: name in the step net -> outer blob.

    Raises:
        NetError: by its methods, where a parameter of a name is there already with another shape.

    Example:
        >>> net = ro.Net("model", sizes_for="float32")
        >>> step = ro.cells.Step(net)
        >>> h = step.linear(net.input("x", shape=(2, 3)), "dense", 3, 4)
        >>> h.shape, [spec.name for spec in net.parameters]
        ((2, 4), ['dense_w', 'dense_b'])
    """

    net: Net
    outer: Net | None = None
    seq_lengths: Blob | None = None
    timestep: Blob | None = None
    prefix: str = ""
    recompute: list[str] = field(default_factory=list)
    references: dict[str, Blob] = field(default_factory=dict)

    def parameter(self, name: str, shape: Sequence[int], init: object) -> Blob:
        """A parameter by its absolute name; the one that is there already, if there is one.

        Args:
            name: as it is, whatever scope is open.
            shape: of it.
            init: as for `Net.parameter`: `"zeros"`, `"xavier"`, a number, ...

        Raises:
            NetError: it is there already with another shape.
        """
        return parameter(self.net, name, shape, init)

    def outer_blob(self, name: str, blob: Blob) -> Blob:
        """A blob of the outer net as the step sees it.

        Args:
            name: that it has in the step net.
            blob: of the outer net.
        """
        if self.outer is None:
            return blob
        self.references[name] = blob
        with absolute_names():
            return self.net.blob(name) if name in self.net else self.net.input(name, blob.dtype)

    def constant(self, name: str, array: Array) -> Blob:
        """An array that is the same at every step: a blob of the outer net, which no step makes anew.

        Args:
            name: that it has in the step net.
            array: its value.
        """
        return self.outer_blob(name, (self.net if self.outer is None else self.outer).constant(array))

    def linear(self, x: Blob, name: str, dim_in: int, dim_out: int, extra: Sequence[tuple[Blob, int]] = ()) -> Blob:
        """`[x; extra] W^T + b` with parameters `<name>_w [dim_out, dim_in + extra]`, xavier, and `<name>_b [dim_out]`,
        zeros.

        Args:
            x: [N, dim_in].
            name: of the parameters.
            dim_in: features of x.
            dim_out: features of the result.
            extra: (blob, feature size) that the product reads beside x, as attention's context.

        Returns:
            A blob, [N, dim_out].
        """
        return self.product(x, name, dim_in, dim_out, extra) + self.parameter(f"{name}_b", (dim_out,), "zeros")

    def product(self, x: Blob, name: str, dim_in: int, dim_out: int, extra: Sequence[tuple[Blob, int]] = ()) -> Blob:
        """The same as `linear`, without a bias.

        Args:
            x, name, dim_in, dim_out, extra: as `linear`'s.

        Returns:
            A blob, [N, dim_out].
        """
        for blob, size in extra:
            x, dim_in = concat([x, blob], axis=-1), dim_in + size
        weight = self.parameter(f"{name}_w", (dim_out, dim_in), "xavier")
        return x @ transpose(weight, perm=[1, 0])

    def labelled(self, blob: Blob, name: str, recompute: bool = False) -> Blob:
        """Name a blob; with `recompute`, ask that it be computed again on the backward pass.

        Args:
            blob: what is named.
            name: that it gets, with a number behind it where it is taken.
            recompute: whether it is not to be stored.

        Returns:
            The blob.
        """
        base = self.prefix + name
        candidates = (base if k == 0 else f"{base}_{k}" for k in count())
        with absolute_names():
            blob.named(next(candidate for candidate in candidates if candidate not in self.net))
        if recompute:
            self.recompute.append(blob.name)
        return blob

    def masked(self, new: Blob, previous: Blob, drop: bool) -> Blob:
        """Past a row's end its state stays what it was, or is zero with `drop`.

        Args:
            new: [N, ...].
            previous: [N, ...], of the same shape.
            drop: zero instead of `previous`.
        """
        if self.seq_lengths is None or self.timestep is None:
            return new
        return select_valid(new, previous, self.seq_lengths, self.timestep, drop=drop)

    def masked_output(self, output: Blob) -> Blob:
        """An output that is no state is zero past a row's end.

        Args:
            output: [N, ...].
        """
        return self.masked(output, output, drop=True)


def require_blob(value: object, what: str, cell: str, net: str | None = None) -> None:
    """Raise NetError for an argument of a cell that is no blob."""
    if not isinstance(value, Blob):
        raise NetError(f"{what} is no blob", net=net, blob=cell, came=type(value).__name__)


def parameter(net: Net, name: str, shape: Sequence[int], init: object) -> Blob:
    """A parameter of a net by its absolute name; the one that is there already, if there is one.

    Raises NetError where that has another shape, as that of a cell of the same name but other sizes.
    """
    with absolute_names():
        if name not in net:
            return net.parameter(name, shape, init)
    there = next((spec for spec in net.input_specs if spec.name == name), None)
    if there is None or there.shape not in (None, tuple(shape)):
        came = "the result of an op" if there is None else there.shape
        raise NetError(
            "this parameter is there already, but it is another",
            net=net.name,
            blob=name,
            wanted=tuple(shape),
            came=came,
            hint="Give the cell a name of its own.",
        )
    return net.blob(name)
