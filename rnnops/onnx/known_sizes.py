"""`KnownSizes`: a shape that nothing before a run can decide is refused while the file is read.

What may be known is constants, sizes of arrays, and integer arithmetic on them, whatever the sizes will be. It is
decided from ops and dtypes alone, so that it holds for every run; whether the sizes then fit is another matter.
"""

from __future__ import annotations

from typing import NoReturn

from rnnops.infer import is_integer_arithmetic
from rnnops.net import Net
from rnnops.onnx.errors import OnnxError
from rnnops.op import Op
from rnnops.schema import schema_of

ALWAYS_KNOWN = ("Constant", "Shape")


class KnownSizes:
    """Which blobs of a net may be known before a run, and what keeps the others from being known.

    Args:
        net: the net that a file is read into.
        is_body: whether it is the body of a Scan, whose inputs differ from step to step.
    """

    def __init__(self, net: Net, is_body: bool) -> None:
        self._net, self._is_body, self._seen = net, is_body, 0
        self._known: set[str] = set()
        self._sources: dict[str, str] = {}  # of each other blob that an op makes: an input of the net, or an op

    def check(self) -> None:
        """Look at the ops appended since the last time. Raises OnnxError for one whose shape can never be known."""
        first, self._seen = self._seen, len(self._net.ops)
        for op in self._net.ops[first:]:
            schema = schema_of(op.type)
            for port, name in zip((port.rstrip("?*") for port in schema.inputs), op.inputs, strict=False):
                if name and port in schema.static and name not in self._known:
                    self._refuse(op, port, name)
            self._add(op)

    def source(self, name: str) -> str | None:
        """What keeps a blob from being known before a run; None for one that is known."""
        self.check()
        return None if name in self._known else self._sources.get(name, name)

    def _add(self, op: Op) -> None:
        names = [name for name in op.outputs if name]
        dtypes = [self._net.blob(name).dtype for name in names]
        if op.type in ALWAYS_KNOWN or is_integer_arithmetic(op, dtypes, self._known):
            self._known.update(names)
        elif is_integer_arithmetic(op, dtypes, set(op.inputs)):  # it would be known if its inputs were
            unknown = next(name for name in op.inputs if name and name not in self._known)
            self._sources.update(dict.fromkeys(names, self._sources.get(unknown, unknown)))
        else:
            self._sources.update(dict.fromkeys(names, op.label))

    def _refuse(self, op: Op, port: str, name: str) -> NoReturn:
        source = self._sources.get(name, name)
        kind = "input" if source in self._net.input_names else "the result of"
        hint = "Only constants, sizes of arrays and integer arithmetic on them are known then."
        if kind == "input" and not self._is_body and source not in {spec.name for spec in self._net.parameters}:
            hint += f" If it is the same in all runs, give it: load(path, constants={{'{source}': ...}})."
        raise OnnxError(
            f"input '{port}' decides a shape, but cannot be known before a run",
            op=op.label,
            blob=name,
            came=f"what follows from {kind} '{source}'" + (" of the body" if self._is_body else ""),
            hint=hint,
        )
