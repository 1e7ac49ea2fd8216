"""`export`: a net as an ONNX file.

**Recurrences first lose results that are not read**.

**A RecurrentNetwork becomes a Scan with the cell as its body**. If the cell sees one earlier step of a state, the Scan
carries the state. A state with a window, or with several initial steps, is carried as a buffer of its last steps, rows
first, `[N, L, ...]`. The timestep is a scan input. It also gives the number of steps if there is no sequence.
Attributes that concern only training (values to recompute, outputs that get gradients) are not written.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx
from onnx.defs import onnx_opset_version

from rnnops.errors import OnnxError, RnnopsError
from rnnops.model import Model
from rnnops.net.infer import infer
from rnnops.net.net import Net
from rnnops.net.op import Op
from rnnops.net.schema import Call, schema_of
from rnnops.onnx.export_ops import GraphWriter, Operand, named_dims, value_info, write_op
from rnnops.onnx.find_rnn_nodes import FoundLayer, Index, find_preset, find_rnn_nodes, write_preset
from rnnops.onnx.node import FAR, NEWEST_OPSET, about, element_type
from rnnops.onnx.open_sizes import SMALL, Dims, MadeUpSizes, sizes_of_weights, with_sizes
from rnnops.recurrent.recurrence import Recurrence, State, cell_program, input_types
from rnnops.types import FLOAT, FLOATS, Array, Type
from rnnops.util import replaced


def leave_out_unread(net: Net) -> Net:
    """Leaves out results that are not read, where an op allows it. Cells are treated in the same way.

    rewrite: `h_all, h_last = RecurrentNetwork(...); return h_all`  -->  `h_all, _ = RecurrentNetwork(...)`
    """
    read = {name for op in net.ops for name in op.inputs} | set(net.output_blobs.values())
    return net.with_ops([_without_unread(op, read) for op in net.ops]).snapshot()


def _without_unread(op: Op, read: set[str]) -> Op:
    if not schema_of(op.type).may_omit_outputs or "cell" not in op.attributes:
        return op
    outputs = tuple(name if name in read else "" for name in op.outputs)
    attributes = {**op.attributes, "cell": leave_out_unread(op.attributes["cell"])}
    return op if not any(outputs) else replace(op, outputs=outputs, attributes=attributes)


@dataclass
class Typed:
    """A net with the types of all its blobs, for two choices of its open sizes."""

    net: Net
    calls: tuple[Call, ...]
    types: tuple[dict[str, Type], dict[str, Type]]
    sizes: MadeUpSizes
    float_dtype: str


def typed(net: Net, shapes: Mapping[str, Dims], float_dtype: str, names: Collection[str] = ()) -> Typed:
    """Infers all types. Smaller sizes are tried if large ones exceed a table, or weights fix a size.

    Args:
        names: names of sizes that stay open.

    Raises TypeRuleError if shapes do not fit the net, and OnnxError if the net has a number for one of `names`.
    """
    try:
        return typed_with(MadeUpSizes(), net, shapes, float_dtype)
    except RnnopsError:
        for first in SMALL:
            with suppress(RnnopsError):
                return typed_with(MadeUpSizes(first, (2, 2)), net, shapes, float_dtype)
        fixed = sizes_of_weights(net, shapes, float_dtype)
        if not fixed:
            raise
        for name in filter(names.__contains__, fixed):
            raise OnnxError(f"the size {name!r} has a number in the net", wanted=fixed[name], hint=FIXED) from None
        return typed(net, with_sizes(shapes, fixed), float_dtype)


FIXED = "Give shapes= this number. The net of an rnnops.torch.RNN is made for the batch size of the last call."


def typed_with(sizes: MadeUpSizes, net: Net, shapes: Mapping[str, Dims], float_dtype: str) -> Typed:
    """Infers all types twice, once for each choice of sizes."""
    calls = []
    types: tuple[dict[str, Type], dict[str, Type]] = ({}, {})
    pairs = {name: [sizes.pair(dim) for dim in dims] for name, dims in shapes.items()}
    for k, found in enumerate(types):
        for spec in net.input_specs:
            dtype = float_dtype if spec.dtype == FLOAT else spec.dtype
            found[spec.name] = Type(dtype, tuple(pair[k] for pair in pairs[spec.name]))
        by_key = inferred(net, found, sizes, float_dtype)
        for call in by_key.values():
            found.update(zip(call.op.outputs, call.output_types, strict=True))
        calls.append(tuple(by_key[op.key] for op in net.ops))
    return Typed(net, calls[0], types, sizes, float_dtype)


def inferred(net: Net, types: Mapping[str, Type], sizes: MadeUpSizes, float_dtype: str) -> dict[str, Call]:
    """All calls of a net. Errors of calls get a hint if sizes are made up."""
    try:
        return infer(net, types, float_dtype)
    except RnnopsError as error:
        if error.hint or not sizes.made_up:
            raise
        told = error.again()
        told.hint = size_hint(sorted(sizes.named().values()))
        raise told.again() from error


def size_hint(names: Sequence[str]) -> str:
    """A hint for made-up sizes that do not fit a net. `names` are the sizes that have names."""
    differ = f"Sizes with different names ({', '.join(names)}) differ: if two are equal, give shapes={{...}}. "
    made_up = "Open sizes are made up here; give those that the net fixes as numbers: shapes={...}."
    return differ * (len(names) > 1) + made_up


def write_graph(model: Typed, params: Mapping[str, Array], opset: int) -> onnx.GraphProto:
    """The graph of a net. Inputs that have values become initializers."""
    net = model.net
    names = {*net.blob_names, *net.output_blobs}
    writer = GraphWriter(opset, model.float_dtype, names, frozenset(model.sizes.made_up))
    writer.names.update(renamed(writer, net))
    write_calls(writer, net, model.calls)
    for name, blob in net.output_blobs.items():
        if writer.name(blob) != name:
            writer.node("Identity", [writer.name(blob)], [name])
    inputs = [described(model, spec.name, spec.name) for spec in net.input_specs if spec.name not in params]
    outputs = [described(model, blob, name) for name, blob in net.output_blobs.items()]
    weights = [onnx.numpy_helper.from_array(params[name], name) for name in net.input_names if name in params]
    return onnx.helper.make_graph(writer.nodes, net.name, inputs, outputs, weights)


def renamed(writer: GraphWriter, net: Net) -> dict[str, str]:
    """New names for blobs that have the name of an output which is another blob."""
    return {
        name: writer.fresh(name)
        for name, blob in net.output_blobs.items()
        if name != blob and name in net and name not in net.input_names
    }


def described(model: Typed, blob: str, name: str) -> onnx.ValueInfoProto:
    """An input or output of a graph, with its type."""
    first, second = (types[blob] for types in model.types)
    return value_info(name, first.dtype, named_dims((first.shape, second.shape), model.sizes.named()))


def write_calls(writer: GraphWriter, net: Net, calls: Sequence[Call]) -> None:
    """Writes the ops of a net: layers as one node each, other recurrences as Scans, other ops one by one."""
    layers = find_rnn_nodes(net)
    members = {key for layer in layers for key in layer.members}
    anchors = {layer.anchor: layer for layer in layers}
    finals = final_squeezes(net)
    for call in calls:
        key = call.op.key
        if layer := anchors.get(key):
            write_layer(writer, call, layer)
        elif key in members or key in writer.done:
            continue
        elif call.op.type == "RecurrentNetwork":
            write_recurrence(writer, call, finals)
        else:
            write_op(writer, call)


def write_layer(writer: GraphWriter, call: Call, layer: FoundLayer) -> None:
    """Writes a found LSTM, GRU or RNN. The weights give the hidden size, but some runtimes want an attribute too."""
    inputs, outputs = ([writer.name(name) if name else "" for name in names] for names in (layer.inputs, layer.outputs))
    hidden = call.output_types[0].shape[-1]
    hidden_size = None if hidden in writer.open_sizes else hidden
    writer.node(layer.op, inputs, outputs, hidden_size=hidden_size, **layer.attributes)


def write_recurrence(writer: GraphWriter, call: Call, finals: Mapping[str, str]) -> None:
    """Writes a recurrence as the op of its preset, else as a Scan."""
    preset = find_preset(Recurrence(call.op, call.net), call)
    if preset is None:
        OnnxScanWriter(writer, call, finals).write()
    else:
        write_preset(writer, call, preset)


def final_squeezes(net: Net) -> dict[str, str]:
    """Blob -> the blob that a Squeeze of its first axis makes of it, if only this Squeeze reads it."""
    index = Index(net)
    without_step = [op for op in net.ops if op.type == "Squeeze" and dict(op.attributes) == {"axes": (0,)}]
    squeezes = {op.inputs[0]: op.outputs[0] for op in without_step if len(op.inputs) == 1}
    read_once = {name for name, readers in index.readers.items() if len(readers) == 1} - index.outputs
    return {name: made for name, made in squeezes.items() if name in read_once}


class OnnxScanWriter:
    """Writes one recurrence as a Scan.

    Args:
        writer: of the surrounding graph; call: the recurrence.
        finals: `_last` blob of a state -> the blob that a Squeeze makes of it, if only this Squeeze reads it.
    """

    def __init__(self, writer: GraphWriter, call: Call, finals: Mapping[str, str]) -> None:
        self.writer, self.call, self.finals = writer, call, finals
        self.recurrence = Recurrence(call.op, call.net)
        self.types = input_types(self.recurrence, call)
        self.program = cell_program(self.recurrence, call)
        self.key = writer.name(call.op.key)
        self.bound = dict(zip(self.recurrence.ports(), writer.inputs_of(call), strict=True))
        self.body, self.buffers = writer.inner(), dict[str, str]()

    def write(self) -> None:
        """Writes the Scan, and the nodes before and after it."""
        states, sequences, scanned = self._states(), self._sequences(), self._scanned()
        attributes: dict[str, Any] = {"body": self._graph(list(sequences), scanned), "num_scan_inputs": len(sequences)}
        if self.recurrence.reverse:
            attributes["scan_input_directions"] = [1] * len(sequences)
            attributes["scan_output_directions"] = [1] * len(scanned) or None
        finals, every = [self._final(i) for i in range(len(states))], [self._every(name) for name in scanned]
        self.writer.node("Scan", [*states.values(), *sequences.values()], [*finals, *every], **attributes)
        self._write_lasts(finals, dict(zip(scanned, every, strict=True)))
        for name in filter(lambda name: self._pair(name)[0], self.recurrence.sums):
            total = self.writer.name(self._pair(name)[0])
            self.writer.node("ReduceSum", [every[scanned.index(name)], [0]], [total], keepdims=0)

    # -- what goes in --------------------------------------------------------------------------------------------

    def _states(self) -> dict[str, str]:
        """Cell input -> the state's first value, with rows, or the buffer of its first steps."""
        return {state.input: self._initial(state) for state in self.recurrence.states}

    def _initial(self, state: State) -> str:
        """The first value of a state. `[D]` is repeated for all rows."""
        kind, name = self.types[state.input], self.bound[state.input]
        extra = kind.rank - state.feature_rank
        if extra == 0:
            ones = [1] * state.feature_rank
            shape = self.writer.result("Concat", [self._rows(), ones], f"{self.key}/{state.input}/shape", axis=0)
            return self.writer.result("Expand", [name, shape], f"{self.key}/{state.input}/rows")
        if self._is_buffered(state):
            return self.writer.result("Transpose", [name], f"{self.key}/{state.input}/rows", perm=swapped(kind.rank))
        return self.writer.result("Squeeze", [name, [0]], f"{self.key}/{state.input}/rows") if extra == 2 else name

    def _is_buffered(self, state: State) -> bool:
        """True if the cell sees more than the last step of a state."""
        kind = self.types[state.input]
        steps = kind.shape[0] if kind.rank - state.feature_rank == 2 else 1
        return (state.window, state.offset or 0, steps) != (1, 0, 1)

    def _rows(self) -> Operand:
        """N, as a list with one size."""
        for name in self.recurrence.row_sequences:
            return self.writer.result("Shape", [self.bound[name]], f"{self.key}/N", start=1, end=2)
        for state in self.recurrence.states:
            extra = self.types[state.input].rank - state.feature_rank
            if extra:
                return self.writer.result(
                    "Shape", [self.bound[state.input]], f"{self.key}/N", start=extra - 1, end=extra
                )
        return [1]

    def _sequences(self) -> dict[str, str]:
        """Cell input -> sequence. The timesteps are a sequence too, if they are needed."""
        sequences = {name: self.bound[name] for name in self.recurrence.sequences}
        if self.recurrence.timestep is not None or not sequences:
            sequences[""] = self._timesteps()
        return sequences

    def _timesteps(self) -> str:
        """0, 1, ... in each row, as int32 `[T, N]`."""
        writer, key = self.writer, self.key
        zero, one = (writer.constant(value, "int32", f"{key}/{name}") for name, value in (("zero", 0), ("one", 1)))
        if self.recurrence.sequences:
            sizes = writer.result("Shape", [self.bound[self.recurrence.sequences[0]]], f"{key}/T", start=0, end=1)
            steps = writer.result("Squeeze", [sizes, [0]], f"{key}/steps")
            steps = writer.result("Cast", [steps], f"{key}/steps32", to=element_type("int32"))
        else:
            steps = writer.constant(self.call.attr("steps"), "int32", f"{key}/steps")
        numbers = writer.result("Range", [zero, steps, one], f"{key}/numbers")
        column = writer.result("Unsqueeze", [numbers, [1]], f"{key}/column")
        shape = writer.result("Concat", [[1], self._rows()], f"{key}/timesteps/shape", axis=0)
        return writer.result("Expand", [column, shape], f"{key}/timesteps")

    # -- the body ------------------------------------------------------------------------------------------------

    def _graph(self, sequences: Sequence[str], scanned: Sequence[str]) -> onnx.GraphProto:
        """The body: it reads states and steps of sequences, and returns new states and scan outputs."""
        body, cell = self.body, self.recurrence.cell
        self._name_blobs(cell)
        inputs = [self._read_state(state) for state in self.recurrence.states]
        inputs += [self._read_step(name) for name in sequences]
        write_calls(body, cell, self.program.calls)
        outputs = [self._new_state(state) for state in self.recurrence.states]
        outputs += [(body.name(blob), self.program.types[blob]) for blob in map(cell.output_blobs.__getitem__, scanned)]
        graph = onnx.helper.make_graph(body.nodes, cell.name, infos(inputs), infos(self._each_its_own(outputs)))
        self.writer.below |= body.taken | body.below
        return graph

    def _name_blobs(self, cell: Net) -> None:
        """Names blobs of the cell: most keep their names.

        Outputs get their own names, and references the names of outside.
        """
        self.body.names.update({name: self.bound[name] for name in self.recurrence.references})
        wanted = {blob: name for name, blob in cell.output_blobs.items() if name not in cell}
        for name in cell.blob_names:
            if name not in self.recurrence.references:
                self.body.names[name] = self.body.fresh(wanted.get(name, name))

    def _each_its_own(self, outputs: Sequence[tuple[str, Type]]) -> list[tuple[str, Type]]:
        """Outputs of the body under names of their own. Nodes of the body make each of them."""
        free = {name for node in self.body.nodes for name in node.output}
        found = []
        for name, kind in outputs:
            own = name if name in free else self.body.result("Identity", [name], name)
            free.discard(own)
            found.append((own, kind))
        return found

    def _read_step(self, name: str) -> tuple[str, Type]:
        """The body's input for a sequence. All rows hold the timestep, and the cell reads that of the first row."""
        if name:
            return self.body.name(name), self.program.types[name]
        rows = self.body.fresh("timestep/rows")
        if self.recurrence.timestep is not None:
            self.body.node("Slice", [rows, [0], [1], [0]], [self.body.name(self.recurrence.timestep)])
        return rows, Type("int32", (1,))

    def _read_state(self, state: State) -> tuple[str, Type]:
        """The body's input for a state. If it is a buffer, the cell reads a part of it."""
        own, kind = self.body.name(state.input), self.program.types[state.input]
        if not self._is_buffered(state):
            return own, kind
        buffer = self.buffers[state.input] = self.body.fresh(f"{own}/steps")
        first = state.offset or 0
        seen = self.body.result("Slice", [buffer, [first], [first + state.window], [1]], f"{own}/seen")
        if state.window == 1:
            self.body.node("Squeeze", [seen, [1]], [own])
        else:
            self.body.node("Transpose", [seen], [own], perm=swapped(kind.rank))
        return buffer, self._buffer_type(state)

    def _buffer_type(self, state: State) -> Type:
        """The type of the buffer of a state's last steps, rows first."""
        kind = self.types[state.input]
        return Type(kind.dtype, (kind.shape[1], kind.shape[0], *kind.shape[2:]))

    def _new_state(self, state: State) -> tuple[str, Type]:
        """The body's output for a state."""
        blob = self.recurrence.cell.output_blobs[state.output]
        own, kind = self.body.name(blob), self.program.types[blob]
        if not self._is_buffered(state):
            return own, kind
        buffer = self.buffers[state.input]
        rest = self.body.result("Slice", [buffer, [1], [FAR], [1]], f"{buffer}/rest")
        step = self.body.result("Unsqueeze", [own, [1]], f"{buffer}/step")
        return self.body.result("Concat", [rest, step], f"{buffer}/new", axis=1), self._buffer_type(state)

    # -- what comes out ------------------------------------------------------------------------------------------

    def _scanned(self) -> list[str]:
        """Cell outputs whose steps are all written: states if their steps are read, and all other outputs."""
        pairs = zip(self.recurrence.states, self.call.op.outputs[::2], strict=False)
        return [*(state.output for state, every in pairs if every), *self.recurrence.step_outputs]

    def _final(self, i: int) -> str:
        """The Scan's output for a state's last value.

        Its name is made up if it is not read, as runtimes want an output.
        """
        last = self.call.op.outputs[2 * i + 1]
        if last in self.finals and not self._is_buffered(self.recurrence.states[i]):
            self.writer.done.add(self.finals[last])
            return self.writer.name(self.finals[last])
        return self.writer.fresh(f"{last or self.key}/final")

    def _every(self, output: str) -> str:
        """The name of all steps of a cell output, made up if they are not read."""
        every, last = self._pair(output)
        named = every and output not in self.recurrence.sums
        return self.writer.name(every) if named else self.writer.fresh(f"{last or every or self.key}/steps")

    def _pair(self, output: str) -> tuple[str, str]:
        """The blobs `all` and `last` of a cell output."""
        place = 2 * self.recurrence.output_names().index(output)
        every, last = self.call.op.outputs[place : place + 2]
        return every, last

    def _write_lasts(self, finals: Sequence[str], every: Mapping[str, str]) -> None:
        """Writes the `last` blobs that are read."""
        for state, final in zip(self.recurrence.states, finals, strict=True):
            last = self._pair(state.output)[1]
            if not last or self.finals.get(last) in self.writer.done:
                continue
            if self._is_buffered(state):
                step = self.writer.result("Slice", [final, [-1], [FAR], [1]], f"{last}/step")
                rank = self.types[state.input].rank
                self.writer.node("Transpose", [step], [self.writer.name(last)], perm=swapped(rank))
            else:
                self.writer.node("Unsqueeze", [final, [0]], [self.writer.name(last)])
        for output in self.recurrence.step_outputs:
            if last := self._pair(output)[1]:
                first, end = (0, 1) if self.recurrence.reverse else (-1, FAR)
                self.writer.node("Slice", [every[output], [first], [end], [0]], [self.writer.name(last)])


