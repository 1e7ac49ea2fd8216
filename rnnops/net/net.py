"""Net: named blobs and ops, each assigned once. Users build nets, and every pass reads them.

A net under construction grows by `inputs`, `parameter`, ops and `outputs`. `snapshot()` makes an immutable copy.
`recurrent_net` and `compile` take such a copy, so later changes of the net do not affect them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

import numpy as np

from rnnops.errors import NetError, check_flags, did_you_mean, named_arguments
from rnnops.net.blob import Blob, Operand
from rnnops.net.infer import Labels, NetTables, declared_type
from rnnops.net.op import (
    Input,
    Op,
    as_initializer,
    check_name,
    check_ports,
    checked_attributes,
    checked_shape,
    dotted,
    some_of,
)
from rnnops.net.schema import schema_of
from rnnops.types import COMPLEX, FLOAT, Array, Shape, Type, dtype_name, is_float, is_too_large
from rnnops.util import LazyModule, preformatted

if TYPE_CHECKING:
    from rnnops.net import drawing as drawing, text as texts
    from rnnops.net.drawing import Drawing
else:  # most nets are never drawn
    drawing, texts = LazyModule("rnnops.net.drawing"), LazyModule("rnnops.net.text")


class Net(NetTables):
    """A small program over named blobs; `print(net)` lists it.

    Args:
        name: shown in errors and in the text of the net. Scopes that are open when the net is made do not apply to its
            blobs, so a cell can be written inside a scope. Scopes that are opened later apply.
        float_dtype: the dtype for `"float"`, for nets whose sizes are known while they are built (gradient nets).
        sizes_for: the float dtype for which `blob.type` gives types while the net is built, if they follow from inputs
            with shapes. The net itself still has no fixed float dtype.

    Raises:
        NetError: the name is empty or not printable.

    Example:
        >>> net = ro.Net("line")
        >>> x, b = net.inputs("x", "b")
        >>> w = net.parameter("w", [1, 2], init="ones")
        >>> net.outputs(y=w @ x + b)
        >>> net
        <Net line: 3 inputs, 2 ops, 1 output>
        >>> net.input_names, net.output_blobs
        (('x', 'b', 'w'), {'y': 'add_0'})
        >>> feeds = {"x": np.array([1.0, 2.0]), "b": np.array([0.5]), **ro.init_params(net, seed=0, dtype="float64")}
        >>> ro.compile(net, device="reference")(feeds)
        {'y': array([3.5])}
    """

    # -- what is in it ------------------------------------------------------------------------------------------

    def blob(self, name: str) -> Blob:
        """The handle of a blob.

        Args:
            name: name of an input, or of a result of an op.

        Raises:
            NetError: there is no such blob.
        """
        if not isinstance(name, str) or name not in self._dtypes:
            raise NetError("no such blob", net=self.name, blob=str(name), wanted=some_of(self._dtypes))
        if name not in self._blobs:
            self._blobs[name] = Blob(self, name)
        return self._blobs[name]

    def shape_of(self, name: str) -> Shape:
        """The sizes of a blob.

        Args:
            name: the blob's name.

        Raises:
            NetError: the sizes do not follow from shapes that inputs declare.
        """
        known = self._types.get(name) or declared_type(self, name)
        if known is None:
            hint = "net.input(name, shape=...) declares a shape; ro.shape(x) is the shape as a blob."
            problem = "its shape is known only once there are feeds"
            raise NetError(problem, net=self.name, blob=name, hint=hint)
        return known.shape

    # -- building ------------------------------------------------------------------------------------------------

    @named_arguments
    def inputs(self, *names: str) -> Any:
        """Declares float inputs of any shape. It may be called again for more.

        Args:
            names: names of the inputs, which are the keys of feeds.

        Returns:
            One blob for one name, else a tuple.

        Raises:
            NetError: there is no name, or one is taken.
        """
        if not names or isinstance(names[0], list | tuple):
            hint = "Names go one by one: net.inputs('x', 'h')."
            raise NetError("inputs() needs at least one name", net=self.name, came=repr(names)[:60], hint=hint)
        blobs = tuple(self.input(name) for name in names)
        return blobs[0] if len(blobs) == 1 else blobs

    @named_arguments
    def input(self, name: str, dtype: object = None, shape: Sequence[int] | None = None) -> Blob:
        """Declare one input.

        Args:
            name: key of its feed in a run.
            dtype: by default `"float"` (the float dtype of the run). Or `"int32"`, `np.bool_`, ...
            shape: sizes that feeds must have. By default any.

        Raises:
            NetError: the name is taken, or the dtype or shape is wrong.
        """
        if isinstance(dtype, tuple | list):
            hint = f"A shape goes by name: net.input({name!r}, shape={dtype!r})."
            raise NetError("a dtype is not a shape", net=self.name, blob=str(name), came=repr(dtype), hint=hint)
        sizes = None if shape is None else checked_shape(shape, self.name, name)
        return self.add_input(Input(self._fresh(name), dtype_name(dtype or FLOAT), sizes))

    @named_arguments
    def parameter(self, name: str, shape: Sequence[int], init: object = "xavier") -> Blob:
        """Declares a float input with an initializer.

        Args:
            name: key of its feed in a run.
            shape: sizes of the array.
            init: `"zeros"`, `"ones"`, `"xavier"` (uniform in +-sqrt(3 / shape[-1]) for `[out, in]` weights), a number,
                `("uniform", low, high)`, `("normal", mean, deviation)` or `("xavier", fan_in)`. Or an array that
                broadcasts to the shape; it is copied. Or a function of the shape, or of the shape and a NumPy
                `Generator`, that returns an array of the shape; `ro.init_params` calls it.

        Raises:
            NetError: the name is taken, or shape or init is wrong.
        """
        sizes = checked_shape(shape, self.name, name)
        return self.add_input(Input(self._fresh(name), FLOAT, sizes, as_initializer(init, self.name, name, sizes)))

    @named_arguments
    def set_init(self, init: Mapping[str, object], scope: str = "") -> None:
        """Changes the initializers of parameters, before the net is compiled.

        Args:
            init: name or pattern (such as `"*_b"`) of parameters -> as `init` of `parameter`. The last match counts.
            scope: prefix of all these names, such as `"lstm"`.

        Raises:
            NetError: a name fits no parameter, or a value does not fit its parameter.

        Example:
            >>> net = ro.Net("model", sizes_for="float32")
            >>> h_all, h_last = ro.GRU(net, net.input("x", shape=(7, 2, 3)), None, None, 3, 4, scope="gru")
            >>> net.set_init({"*_b": "ones"}, scope="gru")
            >>> ro.init_params(net, seed=0)["gru/i2h_b"][:2]
            array([1., 1.], dtype=float32)
        """
        self._check_growing()
        if not isinstance(init, Mapping):
            wanted = 'a dict of names, {"gates_t_w": array, "*_b": "zeros"}'
            raise NetError("initial values of parameters have no names", net=self.name, wanted=wanted, came=repr(init))
        prefix = f"{scope}/".lstrip("/")
        names = [spec.name.removeprefix(prefix) for spec in self.parameters if spec.name.startswith(prefix)]
        for pattern, values in init.items():
            found = [name for name in names if fnmatchcase(dotted(name), dotted(str(pattern)))]
            if not found:
                problem, hint = f"init= names no parameter of '{scope}'", did_you_mean(pattern, names)
                raise NetError(problem, net=self.name, blob=str(pattern), wanted=some_of(names), hint=hint)
            for spec in (self._inputs[prefix + name] for name in found):
                start = self.starts[spec.name] = as_initializer(values, self.name, spec.name, spec.shape or ())
                self._inputs[spec.name] = replace(spec, initializer=start)

    def outputs(self, /, *blobs: Blob, **named: Blob) -> None:
        """Declares outputs: `outputs(y=b)` names one, `outputs(b)` keeps the blob's name. It may be called again.

        Args:
            blobs, named: blobs of this net.

        Raises:
            NetError: an output is not a blob of this net, or its name is taken.
        """
        self._check_growing()
        self.labels.look(self._blobs)
        for name, blob in [*((None, blob) for blob in blobs), *named.items()]:
            if not isinstance(blob, Blob):
                hint = _one_of_several(blob, name or "y")
                raise NetError("an output is not a blob", net=self.name, blob=name, came=type(blob).__name__, hint=hint)
            self._own(blob)
        for name, blob in [*((blob.name, blob) for blob in blobs), *named.items()]:
            if name in self._outputs:
                raise NetError("this output is declared already", net=self.name, blob=name)
            self._outputs[check_name(name, "output", self.name)] = blob.name

    @named_arguments
    def checkpoint(self, blob: Blob) -> Blob:
        """Registers a blob to be kept under `checkpoints="collection"`, and returns it.

        Args:
            blob: a result of an op of this net.

        Raises:
            NetError: it is an input, or not a blob of this net.
        """
        self._check_growing()
        if not isinstance(blob, Blob):
            self._reject_operand(blob)
        if self._own(blob) in self._inputs:
            raise NetError("an input is always kept", net=self.name, blob=self._own(blob))
        self._checkpoints.add(blob.name)
        return blob

    @named_arguments
    def constant(self, value: Any, dtype: object = None) -> Blob:
        """A constant blob. Operators also take numbers and arrays directly.

        Args:
            value: a number, or an array of numbers or bools, or lists of them.
            dtype: `"float"` (the float dtype of the run), `"int32"`, ... By default the dtype of the value, and
                `"float"` for floats.

        Raises:
            NetError: the value is not an array, or there is no such dtype.
            TypeRuleError: once shapes are known, the value does not fit the dtype.
        """
        try:
            array = np.asarray(value)
        except ValueError as error:
            raise NetError("a constant is not an array", net=self.name, came=repr(value)[:40]) from error
        kind = dtype_name(dtype) if dtype else FLOAT if array.dtype.kind == "f" else dtype_name(array.dtype)
        literal = array.item() if array.ndim == 0 else array
        return self.append("Constant", (), {"value": literal, "dtype": kind})[0]

    @contextmanager
    def layer(self, name: str) -> Iterator[str]:
        """Groups the ops that are appended inside into one layer, for `pullback.layers`. Layers do not nest.

        Args:
            name: name of the layer. Open name scopes are put before it.

        Yields:
            The whole name.

        Raises:
            NetError: it is not a name, or another layer is open.
        """
        if self._layer:
            raise NetError(f"layer '{name}' is opened inside layer '{self._layer}'", net=self.name)
        with self.in_layer(self.scoped(check_name(name, "layer", self.name))):
            yield self._layer

    def append(
        self,
        op_type: str,
        inputs: Sequence[Blob | None],
        attributes: Mapping[str, Any] | None = None,
        names: Sequence[str | None] | None = None,
    ) -> tuple[Blob, ...]:
        """Appends an op and returns its outputs. Most users call the op functions instead.

        Args:
            op_type: a name of `ro.op_names()`.
            inputs: blobs of this net, None for an optional input that is left out.
            attributes: by name. Those left out have their defaults.
            names: names of the outputs, None for an automatic one, `""` for an output that is not wanted.

        Returns:
            A tuple of blobs, without unwanted outputs.

        Raises:
            NetError: there is no such op or attribute, inputs do not fit, a name is taken, or the net is a snapshot.
            TypeRuleError: dtypes do not fit.
        """
        self._check_growing()
        schema = schema_of(op_type, self.name)
        if not isinstance(inputs, Sequence) or isinstance(inputs, str):
            raise NetError("the inputs of an op must be a list of blobs", net=self.name, op=op_type, came=repr(inputs))
        attributes = checked_attributes(op_type, attributes or {}, self.name)
        self.labels.look(self._blobs)
        count = schema.output_count(attributes)
        outputs = tuple(self._output_name(op_type, name) for name in names or [None] * count)
        op = Op(op_type, tuple(self._own(blob) for blob in inputs), outputs, attributes, self._layer)
        check_ports(op, self.name)
        self._add_op(op)
        return tuple(self._blobs.setdefault(name, Blob(self, name)) for name in outputs if name)

    def apply(self, op_type: str, operands: Sequence[Operand], **attributes: Any) -> Blob:
        """Appends an op with one output. Numbers and arrays among the operands take the dtype of the first blob.

        Args:
            op_type: a name of `ro.op_names()`.
            operands: blobs of this net, numbers and arrays.
            attributes: by name.

        Raises:
            NetError: as in `append`, and for a number that does not fit the dtype.
            TypeRuleError: dtypes do not fit.
        """
        return self.append(op_type, self.operands(operands), attributes)[0]

    def call(self, op_type: str, *arguments: Any, **options: Any) -> Blob:
        """Appends an op with one output, by its Python function.

        Args:
            op_type: a name of `ro.op_names()`.
            arguments, options: arguments of the function.

        Raises:
            NetError: there is no such op. Errors of the function pass through.
        """
        function: Any = schema_of(op_type, self.name)
        found: Blob = function(*arguments, **options)
        return found

    def operands(self, values: Sequence[Operand], dtype: str | None = None) -> list[Blob]:
        """Blobs for values that share a dtype. Numbers and arrays become constants.

        Args:
            values: blobs, numbers and arrays.
            dtype: dtype of constants. By default that of the first blob.

        Raises:
            NetError: a value is none of these, or does not fit the dtype.
        """
        like = dtype or next((value.dtype for value in values if isinstance(value, Blob)), FLOAT)
        return [value if isinstance(value, Blob) else self._constant_like(value, like) for value in values]

    def add_op(self, op: Op, named: Collection[str] = (), checkpoints: Collection[str] = ()) -> None:
        """Appends an op whose names, attributes and layer are complete. For readers of nets.

        Args:
            op: its inputs exist, and its outputs do not yet.
            named: outputs of it that count as `.named`.
            checkpoints: outputs of it that count as registered by `checkpoint`.

        Raises:
            NetError: names, ports or attributes do not fit.
            TypeRuleError: dtypes do not fit.
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
        """Gives a blob another name. Ops and outputs that mention it follow.

        Args:
            blob: a blob of this net.
            name: its new name. Open name scopes are put before it.

        Raises:
            NetError: the name is taken or not a name, or the net is a snapshot.
        """
        self._check_growing()
        old = self._own(blob)
        new = self.scoped(check_name(name, "blob", self.name))
        if new != old:
            self._substitute(old, self._fresh(name))
        self._named.add(blob.name)

    # -- values --------------------------------------------------------------------------------------------------

    def snapshot(self, name: str | None = None) -> Net:
        """An immutable copy. A net that is immutable and keeps its name is returned itself.

        Args:
            name: name of the copy. By default the same.

        Raises:
            NetError: the name is empty or not printable.
        """
        if self._frozen and name in (None, self.name):
            return self
        copy = Net(name or self.name, self.float_dtype)
        copy._inputs, copy._outputs, copy._dtypes = dict(self._inputs), dict(self._outputs), dict(self._dtypes)
        copy._types, copy._values, copy._named = dict(self._types), dict(self._values), set(self._named)
        copy._checkpoints, copy.labels = set(self._checkpoints), Labels(self.labels.names)
        copy._ops, copy._producer = list(self._ops), dict(self._producer)
        copy._frozen = True
        return copy

    def with_ops(
        self, ops: Sequence[Op], outputs: Mapping[str, str] | None = None, inputs: Sequence[Input] | None = None
    ) -> Net:
        """A copy with other ops (and outputs, and inputs).

        Passes build nets in this way, and `snapshot()` freezes them.

        Args:
            ops: all ops of the copy, in order.
            outputs: output name -> blob. By default the same.
            inputs: all inputs of the copy. By default the same.

        Raises:
            NetError: an output is not a blob of the copy, or names clash.
        """
        copy = Net(self.name, self.float_dtype)
        for spec in self.input_specs if inputs is None else inputs:
            copy.add_input(spec)
            if self.float_dtype and spec.name in self._types:
                copy._types[spec.name] = self._types[spec.name]
        for op in ops:
            copy._add_op(op)
        copy._named = {name for name in self._named if name in copy._dtypes}
        copy._checkpoints = {name for name in self._checkpoints if name in copy._dtypes}
        copy.labels = Labels({name: label for name, label in self.labels.names.items() if name in copy._dtypes})
        for name, blob in (self._outputs if outputs is None else outputs).items():
            copy.blob(blob)
            copy._outputs[name] = blob
        return copy

    def __str__(self) -> str:
        return texts.format_net(self)

    def draw(self, opened: bool = True, views: bool = False, **shapes: Sequence[int]) -> Drawing:
        """A picture of the net as SVG. A notebook shows it, `save(path)` writes it, and `print` says the same in words.

        Args:
            opened: True to draw cells inside of recurrences.
            views: True to draw ops that only change the shape, such as Reshape.
            shapes: shapes of inputs, for inputs that do not declare one. Edges then show sizes.

        Raises:
            NetError: a shape is not a shape.
            TypeRuleError: shapes do not fit.
        """
        check_flags("draw", opened=opened, views=views)
        known = {name: checked_shape(shape, self.name, name) for name, shape in shapes.items()}
        return drawing.draw_net(self, known, opened, views)

    def _repr_html_(self) -> str:
        return preformatted(str(self))

    # -- parts ---------------------------------------------------------------------------------------------------

    def add_input(self, spec: Input) -> Blob:
        """Declares an input as given. Its name is absolute.

        Args:
            spec: name, dtype, shape and initializer.

        Raises:
            NetError: the name is taken, or no memory can hold the shape.
        """
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

    def _constant_like(self, value: Operand, dtype: str) -> Blob:
        array = _number_array(value, self.name)
        if dtype == "bool" and array.dtype.kind != "b":
            raise NetError("a number meets a bool blob", net=self.name, wanted="True or False", came=repr(value))
        if not is_float(dtype) and array.dtype.kind == "f":
            hint = "Use ro.cast(blob, 'float') first."
            raise NetError(f"a float meets a blob of dtype {dtype}", net=self.name, came=repr(value), hint=hint)
        return self.constant(array, dtype)


