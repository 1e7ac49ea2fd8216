"""Net: named blobs and ops, single assignment; the value that users build and every pass reads.

A net under construction grows by `inputs`, `parameter`, ops and `outputs`. `snapshot()` gives an immutable copy, which
is what `recurrent_net` and `compile` take, so that building on afterwards changes nothing that exists already.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from rnnops.arguments import Attributes, named_arguments
from rnnops.blob import Blob, Operand
from rnnops.errors import NetError
from rnnops.html import preformatted
from rnnops.infer import declared_type, infer_call, output_dtypes
from rnnops.initializers import as_initializer
from rnnops.lazy import LazyModule
from rnnops.op import Input, Op, check_ports, checked_attributes, checked_shape, some_of
from rnnops.schema import schema_of
from rnnops.scopes import check_name, scoped
from rnnops.text import format_net
from rnnops.types import FLOAT, Array, Shape, Type, dtype_name, is_float, is_too_large

if TYPE_CHECKING:
    from rnnops.pictures import draw_net as draw_net
    from rnnops.pictures.drawing import Drawing
else:  # most nets are never drawn
    draw_net = LazyModule("rnnops.pictures.draw_net")


class Net(Attributes):
    """A small program over named blobs.

    Args:
        name: shown in errors and in the text of the net; name scopes that are open now do not prefix its blobs, those
            opened later do, so that a cell can be written inside a scope.
        float_dtype: for nets whose sizes are known while they are built (gradient nets): what `"float"` stands for.
        sizes_for: likewise, for nets that stay free of dtypes: `blob.type` is what it is in a run of this float dtype,
            wherever it follows from inputs with shapes.
    """

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
        self._consumers: dict[str, list[int]] = {}
        self._named: set[str] = set()
        self._checkpoints: set[str] = set()
        self._counts: dict[str, int] = {}
        self.claims: dict[str, object] = {}  # names that belong to one object, such as an unnamed cell
        self._layer = ""
        self._frozen = False

    # -- what is in it ------------------------------------------------------------------------------------------

    @property
    def ops(self) -> tuple[Op, ...]:
        return tuple(self._ops)

    @property
    def input_specs(self) -> tuple[Input, ...]:
        """Inputs and parameters, in order."""
        return tuple(self._inputs.values())

    @property
    def input_names(self) -> tuple[str, ...]:
        return tuple(self._inputs)

    @property
    def parameters(self) -> tuple[Input, ...]:
        """The inputs that have a way to start."""
        return tuple(spec for spec in self._inputs.values() if spec.initializer is not None)

    @property
    def output_blobs(self) -> dict[str, str]:
        """Output name -> blob name."""
        return dict(self._outputs)

    @property
    def blob_names(self) -> tuple[str, ...]:
        """All inputs and op outputs."""
        return tuple(self._dtypes)

    def __contains__(self, name: str) -> bool:
        return name in self._dtypes

    def blob(self, name: str) -> Blob:
        """The handle of a blob. Raises NetError for an unknown name."""
        if not isinstance(name, str) or name not in self._dtypes:
            raise NetError("no such blob", net=self.name, blob=str(name), wanted=some_of(self._dtypes))
        if name not in self._blobs:
            self._blobs[name] = Blob(self, name)
        return self._blobs[name]

    def dtype_of(self, name: str) -> str:
        return self._dtypes[name]

    def type_of(self, name: str) -> Type | None:
        return self._types.get(name)

    def shape_of(self, name: str) -> Shape:
        """The shape of a blob. Raises NetError unless it follows from shapes that inputs declare."""
        known = self._types.get(name) or declared_type(self, name)
        if known is None:
            hint = "net.input(name, shape=...) declares a shape; ro.shape(x) is the shape as a blob."
            problem = "its shape is known only once there are feeds"
            raise NetError(problem, net=self.name, blob=name, hint=hint)
        return known.shape

    def is_capturable(self, name: str) -> bool:
        """Whether a cell may find this blob by its name: inputs, parameters and `.named` blobs only."""
        return name in self._inputs or name in self._named

    # -- building ------------------------------------------------------------------------------------------------

    @named_arguments
    def inputs(self, *names: str) -> Any:
        """Declare float inputs: one blob for one name, else a tuple; may be called again for more."""
        if not names:
            raise NetError("inputs() needs at least one name", net=self.name)
        blobs = tuple(self.input(name) for name in names)
        return blobs[0] if len(blobs) == 1 else blobs

    @named_arguments
    def input(self, name: str, dtype: object = None, shape: Sequence[int] | None = None) -> Blob:
        """Declare one input; integer and bool inputs need their dtype, a shape is checked against the feed."""
        spec = Input(
            self._fresh(name), dtype_name(dtype or FLOAT), None if shape is None else checked_shape(shape, self.name)
        )
        return self.add_input(spec)

    @named_arguments
    def parameter(self, name: str, shape: Sequence[int], init: object = "xavier") -> Blob:
        """Declare an input with a way to start.

        Args:
            shape: sizes of the array.
            init: `"zeros"`, `"ones"`, `"xavier"` (uniform in +-sqrt(3 / shape[-1]) for `[out, in]` weights), a number,
                `("uniform", low, high)`, `("normal", mean, deviation)` or `("xavier", fan_in)`.
        """
        sizes = checked_shape(shape, self.name)
        return self.add_input(Input(self._fresh(name), FLOAT, sizes, as_initializer(init, self.name, name)))

    def outputs(self, /, *blobs: Blob, **named: Blob) -> None:
        """Declare outputs: `outputs(y=b)` names one, `outputs(b)` keeps the blob's name. May be called again."""
        self._check_growing()
        for name, blob in [*((None, blob) for blob in blobs), *named.items()]:
            if not isinstance(blob, Blob):
                hint = (
                    f"It holds several: {name or 'y'}=...['{next(iter(blob), 'h')}']."
                    if isinstance(blob, dict)
                    else None
                )
                raise NetError("an output is no blob", net=self.name, blob=name, came=type(blob).__name__, hint=hint)
            self._own(blob)
        for name, blob in [*((blob.name, blob) for blob in blobs), *named.items()]:
            if name in self._outputs:
                raise NetError("this output is declared already", net=self.name, blob=name)
            self._outputs[check_name(name, "output", self.name)] = blob.name

    @named_arguments
    def checkpoint(self, blob: Blob) -> Blob:
        """Register a blob to be kept under `checkpoints="collection"`, and return it. Raises NetError for an input."""
        self._check_growing()
        if not isinstance(blob, Blob):
            self._reject_operand(blob)
        if self._own(blob) in self._inputs:
            raise NetError("an input is at hand anyway", net=self.name, blob=self._own(blob))
        self._checkpoints.add(blob.name)
        return blob

    @property
    def checkpoints(self) -> frozenset[str]:
        """Blobs that were registered by `checkpoint`."""
        return frozenset(self._checkpoints)

    @named_arguments
    def constant(self, value: Any, dtype: object = None) -> Blob:
        """A constant blob; Python and NumPy floats take the run's float dtype unless `dtype` says otherwise."""
        array = np.asarray(value)
        kind = dtype_name(dtype) if dtype else FLOAT if array.dtype.kind == "f" else dtype_name(array.dtype)
        literal = array.item() if array.ndim == 0 else array
        return self.append("Constant", (), {"value": literal, "dtype": kind})[0]

    @contextmanager
    def layer(self, name: str) -> Iterator[str]:
        """Group the ops appended inside into one layer. Layers do not nest."""
        if self._layer:
            raise NetError(f"layer '{name}' is opened inside layer '{self._layer}'", net=self.name)
        with self.in_layer(self.scoped(check_name(name, "layer", self.name))):
            yield self._layer

    @contextmanager
    def in_layer(self, layer: str) -> Iterator[None]:
        """Mark the ops appended inside with a layer name as it is, `""` for none."""
        before, self._layer = self._layer, layer
        try:
            yield
        finally:
            self._layer = before

    def append(
        self,
        op_type: str,
        inputs: Sequence[Blob | None],
        attributes: Mapping[str, Any] | None = None,
        names: Sequence[str | None] | None = None,
    ) -> tuple[Blob, ...]:
        """Append an op and return its outputs; most users call the op functions instead.

        Args:
            inputs: blobs of this net, None for an optional input left out.
            names: names of the outputs, None for an automatic one, `""` for an output that is not wanted.
        """
        self._check_growing()
        schema = schema_of(op_type, self.name)
        if not isinstance(inputs, Sequence) or isinstance(inputs, str):
            raise NetError("the inputs of an op are a list of blobs", net=self.name, op=op_type, came=repr(inputs))
        attributes = checked_attributes(op_type, attributes or {}, self.name)
        count = schema.output_count(attributes)
        outputs = tuple(self._output_name(op_type, name) for name in names or [None] * count)
        op = Op(op_type, tuple(self._own(blob) for blob in inputs), outputs, attributes, self._layer)
        check_ports(op, self.name)
        self._add_op(op)
        return tuple(self._blobs.setdefault(name, Blob(self, name)) for name in outputs if name)

    def apply(self, op_type: str, operands: Sequence[Operand], **attributes: Any) -> Blob:
        """Append an op with one output; numbers and arrays among the operands take the dtype of the first blob."""
        return self.append(op_type, self.operands(operands), attributes)[0]

    def call(self, op_type: str, *arguments: Any, **options: Any) -> Blob:
        """Append an op with one output by its Python function, whose arguments these are."""
        function: Any = schema_of(op_type, self.name)
        found: Blob = function(*arguments, **options)
        return found

    def operands(self, values: Sequence[Operand], dtype: str | None = None) -> list[Blob]:
        """Blobs for values that share a dtype: numbers and arrays become constants."""
        like = dtype or next((value.dtype for value in values if isinstance(value, Blob)), FLOAT)
        return [value if isinstance(value, Blob) else self._constant_like(value, like) for value in values]

    def add_op(self, op: Op, named: Collection[str] = (), checkpoints: Collection[str] = ()) -> None:
        """Append an op whose names, attributes and layer are complete; for readers of nets.

        Args:
            named: those of its outputs that count as `.named`.
        """
        self._check_growing()
        for name in filter(None, op.inputs):
            self.blob(name)
        for name in filter(None, op.outputs):
            self._check_free(name)
        checked_attributes(op.type, op.attributes, self.name)
        schema_of(op.type).check(op, self.name)
        check_ports(op, self.name)
        self._add_op(op)
        self._named.update(named)
        self._checkpoints.update(checkpoints)

    def rename(self, blob: Blob, name: str) -> None:
        """Give a blob another name; ops and outputs that mention it follow."""
        self._check_growing()
        old = self._own(blob)
        new = self.scoped(check_name(name, "blob", self.name))
        if new != old:
            self._substitute(old, self._fresh(name))
        self._named.add(blob.name)

    # -- values --------------------------------------------------------------------------------------------------

    def snapshot(self, name: str | None = None) -> Net:
        """An immutable copy (itself, if it is immutable already and keeps its name)."""
        if self._frozen and name in (None, self.name):
            return self
        copy = Net(name or self.name, self.float_dtype)
        copy._inputs, copy._outputs, copy._dtypes = dict(self._inputs), dict(self._outputs), dict(self._dtypes)
        copy._types, copy._values, copy._named = dict(self._types), dict(self._values), set(self._named)
        copy._checkpoints = set(self._checkpoints)
        copy._ops, copy._producer = list(self._ops), dict(self._producer)
        copy._consumers = {blob: list(users) for blob, users in self._consumers.items()}
        copy._frozen = True
        return copy

    def with_ops(
        self, ops: Sequence[Op], outputs: Mapping[str, str] | None = None, inputs: Sequence[Input] | None = None
    ) -> Net:
        """A copy with other ops (and outputs, and inputs), which passes build and `snapshot()` freezes."""
        copy = Net(self.name, self.float_dtype)
        for spec in self.input_specs if inputs is None else inputs:
            copy.add_input(spec)
            if self.float_dtype and spec.name in self._types:
                copy._types[spec.name] = self._types[spec.name]
        for op in ops:
            copy._add_op(op)
        copy._named = {name for name in self._named if name in copy._dtypes}
        copy._checkpoints = {name for name in self._checkpoints if name in copy._dtypes}
        for name, blob in (self._outputs if outputs is None else outputs).items():
            copy.blob(blob)
            copy._outputs[name] = blob
        return copy

    def __call__(self, *feeds: Any, **named: Any) -> NoReturn:
        raise NetError("a net is no function yet", net=self.name, hint="run = ro.compile(net); run(feeds).")

    def __str__(self) -> str:
        return format_net(self)

    def draw(self, opened: bool = True, **shapes: Sequence[int]) -> Drawing:
        """A picture of the net: SVG, which a notebook shows and `save(path)` writes; `print` says the same in words.

        Args:
            opened: whether cells are drawn within recurrences.
            shapes: of inputs, so that edges say theirs; where inputs declare them they are known.

        Raises TypeRuleError for shapes that do not fit.
        """
        return draw_net.draw_net(self, {name: tuple(shape) for name, shape in shapes.items()}, opened)

    def _place(self) -> dict[str, str]:
        return {"net": object.__getattribute__(self, "name")}

    def _repr_html_(self) -> str:
        return preformatted(str(self))

    def __repr__(self) -> str:
        return f"<Net {self.name}: {len(self._inputs)} inputs, {len(self._ops)} ops, {len(self._outputs)} outputs>"

    # -- parts ---------------------------------------------------------------------------------------------------

    def add_input(self, spec: Input) -> Blob:
        """Declare an input as it is, its name absolute. Raises NetError where the name is taken."""
        self._check_growing()
        self._check_free(spec.name)
        if spec.shape is not None and is_too_large(spec.shape):
            problem = "no memory can hold an input of this shape"
            raise NetError(problem, net=self.name, blob=spec.name, came=list(spec.shape))
        self._inputs[spec.name] = spec
        self._dtypes[spec.name] = spec.dtype
        if spec.shape is not None and self._sized_as:
            self._types[spec.name] = Type(self._sized_as if spec.dtype == FLOAT else spec.dtype, spec.shape)
        return self.blob(spec.name)

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
        for name in {name for name in op.inputs if name}:
            self._consumers.setdefault(name, []).append(index)
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

    def _constant_like(self, value: Operand, dtype: str) -> Blob:
        array = _number_array(value, self.name)
        if dtype == "bool" and array.dtype.kind != "b":
            raise NetError("a number meets a bool blob", net=self.name, wanted="True or False", came=repr(value))
        if not is_float(dtype) and array.dtype.kind == "f":
            raise NetError(
                f"a float meets a blob of dtype {dtype}",
                net=self.name,
                came=repr(value),
                hint="Use ro.cast(blob, 'float') first.",
            )
        return self.constant(array, dtype)

    def _own(self, blob: Blob | None) -> str:
        if blob is None:
            return ""
        if not isinstance(blob, Blob):
            self._reject_operand(blob)
        if blob.net is not self:
            raise NetError(
                f"the blob belongs to net '{blob.net.name}'",
                net=self.name,
                blob=blob.name,
                hint="Ops join blobs of one net; a cell reads outer blobs through its own inputs.",
            )
        return blob.name

    def _reject_operand(self, value: object) -> NoReturn:
        raise NetError(
            "an operand is no blob", net=self.name, wanted="a blob, a number or an array", came=type(value).__name__
        )

    def scoped(self, name: str) -> str:
        """A name with the prefix of the scopes that were opened since this net was made."""
        return scoped("").removeprefix(self._scope) + name

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
                return full

    def _substitute(self, old: str, new: str) -> None:
        touched = set(self._consumers.get(old, ()))
        if old in self._producer:
            touched.add(self._producer[old])
        for index in touched:
            op = self._ops[index]
            self._ops[index] = replace(
                op,
                inputs=tuple(new if name == old else name for name in op.inputs),
                outputs=tuple(new if name == old else name for name in op.outputs),
            )
        tables: tuple[dict[str, Any], ...] = (
            self._dtypes,
            self._types,
            self._values,
            self._blobs,
            self._producer,
            self._consumers,
        )
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
        self._checkpoints = {new if name == old else name for name in self._checkpoints}
        self._blobs[new].name = new

    def _check_growing(self) -> None:
        if self._frozen:
            raise NetError("this net is a finished snapshot and cannot grow", net=self.name)


def require_net(value: object) -> None:
    """Raise NetError for what is no net, such as arguments in a wrong order."""
    if not isinstance(value, Net):
        raise NetError("this is no net", wanted="a ro.Net", came=type(value).__name__)


def common_net(values: Sequence[object]) -> Net:
    """The net of the first blob among operands. Raises NetError where there is none."""
    for value in values:
        if isinstance(value, Blob):
            return value.net
    raise NetError("an op needs at least one blob", came=", ".join(type(value).__name__ for value in values))


def _number_array(value: Operand, net: str) -> Array:
    if isinstance(value, np.ma.MaskedArray):
        raise NetError("an operand is a masked array", net=net, hint="Fill it with .filled(value) first.")
    if not isinstance(value, int | float | np.generic | np.ndarray):
        raise NetError(
            "an operand is no blob", net=net, wanted="a blob, a number or an array", came=type(value).__name__
        )
    return np.asarray(value)
