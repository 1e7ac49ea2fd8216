"""The tables of a net: its inputs, ops, names and types, and their invariants.

Names are unique, ops read what is there before them, and a net that is finished does not grow. `Net` builds on this.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NoReturn

from rnnops.arguments import Attributes, named_options
from rnnops.errors import NetError
from rnnops.net.blob import Blob
from rnnops.net.infer import infer_call, output_dtypes
from rnnops.net.op import Initializer, Input, Op, some_of
from rnnops.net.schema import schema_of
from rnnops.net.text import Labels, check_name, scoped
from rnnops.types import FLOAT, Array, Type
from rnnops.util import counted


class NetTables(Attributes):
    """Base of nets: what is in one, and how an op or a name gets in."""

    @named_options
    def __init__(self, name: str, float_dtype: str | None = None, sizes_for: str | None = None) -> None:
        self.name = check_name(name, "net")
        self.float_dtype = float_dtype
        self._sized_as = float_dtype or sizes_for
        self._scope = scoped("")
        self._inputs: dict[str, Input] = {}
        self._ops: list[Op] = []
        self._outputs: dict[str, str] = {}
        self._dtypes: dict[str, str] = {}
        self._types: dict[str, Type] = {}
        self._values: dict[str, Array] = {}
        self._blobs: dict[str, Blob] = {}
        self._producer: dict[str, int] = {}
        self._named: set[str] = set()
        self._checkpoints: set[str] = set()
        self._counts: dict[str, int] = {}
        self.labels = Labels()  # what variables say of blobs; for readers, nothing binds to it
        self.claims: dict[str, object] = {}  # names that belong to one object, such as an unnamed cell
        self.starts: dict[str, Initializer] = {}  # parameter -> the last that `set_init` gave it
        self._layer = ""
        self._frozen = False

    @property
    def ops(self) -> tuple[Op, ...]:
        """All ops, in the order in which they run."""
        return tuple(self._ops)

    @property
    def input_specs(self) -> tuple[Input, ...]:
        """Inputs and parameters, in order: name, dtype, shape and initializer, None where there is none."""
        return tuple(self._inputs.values())

    @property
    def input_names(self) -> tuple[str, ...]:
        """Names of inputs and parameters, in order."""
        return tuple(self._inputs)

    @property
    def parameters(self) -> tuple[Input, ...]:
        """The inputs that have a way to start, for `ro.init_params`."""
        return tuple(spec for spec in self._inputs.values() if spec.initializer is not None)

    @property
    def output_blobs(self) -> dict[str, str]:
        """Output name -> blob name."""
        return dict(self._outputs)

    @property
    def blob_names(self) -> tuple[str, ...]:
        """All inputs and op outputs."""
        return tuple(self._dtypes)

    @property
    def checkpoints(self) -> frozenset[str]:
        """Blobs that were registered by `checkpoint`."""
        return frozenset(self._checkpoints)

    def __contains__(self, name: str) -> bool:
        return name in self._dtypes

    def dtype_of(self, name: str) -> str:
        """The dtype of a blob, `"float"` for the float dtype of the run.

        Args:
            name: of the blob.

        Raises:
            NetError: there is no such blob.
        """
        try:
            return self._dtypes[name]
        except (KeyError, TypeError):
            raise NetError("no such blob", net=self.name, blob=str(name), wanted=some_of(self._dtypes)) from None

    def type_of(self, name: str) -> Type | None:
        """Dtype and shape of a blob, where they are known while the net is built, as in gradient nets; else None.

        Args:
            name: of the blob.
        """
        return self._types.get(name)

    def is_capturable(self, name: str) -> bool:
        """True if a cell may find this blob by its name: inputs, parameters and `.named` blobs only.

        Args:
            name: of the blob.
        """
        return name in self._inputs or name in self._named

    def scoped(self, name: str) -> str:
        """A name with the prefix of the scopes that were opened since this net was made.

        Args:
            name: what comes after the prefix.
        """
        return scoped("").removeprefix(self._scope) + name

    def _place(self) -> dict[str, str]:
        return {"net": object.__getattribute__(self, "name")}

    def _check_growing(self) -> None:
        if self._frozen:
            raise NetError("this net is a finished snapshot and cannot grow", net=self.name)

    def _fresh(self, name: str) -> str:
        full = self.scoped(check_name(name, "blob", self.name))
        self._check_free(full)
        return full

    def _check_free(self, name: str) -> None:
        if name in self._dtypes:
            raise NetError("this name is taken", net=self.name, blob=name, hint="Use ro.name_scope or another name.")

    def _output_name(self, op_type: str, name: str | None) -> str:
        if name is not None:
            return self._fresh(name) if name else ""
        base = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", op_type).lower()
        while True:
            count = self._counts[base] = self._counts.get(base, -1) + 1
            if (full := self.scoped(f"{base}_{count}")) not in self._dtypes:
                self.labels.expect(full)
                return full

    def _add_op(self, op: Op) -> None:
        schema = schema_of(op.type, self.name)
        dtypes = tuple(self._dtypes[name] if name else None for name in op.inputs)
        out_dtypes = output_dtypes(schema, op, dtypes, self.name, self.float_dtype or FLOAT)
        if self._sized_as and all(not name or name in self._types for name in op.inputs):
            self._infer_types(op)
        index = len(self._ops)
        for name, dtype in zip(op.outputs, out_dtypes, strict=True):
            if name:
                self._dtypes[name] = dtype
                self._producer[name] = index
        self._ops.append(op)

    def _infer_types(self, op: Op) -> None:
        types = [self._types.get(name) for name in op.inputs]
        values = [self._values.get(name) for name in op.inputs]
        call, folded = infer_call(op, types, values, self.name, self._sized_as or "")
        for name, kind, value in zip(op.outputs, call.output_types, folded, strict=True):
            if name:
                self._types[name] = kind
            if name and value is not None:
                self._values[name] = value

    def _substitute(self, old: str, new: str) -> None:
        for index in range(self._producer.get(old, 0), len(self._ops)):  # nothing before its maker mentions a blob
            op = self._ops[index]
            if old in op.inputs or old in op.outputs:
                self._ops[index] = replace(
                    op,
                    inputs=tuple(new if name == old else name for name in op.inputs),
                    outputs=tuple(new if name == old else name for name in op.outputs),
                )
        tables: tuple[dict[str, Any], ...] = (self._dtypes, self._types, self._values, self._blobs, self._producer)
        for table in tables:
            if old in table:
                table[new] = table.pop(old)
        if old in self._inputs:
            self._inputs = {
                new if name == old else name: replace(spec, name=new) if name == old else spec
                for name, spec in self._inputs.items()
            }
        self._outputs = {name: new if blob == old else blob for name, blob in self._outputs.items()}
        self._named.discard(old)
        self.labels.forget(old)
        self._checkpoints = {new if name == old else name for name in self._checkpoints}
        self._blobs[new].name = new

    @contextmanager
    def in_layer(self, layer: str) -> Iterator[None]:
        """Mark the ops appended inside with a layer name as it is.

        Args:
            layer: its name, `""` for none.
        """
        before, self._layer = self._layer, layer
        try:
            yield
        finally:
            self._layer = before

    def _own(self, blob: Blob | None) -> str:
        if blob is None:
            return ""
        if not isinstance(blob, Blob):
            self._reject_operand(blob)
        if blob.net is not self:
            hint = "Ops join blobs of one net; a cell reads outer blobs through its own inputs."
            raise NetError(f"the blob belongs to net '{blob.net.name}'", net=self.name, blob=blob.name, hint=hint)
        return blob.name

    def _reject_operand(self, value: object) -> NoReturn:
        hint = "net.constant(value) makes one of a number or an array."
        raise NetError("an operand is not a blob", net=self.name, wanted="a blob", came=type(value).__name__, hint=hint)

    def __call__(self, *feeds: Any, **named: Any) -> NoReturn:
        """Nets are not functions; `ro.compile(net)` is one.

        Args:
            feeds, named: of the run.

        Raises:
            NetError: always.
        """
        raise NetError("a net is not a function yet", net=self.name, hint="run = ro.compile(net); run(feeds).")

    def __repr__(self) -> str:
        sizes = (
            counted(len(self._inputs), "input"),
            counted(len(self._ops), "op"),
            counted(len(self._outputs), "output"),
        )
        return f"<Net {self.name}: {', '.join(sizes)}>"
