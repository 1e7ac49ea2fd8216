"""`checked_loans`: finds out whether anybody changes an array that is lent to a pullback.

Feeds, and outputs that backward reads, are borrowed between `run.vjp` and the pullback's use. Checksums of all of them
are taken at the one and compared at the other.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from rnnops.compiler import Pullback, Run
from rnnops.compiler.api.devices import on_device
from rnnops.compiler.api.feeds import is_on_cuda
from rnnops.compiler.buffers.memory import on_host
from rnnops.errors import ArgumentError
from rnnops.testing.check_error import CheckError
from rnnops.types import Array


def checked_loans(run: Run) -> CheckedRun:
    """A run whose pullbacks find out whether an array that they were lent was changed meanwhile.

    Feeds, and outputs that backward reads, are borrowed between `run.vjp` and the pullback's use. Checksums of all of
    them are taken at the one and compared at the other.

    Args:
        run: what `ro.compile` gives.

    Returns:
        What is called as the run is; its `vjp` gives pullbacks that raise CheckError, naming the array.

    Raises:
        ArgumentError: run is no run.

    Example:
        >>> net = ro.Net("net")
        >>> net.outputs(y=ro.exp(net.input("x")))
        >>> run = ro.testing.checked_loans(ro.compile(net, device="reference"))
        >>> x = np.zeros(2)
        >>> out, pullback = run.vjp(x=x)
        >>> x[:] = 9.0
        >>> try:
        ...     pullback({"y": np.ones(2)})
        ... except ro.testing.CheckError as error:
        ...     print(error.problem)
        kept blob 'x' was changed while the pullback reads it
    """
    if not isinstance(run, Run):
        raise ArgumentError("checked_loans: this is no run", wanted="what ro.compile gives", came=type(run).__name__)
    return CheckedRun(run)


class CheckedRun:
    """A run like the one inside, with checksums."""

    def __init__(self, run: Run) -> None:
        self.run, self.net = run, run.net

    def __call__(
        self, *dicts: Mapping[str, Any], seed: int | None = None, training: bool = False, **feeds: Any
    ) -> dict[str, Array]:
        """As `Run.__call__`."""
        return self.run(*dicts, seed=seed, training=training, **feeds)

    def vjp(
        self, *dicts: Mapping[str, Any], seed: int | None = None, training: bool = True, wrt: Any = None, **feeds: Any
    ) -> tuple[dict[str, Array], CheckedPullback]:
        """As `Run.vjp`."""
        outputs, pullback = self.run.vjp(*dicts, seed=seed, training=training, wrt=wrt, **feeds)
        fed = {f"feed '{name}'": _lent(value) for part in (*dicts, feeds) for name, value in part.items()}
        return outputs, CheckedPullback(pullback, self.net.name, fed)


class CheckedPullback:
    """A pullback that looks at what it was lent before it is used."""

    def __init__(self, pullback: Pullback, net: str, fed: Mapping[str, Array]) -> None:
        self.pullback, self._net = pullback, net
        kept = {f"kept blob '{name}'": array for name, array in pullback.held_arrays().items()}
        self._lent = {**kept, **fed}
        self._checksums = {name: checksum(array) for name, array in self._lent.items()}

    def __call__(self, grads: Mapping[str, Any] | Any) -> dict[str, Array]:
        self.check()
        self._lent = {}
        return self.pullback(grads)

    def step_blobs(self, name: str) -> Array:
        """As `Pullback.step_blobs`."""
        return self.pullback.step_blobs(name)

    def check(self) -> None:
        """Raise CheckError where a lent array is not what it was."""
        for name, array in self._lent.items():
            if checksum(array) != self._checksums[name]:
                raise CheckError(
                    f"{name} was changed while the pullback reads it",
                    net=self._net,
                    hint="Feeds are lent to the pullback until it is used or dropped: give it copies.",
                )


def _lent(value: Any) -> Any:
    """A feed as an array that can be looked at later, where it is."""
    return on_device(value) if is_on_cuda(value) else np.asarray(value)


def checksum(array: Array) -> bytes:
    """A checksum of the elements of an array."""
    return hashlib.blake2b(np.ascontiguousarray(on_host(array)).tobytes(), digest_size=16).digest()
