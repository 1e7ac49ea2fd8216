"""The text of a cell while it is written: lines of Python, values that later lines may read, parameters.

A `Writer` belongs to one function: the step of a cell, or the net around cells. Motifs (`motifs.py` and the files
beside it) append lines to it. A line may be written in several ways that mean the same; a writer with `style` chooses
among them, puts identities around expressions and writes some of them twice, so that one recipe gives many programs of
one meaning.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random

Shape = tuple[int, ...]


@dataclass
class Value:
    """A float array that a line of text has named.

    Args:
        names: variables that hold it, all of one content.
        shape: with the sizes of this program.
        lead: how many axes stand before the features: 1 in a cell (rows), 2 around it (steps and rows), 0 for values
            without rows.
        tame: whether its elements are within -1 and 1 (or nearly so), so that it may be carried on as it is.
    """

    names: list[str]
    shape: Shape
    lead: int
    tame: bool = False
    style: Random | None = None

    @property
    def width(self) -> int:
        return self.shape[-1]

    def __str__(self) -> str:
        return self.style.choice(self.names) if self.style else self.names[0]


@dataclass(frozen=True)
class Feed:
    """How an input is filled.

    Args:
        shape: with the sizes of this program.
        kind: "normal", "positive", "int", "flags" (0.0 or 1.0), "lengths".
        scale: of normal numbers; the number of classes of integers.
        axes: what axes 0, ... are, of "T" and "N"; other axes are features.
    """

    shape: Shape
    kind: str = "normal"
    scale: float = 1.0
    axes: str = ""


# Expressions that are {v} again; {k} is its last size, {z} another value of its shape.
IDENTITIES = (
    "({v} + 0.0 * {z})", "({v} + {z} - {z})", "-(-{v})", "1.0 * {v}", "{v}.T.T", "{v}[..., None][..., 0]",
    "{v}[..., ::-1][..., ::-1]", "np.concatenate([{v}[..., :1], {v}[..., 1:]], axis=-1)",
    "ro.pad({v}, [1, 2], axes=[-1])[..., 1 : {k} + 1]", "ro.pad({v}, [0, 1], axes=[0])[:-1]", "{v}[None][0]",
    "ro.where({v} > 0.1, {v}, {v})", "(np.maximum({v}, 0.1) + np.minimum({v}, 0.1) - 0.1)", "ro.identity({v})",
    "(0.5 * {v} + 0.5 * {v})", "ro.mean({v}, {v})", "np.stack([{v}, {v}]).mean(axis=0)", "({v} @ np.eye({k}))",
    "ro.gather({v}, np.arange({k})[::-1].copy(), axis=-1)[..., ::-1]", "({v} - {z} * 0.0)",
    "ro.squeeze(ro.unsqueeze({v}, [-1]), [-1])", "ro.tile({v}, [2] + [1] * ({r} - 1))[: {n}]",
    "ro.einsum('...k->...k', {v})", "ro.reduce_sum({v}[..., None], [-1], keepdims=0)", "np.where({v} == {v}, {v}, 0.0)",
    "np.concatenate([{v}, {z}], axis=0)[: {n}]", "np.concatenate([{z}, {v}], axis=-1)[..., {k} :]",
)  # fmt: skip


@dataclass
class Writer:
    """Lines of a function, and what they have named so far.

    Args:
        lead: sizes of the axes before the features, rows last.
        prefix: of the names of variables and parameters.
        style: draws among ways to write a line; None takes the first way of each.
        values: floats that lines may read, oldest first.
        states: values of one feature axis that a cell carries.
        data: values of one feature axis that a cell is given at each step.
        ints: names of integers by row and their number of classes.
        flags: names of 0.0 or 1.0 by row.
        inputs: parameters, by name.
        named: blobs that `.named` has named.
        step: name of the step's number, None where there is none.
        mixes_rows, mixes_steps, draws, counts_steps: what relations must know: whether rows of the batch meet, whether
            steps meet around cells, whether random numbers are drawn, whether the step's number is read.
    """

    lead: Shape
    prefix: str
    style: Random | None = None
    lines: list[str] = field(default_factory=list)
    values: list[Value] = field(default_factory=list)
    states: list[Value] = field(default_factory=list)
    data: list[Value] = field(default_factory=list)
    ints: list[tuple[str, int]] = field(default_factory=list)
    flags: list[str] = field(default_factory=list)
    inputs: dict[str, Feed] = field(default_factory=dict)
    named: list[str] = field(default_factory=list)
    functions: list[str] = field(default_factory=list)
    step: str | None = None
    in_cell: bool = True
    mixes_rows: bool = False
    mixes_steps: bool = False
    draws: bool = False
    counts_steps: bool = False
    count: int = 0

    @property
    def rows(self) -> int:
        return self.lead[-1]

    def fresh(self, stem: str) -> str:
        """A name that is not taken yet."""
        self.count += 1
        return f"{stem}{self.prefix}{self.count}"

    def value(self, name: str, shape: Shape, lead: int | None = None, tame: bool = False, keep: bool = True) -> Value:
        """Make a name known to later lines."""
        made = Value([name], tuple(shape), len(self.lead) if lead is None else lead, tame, self.style)
        if keep:
            self.values.append(made)
        return made

    def let(
        self, shape: Sequence[int], *ways: str, lead: int | None = None, tame: bool = False, keep: bool = True,
        pure: bool = True, stem: str = "v", name_it: bool = False,
    ) -> Value:  # fmt: skip
        """Append `v = ...`.

        Args:
            shape: of the result.
            ways: expressions that mean the same.
            lead, tame, keep: of the value, as `value` takes them.
            pure: whether the expression may be written twice.
            stem: of the variable's name.
            name_it: whether the blob gets a name that binds, for lists of what is computed again.
        """
        name = self.fresh(stem)
        text = self.style.choice(ways) if self.style else ways[0]
        given = f"({text}).named({name!r})" if name_it else text
        self.lines.append(f"{name} = {given}")
        if name_it:
            self.named.append(name)
        made = self.value(name, tuple(shape), lead, tame, keep)
        if self.style:
            self._restyle(made, text, pure)
        return made

    def _restyle(self, value: Value, text: str, pure: bool) -> None:
        """Write the value again, or an identity around it."""
        assert self.style
        if pure and self.style.random() < 0.1:
            again = f"{value.names[0]}_again"
            self.lines.append(f"{again} = {text}")
            value.names.append(again)
        if len(value.shape) >= 2 and value.shape[0] and value.shape[-1] and self.style.random() < 0.2:
            others = [one for one in self.values if one.shape == value.shape and one is not value] or [value]
            form = self.style.choice(IDENTITIES)
            sizes = {"k": value.width, "r": len(value.shape), "n": value.shape[0]}
            around = form.format(v=value, z=self.style.choice(others), **sizes)
            wrapped = f"{value.names[0]}_same"
            self.lines.append(f"{wrapped} = {around}")
            value.names = [wrapped] if self.style.random() < 0.5 else [*value.names, wrapped]

    def parameter(self, r: Random, shape: Shape, feed: Feed | None = None, tie: float = 0.35) -> str:
        """A parameter of a shape as text: a new one, one that is there, or one that is there transposed."""
        feed = feed or Feed(shape, scale=0.7)
        same = [name for name, one in self.inputs.items() if one == feed]
        turned = [name for name, one in self.inputs.items() if one == Feed(shape[::-1], feed.kind, feed.scale, "")]
        if same and r.random() < tie:
            return r.choice(same)
        if len(shape) == 2 and turned and r.random() < tie:
            name = r.choice(turned)
            return self.way(f"{name}.T", f"ro.transpose({name}, [1, 0])", f"ro.einsum('ij->ji', {name})")
        name = self.fresh("p")
        self.inputs[name] = feed
        return name

    def way(self, *ways: str) -> str:
        """One of several texts that mean the same."""
        return self.style.choice(ways) if self.style else ways[0]

    def of_rank(self, rank: int) -> list[Value]:
        """Values with rows and so many feature axes."""
        lead = len(self.lead)
        return [one for one in self.values if one.lead == lead and len(one.shape) == lead + rank]

    def vector(self, r: Random, width: int | None = None) -> Value:
        """A value of one feature axis, a late one rather than an early one; projected where none has the width."""
        known = self.of_rank(1)
        if width is not None:
            fitting = [one for one in known if one.width == width]
            if fitting and r.random() < 0.7:
                return _late(r, fitting)
            return self.projected(r, _late(r, known), width)
        return _late(r, known)

    def carried(self, r: Random) -> Value:
        """A state of one feature axis rather than anything else."""
        if self.states and r.random() < 0.5:
            return r.choice(self.states)
        return self.vector(r)

    def projected(self, r: Random, a: Value, width: int) -> Value:
        """`a @ w` of another width."""
        return self.let((*a.shape[:-1], width), *self.product(a, self.parameter(r, (a.width, width))))

    def product(self, a: Value, w: str) -> tuple[str, ...]:
        """Ways to write a product with a matrix."""
        ways = (f"{a} @ {w}", f"ro.einsum('...i,ij->...j', {a}, {w})", f"ro.matmul({a}, {w})")
        if len(a.shape) == 2:
            return (*ways, f"({w}.T @ {a}.T).T", f"ro.gemm({a}, {w})", f"ro.gemm({a}, {w}.T, transB=1)")
        return ways

    def named_maybe(self, r: Random) -> bool:
        return self.in_cell and r.random() < 0.3


def _late(r: Random, values: list[Value]) -> Value:
    return r.choice(values[-4:]) if r.random() < 0.6 else r.choice(values)