def swapped(rank: int) -> list[int]:
    """The order of axes with the first two swapped."""
    return [1, 0, *range(2, rank)]


def infos(values: Sequence[tuple[str, Type]]) -> list[onnx.ValueInfoProto]:
    """Typed names with a number of axes but no sizes."""
    return [value_info(name, kind.dtype, [None] * kind.rank) for name, kind in values]


OLDEST_WRITTEN = 18  # from this op set on, axes are inputs in all ops
PRODUCER = "rnnops"


def export(
    model: Any,
    path: str | os.PathLike[str],
    params: Mapping[str, Any] | None = None,
    shapes: Mapping[str, Any] | None = None,
    opset: int = 20,
    dtype: str | None = None,
) -> None:
    """Writes a net as an ONNX file: the whole file, or an error and no file.

    Args:
        model: a net, a compiled `Model` (it is written as after `eval()`), or an object that has a net as `.net` and
            its parameters' values as `.get_params()`.
        path: of the file.
        params: input -> array. These become initializers. All other inputs stay inputs of the graph.
        shapes: input -> its sizes, for inputs whose sizes neither `params` nor the net gives: numbers, names for sizes
            that differ from run to run (`("T", "N", 3)`), or None.
        opset: version of the op set, 18 or later.
        dtype: dtype of float inputs, `"float32"` or `"float64"`. If left out: the dtype of `params`, else float32.

    Raises:
        OnnxError: shapes are missing, names are unknown, there are two float dtypes, the file cannot be written, or
            ONNX cannot express an op.
        ModelError: the model is not compiled.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> net = ro.Net("net")
        >>> h_all, h_last = ro.GRU(net, net.input("x"), None, None, 3, 4)
        >>> net.outputs(y=h_all)
        >>> with TemporaryDirectory() as folder:
        ...     ro.onnx.export(net, f"{folder}/gru.onnx", ro.init_params(net, 0), {"x": ("T", "N", 3)})
        ...     ro.onnx.load_model(f"{folder}/gru.onnx").shapes
        {'x': ('T', 'N', 3)}
    """
    net, values, known = parts_of(model, params, shapes)
    if not isinstance(path, str | os.PathLike):
        raise OnnxError("this is not the path of a file", came=type(path).__name__)
    newest = min(NEWEST_OPSET, onnx_opset_version())
    if not isinstance(opset, int) or isinstance(opset, bool) or not OLDEST_WRITTEN <= opset <= newest:
        raise OnnxError("this op set cannot be written", wanted=f"opset={OLDEST_WRITTEN} to {newest}", came=repr(opset))
    float_dtype = float_dtype_of(net, values, dtype or getattr(model, "dtype", None))
    names = {dim for name in shapes or () for dim in known[name] if isinstance(dim, str)}
    with about(os.fspath(path)):
        proto = model_of(net, values, known, opset, float_dtype, names)
        write(path, proto.SerializeToString())


