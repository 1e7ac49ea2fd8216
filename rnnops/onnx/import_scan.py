"""Reads Scan nodes as recurrences: the body becomes the cell.

A recurrence has sequences `[T, N, ...]` and states `[N, ...]`. If all scan inputs (after time) and all states have a
leading axis of one size, that size is N, even if it does not count rows of a batch. Otherwise there is one row: every
array gets an axis of size 1 before the body, which is removed after it.
Scan axes other than the first are moved to the front, and arrays that run against the others are turned around.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import onnx

from rnnops.net.blob import Blob
from rnnops.net.net import Net
from rnnops.net.op import free_name
from rnnops.onnx.node import FAR, Node
from rnnops.onnx.open_sizes import Known
from rnnops.onnx.read_graph import GraphReader
from rnnops.ops.indexing import slice as slice_
from rnnops.ops.movement import squeeze, transpose, unsqueeze
from rnnops.recurrent import recurrent_net
from rnnops.recurrent.recurrence import Features
from rnnops.types import Type

ONE_SIZE = "A recurrence has states of one size."


@dataclass
class ScanNode:
    """Attributes of a Scan.

    Args:
        body: the graph of one step; states, sequences: their numbers among its inputs; outputs: number of scan outputs.
        axes, directions: pairs: of the scan inputs, of the scan outputs.
    """

    body: onnx.GraphProto
    states: int
    sequences: int
    outputs: int
    axes: tuple[tuple[int, ...], tuple[int, ...]]
    directions: tuple[tuple[int, ...], tuple[int, ...]]

    @property
    def reverse(self) -> bool:
        """True if all scan inputs run from their last step to their first."""
        return all(self.directions[0])


def read_scan(node: Node) -> ScanNode:
    """The node's attributes, checked."""
    if node.opset < 9:
        node.fail("Scan of op set 8 is not supported", hint="Convert the model to op set 9 or later.")
    body, sequences = node.required("body", "graph"), node.required("num_scan_inputs", "int")
    states = len(node.inputs) - sequences
    outputs, given = len(body.output) - states, sum(blob is not None for blob in node.inputs)
    if sequences < 1 or states < 0 or outputs < 0 or not len(body.input) == len(node.inputs) == given:
        node.fail("inputs and outputs of the body do not fit the node", came=f"{len(body.input)} body inputs")
    counts = {"input": sequences, "output": outputs}
    axes, directions = (
        tuple(listed(node, f"scan_{side}_{what}", count) for side, count in counts.items())
        for what in ("axes", "directions")
    )
    return ScanNode(body, states, sequences, outputs, (axes[0], axes[1]), (directions[0], directions[1]))


def listed(node: Node, name: str, count: int) -> tuple[int, ...]:
    """An attribute with one integer for each input or output. By default all are 0."""
    values: tuple[int, ...] = node.attr(name, "ints", (0,) * count)
    if len(values) != count or ("directions" in name and not {0, 1}.issuperset(values)):
        node.fail(f"attribute '{name}' has a wrong length", wanted=count, came=list(values))
    return values


def scan(node: Node) -> Sequence[Blob]:
    """The rule of Scan. Returns the last values of states, then the scan outputs."""
    form = read_scan(node)
    states = [node.input(i) for i in range(form.states)]
    sequences = [time_major(node, form, k) for k in range(form.sequences)]
    direct = has_common_rows(node, states, sequences)
    if not direct:
        states = [unsqueeze(blob, [0]) for blob in states]
        sequences = [unsqueeze(blob, [1]) for blob in sequences]
    step = ScanStep(node, form, states, sequences, direct)
    results = step.run()
    rows = 2 * form.states
    lasts = [squeeze(result, [0]) for result in results[1:rows:2]]
    for result, last in zip(results[1:rows:2], lasts, strict=True):
        result.named(f"{last.name}/last")
    every = list(results[rows::2])
    if not direct:
        lasts, every = [squeeze(blob, [0]) for blob in lasts], [squeeze(blob, [1]) for blob in every]
    return [*lasts, *(as_output(node, form, k, blob) for k, blob in enumerate(every))]


def time_major(node: Node, form: ScanNode, k: int) -> Blob:
    """A scan input with time as its first axis, in the common direction."""
    blob = node.input(form.states + k)
    if axis := checked_axis(node, form.axes[0][k], blob):
        blob = transpose(blob, perm=[axis, *(other for other in range(node.rank(blob)) if other != axis)])
    return turned(blob) if form.directions[0][k] and not form.reverse else blob


def as_output(node: Node, form: ScanNode, k: int, blob: Blob) -> Blob:
    """All steps of a scan output, in its own direction and along its own axis."""
    if form.directions[1][k] != form.reverse:
        blob = turned(blob)
    if axis := checked_axis(node, form.axes[1][k], blob):
        blob = transpose(blob, perm=[*range(1, axis + 1), 0, *range(axis + 1, node.rank(blob))])
    return blob


def checked_axis(node: Node, axis: int, blob: Blob) -> int:
    """A scan axis, counted from the front. The rank of the blob must be known unless the axis is 0."""
    rank = node.rank(blob) if axis else 1
    if not -rank <= axis < rank:
        node.fail("a scan axis is out of range", wanted=f"{-rank} to {rank - 1}", came=axis)
    return axis % rank


def turned(blob: Blob) -> Blob:
    """Steps in the opposite order."""
    return slice_(blob, [-1], [-FAR], axes=[0], steps=[-1])