def _one_of_several(value: object, name: str) -> str | None:
    """A hint for a dict, a list or a tuple of blobs that was given as an output."""
    if isinstance(value, dict):
        return f"It holds several: {name}=...['{next(iter(value), 'h')}']."
    return f"It holds several: {name}=...[0]." if isinstance(value, tuple | list) else None


def require_net(value: object, hint: str | None = None) -> None:
    """Raise NetError for a value that is not a net, such as arguments in a wrong order."""
    if not isinstance(value, Net):
        if hint is None and isinstance(getattr(value, "net", None), Net):
            hint = f"Its net is its attribute 'net': give {type(value).__name__}.net."
        raise NetError("this is not a net", wanted="a ro.Net", came=type(value).__name__, hint=hint)


def common_net(values: Sequence[object]) -> Net:
    """The net of the first blob among operands. Raises NetError if there is none."""
    for value in values:
        if isinstance(value, Blob):
            return value.net
    raise NetError("an op needs at least one blob", came=", ".join(type(value).__name__ for value in values))


def _number_array(value: Operand, net: str) -> Array:
    if isinstance(value, complex) or getattr(value, "dtype", None) in (np.complex64, np.complex128):
        raise NetError("an operand is complex", net=net, came=type(value).__name__, hint=COMPLEX)
    if isinstance(value, np.ma.MaskedArray):
        raise NetError("an operand is a masked array", net=net, hint="Fill it with .filled(value) first.")
    if not isinstance(value, int | float | np.generic | np.ndarray):
        hint = "It holds several: take one, y[0]." if isinstance(value, tuple) else None
        hint = "Make an array of it: np.array(values)." if isinstance(value, list) else hint
        wanted = "a blob, a number or an array"
        raise NetError("an operand is not a blob", net=net, wanted=wanted, came=type(value).__name__, hint=hint)
    return np.asarray(value)