def parts_of(
    model: Any, params: Mapping[str, Any] | None, shapes: Mapping[str, Any] | None
) -> tuple[Net, dict[str, Array], dict[str, Dims]]:
    """The net, its parameters' values, and the shapes of its inputs."""
    net, own, known = contents_of(model)
    given = {**known, **checked_table("shapes", shapes)}
    values = {
        name: checked_array(net, name, value) for name, value in {**own, **checked_table("params", params)}.items()
    }
    if unknown := sorted((given.keys() | values.keys()) - set(net.input_names)):
        raise OnnxError("params or shapes name no input of the net", net=net.name, came=", ".join(map(str, unknown)))
    return leave_out_unread(net), values, all_shapes(net, values, given)


def contents_of(model: Any) -> tuple[Net, Mapping[str, Any], Mapping[str, Dims]]:
    """A net, with the values and shapes that come with it. Raises OnnxError for an object without a net."""
    if isinstance(model, Net):
        return model, {}, {}
    if isinstance(model, Model):
        return forward_of(model)
    net = getattr(model, "net", None)
    if not isinstance(net, Net):
        wanted = "a ro.Net, a model, or an object with .net and .get_params()"
        raise OnnxError("this is not a net", wanted=wanted, came=type(model).__name__)
    return net, model.get_params(), getattr(model, "shapes", {})