def has_common_rows(node: Node, states: Sequence[Blob], sequences: Sequence[Blob]) -> bool:
    """True if all states have one leading size, which all sequences have after time."""
    kinds = [(0, node.known(blob)) for blob in states] + [(1, node.known(blob)) for blob in sequences]
    rows = {None if known is None else tuple(kind.shape[axis : axis + 1] for kind in known) for axis, known in kinds}
    return len(rows) == 1 and rows.isdisjoint({None, ((), ())})


@dataclass
class ScanStep:
    """The recurrence of a Scan. Its states and sequences have rows."""

    node: Node
    form: ScanNode
    states: list[Blob]
    sequences: list[Blob]
    direct: bool

    def run(self) -> tuple[Blob, ...]:
        """The blobs `all` and `last` of each state, then of each scan output."""
        cell = Net(self.form.body.name or "body")
        names = [value.name for value in self.form.body.input]
        ports = [name if self.direct else free_name(f"{name}/row", set(names)) for name in names]
        reader = self._reader(cell, dict(zip(ports, [*self.states, *self.sequences], strict=True)))
        if not self.direct:
            for port, name in zip(ports, names, strict=True):
                cell.append("Squeeze", [cell.blob(port)], {"axes": (0,)}, [name])
        results = reader.read(self.form.body)
        self._check_carried(reader, names, results)
        n = self.form.states
        states = [blob.name for blob in results[:n]]
        copied = {op.outputs[0]: op.inputs[0] for op in cell.ops if op.type == "Identity"}
        sources = [copied.get(blob.name, blob.name) for blob in results[n:]]
        own = [blob for blob, source in zip(results[n:], sources, strict=True) if source not in states]
        outputs = self._outputs(cell, [*results[:n], *own])
        found = recurrent_net(
            self.node.net,
            without_copies(cell),
            inputs=list(zip(ports[n:], self.sequences, strict=True)),
            initial_cell_inputs=list(zip(ports[:n], self.states, strict=True)),
            links=dict(zip(ports[:n], outputs, strict=False)),
            references={name: self.node.outer_blob(outer) for name, outer in reader.captured.items()},
            reverse=self.form.reverse,
            state_shapes=self._state_shapes(ports),
        )
        pairs = list(zip(found[::2], found[1::2], strict=True))
        rest = iter(pairs[n:])
        every = [pairs[states.index(source)] if source in states else next(rest) for source in sources]
        return tuple(blob for pair in (*pairs[:n], *every) for blob in pair)

    def _reader(self, cell: Net, blobs: dict[str, Blob]) -> GraphReader:
        """A reader that reads the body into a cell."""
        reader = GraphReader(self.node.reader.model, cell, self.node.reader)
        for k, (name, blob) in enumerate(blobs.items()):
            cell.input(name, blob.dtype)
            known = self.node.known(blob)
            kinds = known if k < self.form.states else one_step(known)
            reader.probes.give(name, kinds, self.node.probes.is_certain(blob.name))
        return reader

    def _check_carried(self, reader: GraphReader, names: Sequence[str], results: Sequence[Blob]) -> None:
        """Raise OnnxError if a state is known to change its shape from step to step."""
        for name, result in zip(names[: self.form.states], results, strict=False):
            before, after = reader.known(name), reader.known(result.name)
            if before is not None and after is not None and before != after:
                problem = "a carried value has another type from one step to the next"
                self.node.fail(problem, blob=name, wanted=before[0].in_words(), came=after[0].in_words(), hint=ONE_SIZE)

    def _outputs(self, cell: Net, blobs: Sequence[Blob]) -> list[str]:
        """Declares the cell's outputs. Each is named by a blob that an op makes only for it. Returns these names."""
        made = {name for op in cell.ops for name in op.outputs}
        names = []
        for blob in blobs:
            if not self.direct:
                blob = self._last_op(cell, "Unsqueeze", blob, f"{blob.name}/row", axes=(0,))
            elif blob.name not in made:
                blob = self._last_op(cell, "Identity", blob, blob.name)
            made.discard(blob.name)
            cell.outputs(blob)
            names.append(blob.name)
        return names

    def _last_op(self, cell: Net, op: str, blob: Blob, name: str, **attributes: object) -> Blob:
        return cell.append(op, [blob], attributes, [free_name(name, set(cell.blob_names))])[0]

    def _state_shapes(self, ports: Sequence[str]) -> dict[str, Features]:
        """Feature shapes of states, for all states that do not have exactly one feature axis."""
        others = {port: blob for port, blob in zip(ports, self.states, strict=False) if self.node.rank(blob) != 2}
        sizes = {port: self.node.dims(blob)[1:] for port, blob in others.items()}
        return {port: tuple(dim if isinstance(dim, int) else None for dim in dims) for port, dims in sizes.items()}


def without_copies(cell: Net) -> Net:
    """The cell without copies that nothing reads. An output that is a copied state becomes that state."""
    read = {*cell.output_blobs.values(), *(name for op in cell.ops for name in op.inputs)}
    kept = [op for op in cell.ops if op.type != "Identity" or op.outputs[0] in read]
    return cell if len(kept) == len(cell.ops) else cell.with_ops(kept)


def one_step(known: Known | None) -> Known | None:
    """The type of one step of a sequence."""
    if known is None:
        return None
    first, second = (Type(kind.dtype, kind.shape[1:]) for kind in known)
    return first, second
