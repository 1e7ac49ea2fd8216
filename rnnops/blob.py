"""Blob: a named value of one net, with the operators that append ops to that net."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn, Union

import numpy as np

from rnnops.errors import NetError
from rnnops.types import Array, Type

if TYPE_CHECKING:
    from rnnops.net import Net


class Blob:
    """A handle on a value of a net; made by `net.inputs`, `net.parameter` and ops, never by hand.

    `+ - * / ** @ == != < <= > >= & | ~ -x abs(x)` append ops; either side may be a Python number or a NumPy array.
    """

    __slots__ = ("__weakref__", "name", "net")
    __array_ufunc__ = None  # so that `array + blob` comes here and not to NumPy's element loop
    __hash__ = object.__hash__

    def __init__(self, net: Net, name: str) -> None:
        self.net, self.name = net, name

    @property
    def dtype(self) -> str:
        """`"float"` (the run's float dtype) or a fixed dtype such as `"int32"`."""
        return self.net.dtype_of(self.name)

    @property
    def type(self) -> Type | None:
        """Dtype and shape where sizes are already known, as in a gradient net; else None."""
        return self.net.type_of(self.name)

    def named(self, name: str) -> Blob:
        """Rename this blob in its net and return it. Raises NetError where the name is taken."""
        self.net.rename(self, name)
        return self

    def __repr__(self) -> str:
        return f"<Blob {self.name} of net {self.net.name}>"

    def __bool__(self) -> NoReturn:
        raise NetError(
            "a blob has no truth value while the net is built",
            net=self.net.name,
            blob=self.name,
            hint="Use ro.where to choose between values, and `is` to compare handles.",
        )

    __iter__ = None

    def _apply(self, op_type: str, *operands: Operand) -> Blob:
        return self.net.apply(op_type, operands)

    def __add__(self, other: Operand) -> Blob:
        return self._apply("Add", self, other)

    def __radd__(self, other: Operand) -> Blob:
        return self._apply("Add", other, self)

    def __sub__(self, other: Operand) -> Blob:
        return self._apply("Sub", self, other)

    def __rsub__(self, other: Operand) -> Blob:
        return self._apply("Sub", other, self)

    def __mul__(self, other: Operand) -> Blob:
        return self._apply("Mul", self, other)

    def __rmul__(self, other: Operand) -> Blob:
        return self._apply("Mul", other, self)

    def __truediv__(self, other: Operand) -> Blob:
        return self._apply("Div", self, other)

    def __rtruediv__(self, other: Operand) -> Blob:
        return self._apply("Div", other, self)

    def __pow__(self, other: Operand) -> Blob:
        return self._apply("Pow", self, other)

    def __rpow__(self, other: Operand) -> Blob:
        return self._apply("Pow", other, self)

    def __matmul__(self, other: Operand) -> Blob:
        return self._apply("MatMul", self, other)

    def __rmatmul__(self, other: Operand) -> Blob:
        return self._apply("MatMul", other, self)

    def __eq__(self, other: object) -> Blob:  # type: ignore[override]
        return self._apply("Equal", self, other)  # type: ignore[arg-type]

    def __ne__(self, other: object) -> Blob:  # type: ignore[override]
        return self.net.apply("Not", [self == other])

    def __lt__(self, other: Operand) -> Blob:  # type: ignore[misc]
        return self._apply("Less", self, other)

    def __le__(self, other: Operand) -> Blob:  # type: ignore[misc]
        return self._apply("LessOrEqual", self, other)

    def __gt__(self, other: Operand) -> Blob:  # type: ignore[misc]
        return self._apply("Greater", self, other)

    def __ge__(self, other: Operand) -> Blob:  # type: ignore[misc]
        return self._apply("GreaterOrEqual", self, other)

    def __and__(self, other: Operand) -> Blob:
        return self._apply("And", self, other)

    def __rand__(self, other: Operand) -> Blob:
        return self._apply("And", other, self)

    def __or__(self, other: Operand) -> Blob:
        return self._apply("Or", self, other)

    def __ror__(self, other: Operand) -> Blob:
        return self._apply("Or", other, self)

    def __invert__(self) -> Blob:
        return self._apply("Not", self)

    def __neg__(self) -> Blob:
        return self._apply("Neg", self)

    def __abs__(self) -> Blob:
        return self._apply("Abs", self)


Number = Union[int, float, bool, np.number, np.bool_]  # noqa: UP007 - a runtime alias under Python 3.10
Operand = Union[Blob, Number, Array]  # noqa: UP007