def forward_of(model: Model) -> tuple[Net, Mapping[str, Any], Mapping[str, Dims]]:
    """The net of a compiled model after `eval()`, with the sizes that it was compiled for."""
    graph = model.graphs.get("forward")
    if graph is None:
        hint = "Compile it with placeholders for the arguments of forward."
        raise OnnxError(f"{type(model).__name__} was not compiled for forward", hint=hint)
    net = graph.traced.net
    values = {name: array for name, array in model.arrays.items() if name in net.input_names}
    return net, values, {name: kind.shape for name, kind in graph.types.items()}


def checked_table(argument: str, value: object) -> dict[Any, Any]:
    """A dict argument; an empty dict if it was left out. Raises OnnxError for other types."""
    if value is not None and not isinstance(value, Mapping):
        raise OnnxError(f"{argument} is not a dict", came=type(value).__name__)
    return dict(value or {})


def checked_array(net: Net, name: str, value: object) -> Array:
    """A parameter's value. Raises OnnxError if it is not an array of the parameter's dtype."""
    array = np.asarray(value)
    wanted = net.dtype_of(name) if name in net else FLOAT
    fits = array.dtype.name in ("float32", "float64") if wanted == FLOAT else array.dtype.name == wanted
    if not fits:
        raise OnnxError(
            "a parameter's value has another dtype", net=net.name, blob=name, wanted=wanted, came=array.dtype
        )
    return array


