"""Runs that say where the first NaN or infinity comes from.

Outputs and gradients are looked at, which costs a pass over them. Where one is not finite, the reference device does
the same again and every op of every step is looked at: slow, and only then.

What an op of a recurrence makes past the end of rows is not named where SelectValid drops it in that step, unless
there is nothing else: on the backward pass it may count again.

Limits: what never reaches an output or a gradient is not looked for, so masks of -inf are not errors; `pullback.layers`
is not looked at. What a step makes before a recurrence within it is named though the rows are over.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NoReturn

import numpy as np

from rnnops.compiler.api.derivatives import Pullback
from rnnops.compiler.api.feeds import Feeds
from rnnops.compiler.api.run import Run
from rnnops.compiler.run.compiled_scan import REFERENCE
from rnnops.errors import DeviceError, NumericsError, named_arguments
from rnnops.net.schema import Call, RunContext
from rnnops.types import Array
from rnnops.util import cached_property

GIVEN = "gradient "  # before names of gradients that are given


class CheckedPullback(Pullback):
    """A pullback whose gradients are looked at."""

    check: Callable[[Any, Mapping[str, Array]], None]

    def __call__(self, grads: Mapping[str, Any] | Any) -> dict[str, Array]:
        """Run the backward pass; as any pullback, and raises NumericsError for a gradient that is not finite."""
        found = super().__call__(grads)
        self.check(grads, found)
        return found


class CheckedRun(Run):
    """A run whose outputs and gradients are looked at."""

    pullback: ClassVar[type[Pullback]] = CheckedPullback

    def __call__(
        self, *dicts: Feeds, seed: int | None = None, training: bool = False, **feeds: Any
    ) -> dict[str, Array]:
        """Forward pass; as any run, and raises NumericsError for an output that is not finite."""
        outputs = super().__call__(*dicts, seed=seed, training=training, **feeds)
        self._check("output", outputs, (*dicts, feeds), lambda run: run(*dicts, seed=seed, training=training, **feeds))
        return outputs

    def vjp(
        self, *dicts: Feeds, seed: int | None = None, training: bool = True, wrt: Any = None, **feeds: Any
    ) -> tuple[dict[str, Array], Pullback]:
        """Forward pass and pullback; as any run, and both raise NumericsError for what is not finite."""

        def again(run: Run) -> tuple[dict[str, Array], Pullback]:
            return run.vjp(*dicts, seed=seed, training=training, wrt=wrt, **feeds)

        def check(given: Any, grads: Mapping[str, Array]) -> None:
            ones = given if isinstance(given, Mapping) else {"of the output": given}
            named = {f"{GIVEN}{name}": one for name, one in ones.items()}
            self._check("gradient of", grads, (named, *dicts, feeds), lambda run: again(run)[1](given))

        outputs, pullback = super().vjp(*dicts, seed=seed, training=training, wrt=wrt, **feeds)
        self._check("output", outputs, (*dicts, feeds), lambda run: again(run)[0])
        assert isinstance(pullback, CheckedPullback)
        pullback.check = check
        return outputs, pullback

    @named_arguments
    def bind(self, *, weights: Any = None, **params: Any) -> Run:
        """A run with some inputs fed once and for all, whose numbers are looked at; as any run."""
        if isinstance(weights, str):
            hint = "Bind a run without check_numerics."
            raise DeviceError(f"weights of {weights} are not looked at", net=self.net.name, hint=hint)
        run = super().bind(weights=weights, **params)
        return CheckedRun(run.net, run.device, run._options, run._bound, run._saving)

    def export_native(self, *arguments: Any, **options: Any) -> NoReturn:
        """Raises DeviceError: what is exported does not look at numbers."""
        hint = "Export a run without check_numerics."
        raise DeviceError("programs without Python do not look at numbers", net=self.net.name, hint=hint)

    def _check(
        self,
        what: str,
        arrays: Mapping[str, Array],
        feeds: Sequence[Feeds],
        again: Callable[[Run], Mapping[str, Array]],
    ) -> None:
        """Raise NumericsError where an array is not finite, by the op that made it so."""
        bad = next((name for name, array in arrays.items() if not is_finite(array)), None)
        if bad is None:
            return
        reference = replace(REFERENCE, precision=self._options.precision)
        watched = _Watched(self.net, "reference", reference, self._bound)
        exact = again(watched)
        watched.watcher.close_step()
        fed = {name: array for given in (self._bound, *feeds) for name, array in given.items() if not is_finite(array)}
        if fed:
            raise self._fed_error(fed, f"{what} '{bad}'")
        if not is_finite(exact[bad]):
            if watched.watcher.dropped:
                raise watched.watcher.dropped[0].error
            raise NumericsError(f"a constant is not finite, and reaches {what} '{bad}'", net=self.net.name)
        problem = f"{what} '{bad}' is not finite on this device, and is on the reference device"
        raise NumericsError(problem, net=self.net.name, came=self.device)

    def _fed_error(self, fed: Mapping[str, Any], where: str) -> NumericsError:
        """The error for a feed that is not finite, or for a gradient; one with NaN first, as masks have infinities."""
        name, array = min(fed.items(), key=lambda item: not np.isnan(np.asarray(item[1])).any())
        values = np.asarray(array)
        lost = np.isnan(values)
        came = f"NaN at {np.argwhere(lost)[0].tolist()}" if lost.any() else f"infinity at {place_of(values)}"
        kind = "a gradient that was given" if name.startswith(GIVEN) else "a feed"
        problem = f"{kind} is not finite, and reaches {where}"
        return NumericsError(problem, net=self.net.name, blob=name.removeprefix(GIVEN), came=came)


class _Watched(Run):
    """A run on the reference device that stops at the first op that makes a NaN or an infinity."""

    @cached_property
    def watcher(self) -> Watcher:
        """The watcher of its ops."""
        return Watcher(self.net.name)

    def _context(self, seed: int | None, training: bool) -> RunContext:
        return replace(super()._context(seed, training), watch=self.watcher)


@dataclass(frozen=True)
class NotFinite:
    """A NaN or an infinity that an op made.

    Args:
        error: that says so.
        rows: whether each element of the result's first axis has one.
    """

    error: NumericsError
    rows: Array


class Watcher:
    """Looks at ops in the order in which they run, and stops at the first NaN or infinity that is not dropped.

    What a step of a recurrence makes is known to stay when the step is over.

    Args:
        net: name of the outer net.
    """

    def __init__(self, net: str) -> None:
        self.dropped: list[NotFinite] = []
        self._net, self._step = net, (net, 0)
        self._made: list[NotFinite] = []  # in this step

    def __call__(self, call: Call, operands: Sequence[Any], results: Sequence[Any], t: int) -> None:
        if self._step != (call.net, t):
            self.close_step()
            self._step = call.net, t
        if call.op.type == "SelectValid":
            self._drop(np.asarray(operands[3]) >= operands[2])
        for name, result in zip(call.op.outputs, results, strict=True):
            made = name and made_here(operands, result)
            if made:
                error = self._error(call, name, result, operands, made)
                self._made.append(NotFinite(error, bad_rows(result)))
        if call.net == self._net:
            self.close_step()

    def close_step(self) -> None:
        """Raise NumericsError for the first that a step made and did not drop."""
        if self._made:
            raise self._made[0].error

    def _drop(self, over: Array) -> None:
        """Take out what lies in rows that are over alone."""
        gone = [one for one in self._made if one.rows.shape == over.shape and not (one.rows & ~over).any()]
        self.dropped += gone
        self._made = [one for one in self._made if not any(one is other for other in gone)]

    def _error(self, call: Call, name: str, result: Array, operands: Sequence[Any], made: str) -> NumericsError:
        step = f", in step {self._step[1]}" if call.net != self._net else ""
        return NumericsError(
            f"the first {made} is made here{step}",
            net=call.net,
            op=call.op.label,
            blob=name,
            wanted="finite numbers",
            came=f"{made} at {place_of(result)} of operands {', '.join(map(in_words, operands))}",
        )


def bad_rows(result: Array) -> Array:
    """Which elements of the first axis are not finite somewhere; the one of an array without axes."""
    rows = ~np.isfinite(np.atleast_1d(result))
    return np.asarray(rows.reshape(len(rows), -1).any(axis=1))


def is_finite(array: Any) -> bool:
    """True if an array has neither NaN nor infinity; integers have none."""
    values = np.asarray(array)
    return values.dtype.kind != "f" or bool(np.isfinite(values).all())


def made_here(operands: Sequence[Any], result: Any) -> str | None:
    """The first infinity that an op makes of finite operands, or NaN of operands without NaN; else None."""
    if not isinstance(result, np.ndarray) or is_finite(result):
        return None
    arrays = [one for one in operands if isinstance(one, np.ndarray) and one.dtype.kind == "f"]
    if np.isnan(result).any() and not any(np.isnan(one).any() for one in arrays):
        return "NaN"
    return "infinity" if arrays and all(map(is_finite, arrays)) else None


def place_of(result: Array) -> list[int]:
    """Where the first element that is not finite lies."""
    return [int(i) for i in np.argwhere(~np.isfinite(result))[0]]


def in_words(operand: Any) -> str:
    """An operand by its range."""
    if not isinstance(operand, np.ndarray) or operand.size == 0 or operand.dtype.kind not in "fiu":
        return "none"
    with np.errstate(invalid="ignore"):
        return f"{operand.dtype}{list(operand.shape)} from {operand.min():.3g} to {operand.max():.3g}"
