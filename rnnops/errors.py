"""One family of errors: each names the net, op and blob it is about, what was wanted, what came, and what to do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class RnnopsError(Exception):
    """Base of all errors that rnnops raises on purpose.

    Args:
        problem: one sentence on what is wrong.
        net, op, blob: the names it is about, where they are known.
        wanted, came: what was expected and what was found.
        hint: what the user can do.
    """

    def __init__(
        self,
        problem: str,
        *,
        net: str | None = None,
        op: str | None = None,
        blob: str | None = None,
        wanted: object = None,
        came: object = None,
        hint: str | None = None,
    ) -> None:
        self.problem, self.net, self.op, self.blob = problem, net, op, blob
        self.wanted, self.came, self.hint = wanted, came, hint
        super().__init__(self._text())

    def again(self) -> RnnopsError:
        """A fresh error of the same content, to raise an error that was found earlier."""
        return type(self)(
            self.problem, net=self.net, op=self.op, blob=self.blob, wanted=self.wanted, came=self.came, hint=self.hint
        )

    def _text(self) -> str:
        where = [f"{kind} '{name}'" for kind, name in (("net", self.net), ("op", self.op), ("blob", self.blob)) if name]
        text = f"{', '.join(where)}: {self.problem}" if where else self.problem
        if self.wanted is not None:
            text += f"; wanted {self.wanted}"
        if self.came is not None:
            text += f"; got {self.came}"
        return f"{text}. {self.hint}" if self.hint else text


class NetError(RnnopsError):
    """A net is built wrongly: unknown, duplicate or clashing names, wrong operands or attributes."""


class OpError(RnnopsError):
    """An op is declared wrongly, or does not do what it declares."""


OWN_ERRORS = (RnnopsError, MemoryError)  # these say by themselves what they are about


def failed_rule(rule: str, error: Exception, net: str, op: str) -> OpError:
    """The error that says whose rule it was that raised one."""
    return OpError(f"its rule `{rule}` fails with {type(error).__name__}: {error}", net=net, op=op)


@contextmanager
def named_rule(rule: str, net: str, op: str) -> Iterator[None]:
    """Give what a rule of an op raises the names of net, op and rule; errors of rnnops have names already."""
    try:
        yield
    except OWN_ERRORS:
        raise
    except Exception as error:
        raise failed_rule(rule, error, net, op) from error


class TypeRuleError(RnnopsError):
    """Shapes or dtypes do not fit an op."""


class FeedError(RnnopsError):
    """A run was given wrong arrays: missing, extra, of a wrong rank, size or dtype, or no seed."""


class StreamError(RnnopsError):
    """A stream was opened, or is used, wrongly: names, shapes of states, rows that are not there, two threads."""


class RecurrentError(RnnopsError):
    """`recurrent_net` was given links, states, inputs or recompute lists that do not fit the cell."""


class GradientError(RnnopsError):
    """A gradient was asked for where there is none, or a pullback was used wrongly."""


class NumericsError(RnnopsError):
    """An output or a gradient is not finite, and a run was asked to look for that."""


class CheckpointError(RnnopsError):
    """A checkpoint policy, or an argument of one, that makes no sense."""


class UnknownCheckpointError(CheckpointError):
    """A checkpoint policy names blobs that are not there."""


class NothingToRecomputeError(CheckpointError):
    """A checkpoint policy leaves nothing to compute again, though it was asked to."""


class NoBottleneckError(CheckpointError):
    """No blobs were found at which a net can be cut into segments."""


class BudgetError(CheckpointError):
    """No way to run a net backward fits a memory budget."""


class DeviceError(RnnopsError):
    """A device is unknown or cannot do what was asked."""


class ParseError(RnnopsError):
    """The text of a net cannot be read."""


class OutOfMemoryError(RnnopsError, MemoryError):
    """An array, or a plan, does not fit in memory."""


def op_label(op_type: str, outputs: tuple[str, ...]) -> str:
    """`Add -> gates`: how errors name one op of a net."""
    return f"{op_type} -> {', '.join(name for name in outputs if name)}"


class UnknownNameError(RnnopsError, AttributeError):
    """Something has no attribute of this name."""


class ArgumentError(RnnopsError, TypeError):
    """A function was called with arguments that it has not, or without some that it needs."""


class ModelError(RnnopsError):
    """A model or a layer is put together or called wrongly."""


class OptimizerError(RnnopsError):
    """Settings, parameters, gradients or state of an optimizer do not fit."""


class GradientNormError(OptimizerError):
    """The global gradient norm is not finite."""


class SaveError(RnnopsError):
    """A model cannot be saved, or a file holds no intact model, or not this one."""