def all_shapes(net: Net, values: Mapping[str, Array], given: Mapping[str, Any]) -> dict[str, Dims]:
    """The sizes of all inputs. Raises OnnxError that lists the inputs without known sizes."""
    shapes: dict[str, Dims] = {}
    for spec in net.input_specs:
        if spec.name in values:
            shapes[spec.name] = values[spec.name].shape
        elif spec.name in given:
            shapes[spec.name] = checked_dims(net, spec.name, given[spec.name])
        elif spec.shape is not None:
            shapes[spec.name] = spec.shape
    if missing := [name for name in net.input_names if name not in shapes]:
        hint = f'Give shapes={{"{missing[0]}": ("T", "N", 3), ...}}, names for sizes that differ from run to run.'
        raise OnnxError("inputs in an ONNX file have shapes", net=net.name, blob=", ".join(missing), hint=hint)
    return shapes


def checked_dims(net: Net, name: str, value: Any) -> Dims:
    """Sizes as a tuple. An array gives its own sizes."""
    dims = value.shape if isinstance(value, np.ndarray) else value
    fits = isinstance(dims, tuple | list) and all(
        dim is None or (isinstance(dim, str) and dim) or (isinstance(dim, int) and dim >= 0) for dim in dims
    )
    if not fits:
        wanted = "a tuple of sizes, names of sizes and None, or an array"
        raise OnnxError("not a shape", net=net.name, blob=name, wanted=wanted, came=repr(value))
    return tuple(dims)


def float_dtype_of(net: Net, values: Mapping[str, Array], wanted: str | None) -> str:
    """The one float dtype of the file. Raises OnnxError if there are two."""
    dtypes = {array.dtype.name for name, array in values.items() if net.dtype_of(name) == FLOAT}
    dtypes |= set() if wanted is None else {wanted}
    if len(dtypes) > 1 or not dtypes <= set(FLOATS[1:]):
        raise OnnxError("a file has one float dtype", wanted="float32 or float64", came=" and ".join(sorted(dtypes)))
    return dtypes.pop() if dtypes else "float32"


def model_of(
    net: Net,
    values: Mapping[str, Array],
    shapes: Mapping[str, Dims],
    opset: int,
    float_dtype: str,
    names: Collection[str],
) -> onnx.ModelProto:
    """The model of a net. ONNX's own checker has passed it."""
    graph = write_graph(typed(net, shapes, float_dtype, names), values, opset)
    opsets = [onnx.helper.make_opsetid("", opset)]
    ir_version = onnx.helper.find_min_ir_version_for(opsets)
    proto = onnx.helper.make_model(graph, opset_imports=opsets, producer_name=PRODUCER, ir_version=ir_version)
    onnx.checker.check_model(proto, full_check=True)
    return proto


def write(path: str | os.PathLike[str], data: bytes) -> None:
    """Writes the whole file, or leaves an old file unchanged."""
    try:
        with replaced(path) as temporary:
            temporary.write_bytes(data)
    except (OSError, ValueError) as error:
        raise OnnxError(f"the file cannot be written ({error})") from error
