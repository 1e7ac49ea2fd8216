"""RecurrentNetwork as Scan, with the cell as its body.

A state whose cell sees one earlier step is carried as it is; one with a window, or with several initial steps, is
carried as the buffer of its last steps, rows first, `[N, L, ...]`. The timestep is a scan input, which also says how
many steps there are where no sequence does. What concerns only training (what to recompute, which outputs get
gradients) is not written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rnnops.net.net import Net
from rnnops.net.op import Op
from rnnops.net.schema import Call
from rnnops.onnx.export_ops import GraphWriter, Operand, value_info
from rnnops.onnx.node import FAR, element_type
from rnnops.onnx.package import onnx
from rnnops.recurrent.op import cell_program, input_types
from rnnops.recurrent.recurrence import Recurrence, State
from rnnops.types import Type

INT32 = element_type("int32")
WriteCalls = Callable[[GraphWriter, Net, Sequence[Call]], None]


class OnnxScanWriter:
    """Writes one recurrence.

    Args:
        writer: of the graph around; call: the recurrence; write_calls: writes the ops of a net.
        finals: `_last` blob of a state -> the blob that a Squeeze makes of it and all that is read of it.
    """

    def __init__(self, writer: GraphWriter, call: Call, write_calls: WriteCalls, finals: Mapping[str, str]) -> None:
        self.writer, self.call, self.write_calls, self.finals = writer, call, write_calls, finals
        self.recurrence = Recurrence(call.op, call.net)
        self.types = input_types(self.recurrence, call)
        self.program = cell_program(self.recurrence, call)
        self.key = writer.name(call.op.key)
        self.bound = dict(zip(self.recurrence.ports(), writer.inputs_of(call), strict=True))
        self.body, self.buffers = writer.inner(), dict[str, str]()

    def write(self) -> None:
        """Write the Scan, and nodes before and after it."""
        states, sequences, scanned = self._states(), self._sequences(), self._scanned()
        attributes: dict[str, Any] = {"body": self._graph(list(sequences), scanned), "num_scan_inputs": len(sequences)}
        if self.recurrence.reverse:
            attributes["scan_input_directions"] = [1] * len(sequences)
            attributes["scan_output_directions"] = [1] * len(scanned) or None
        finals, every = [self._final(i) for i in range(len(states))], [self._every(name) for name in scanned]
        self.writer.node("Scan", [*states.values(), *sequences.values()], [*finals, *every], **attributes)
        self._write_lasts(finals, dict(zip(scanned, every, strict=True)))

    # -- what goes in --------------------------------------------------------------------------------------------

    def _states(self) -> dict[str, str]:
        """Cell input -> the state's first value, with rows, or the buffer of its first steps."""
        return {state.input: self._initial(state) for state in self.recurrence.states}

    def _initial(self, state: State) -> str:
        """The initial value of a state; `[D]` is repeated for all rows."""
        kind, name = self.types[state.input], self.bound[state.input]
        extra = kind.rank - state.feature_rank
        if extra == 0:
            ones = [1] * state.feature_rank
            shape = self.writer.result("Concat", [self._rows(), ones], f"{self.key}/{state.input}/shape", axis=0)
            return self.writer.result("Expand", [name, shape], f"{self.key}/{state.input}/rows")
        if self._is_buffered(state):
            return turned(self.writer, name, kind.rank, f"{self.key}/{state.input}/rows")
        return self.writer.result("Squeeze", [name, [0]], f"{self.key}/{state.input}/rows") if extra == 2 else name

    def _is_buffered(self, state: State) -> bool:
        """True if the cell sees more of a state than its last step."""
        kind = self.types[state.input]
        steps = kind.shape[0] if kind.rank - state.feature_rank == 2 else 1
        return (state.window, state.offset or 0, steps) != (1, 0, 1)

    def _rows(self) -> Operand:
        """N, as a list of one size."""
        for name in self.recurrence.sequences:
            return self.writer.result("Shape", [self.bound[name]], f"{self.key}/N", start=1, end=2)
        for state in self.recurrence.states:
            extra = self.types[state.input].rank - state.feature_rank
            if extra:
                return self.writer.result(
                    "Shape", [self.bound[state.input]], f"{self.key}/N", start=extra - 1, end=extra
                )
        return [1]

    def _sequences(self) -> dict[str, str]:
        """Cell input -> sequence; the timesteps are one where they are needed."""
        sequences = {name: self.bound[name] for name in self.recurrence.sequences}
        if self.recurrence.timestep is not None or not sequences:
            sequences[""] = self._timesteps()
        return sequences

    def _timesteps(self) -> str:
        """0, 1, ... in every row, as int32 `[T, N]`."""
        writer, key = self.writer, self.key
        zero, one = (writer.constant(value, "int32", f"{key}/{name}") for name, value in (("zero", 0), ("one", 1)))
        if self.recurrence.sequences:
            sizes = writer.result("Shape", [self.bound[self.recurrence.sequences[0]]], f"{key}/T", start=0, end=1)
            steps = writer.result("Squeeze", [sizes, [0]], f"{key}/steps")
            steps = writer.result("Cast", [steps], f"{key}/steps32", to=INT32)
        else:
            steps = writer.constant(self.call.attr("steps"), "int32", f"{key}/steps")
        numbers = writer.result("Range", [zero, steps, one], f"{key}/numbers")
        column = writer.result("Unsqueeze", [numbers, [1]], f"{key}/column")
        shape = writer.result("Concat", [[1], self._rows()], f"{key}/timesteps/shape", axis=0)
        return writer.result("Expand", [column, shape], f"{key}/timesteps")

    # -- the body ------------------------------------------------------------------------------------------------

    def _graph(self, sequences: Sequence[str], scanned: Sequence[str]) -> onnx.GraphProto:
        """The body: it reads states and steps of sequences, and gives new states and what is scanned out."""
        body, cell = self.body, self.recurrence.cell
        self._name_blobs(cell)
        inputs = [self._read_state(state) for state in self.recurrence.states]
        inputs += [self._read_step(name) for name in sequences]
        self.write_calls(body, cell, self.program.calls)
        outputs = [self._new_state(state) for state in self.recurrence.states]
        outputs += [(body.name(blob), self.program.types[blob]) for blob in map(cell.output_blobs.__getitem__, scanned)]
        graph = onnx.helper.make_graph(body.nodes, cell.name, infos(inputs), infos(self._each_its_own(outputs)))
        self.writer.below |= body.taken | body.below
        return graph

    def _name_blobs(self, cell: Net) -> None:
        """Blobs of the cell keep their names, but outputs go by their own, and references by those around."""
        self.body.names.update({name: self.bound[name] for name in self.recurrence.references})
        wanted = {blob: name for name, blob in cell.output_blobs.items() if name not in cell}
        for name in cell.blob_names:
            if name not in self.recurrence.references:
                self.body.names[name] = self.body.fresh(wanted.get(name, name))

    def _each_its_own(self, outputs: Sequence[tuple[str, Type]]) -> list[tuple[str, Type]]:
        """Outputs of the body under names of their own, which nodes of the body make."""
        free = {name for node in self.body.nodes for name in node.output}
        found = []
        for name, kind in outputs:
            own = name if name in free else self.body.result("Identity", [name], name)
            free.discard(own)
            found.append((own, kind))
        return found

    def _read_step(self, name: str) -> tuple[str, Type]:
        """The body's input for a sequence; of the timestep, which all rows hold, the cell reads the first row's."""
        if name:
            return self.body.name(name), self.program.types[name]
        rows = self.body.fresh("timestep/rows")
        if self.recurrence.timestep is not None:
            self.body.node("Slice", [rows, [0], [1], [0]], [self.body.name(self.recurrence.timestep)])
        return rows, Type("int32", (1,))

    def _read_state(self, state: State) -> tuple[str, Type]:
        """The body's input for a state; where that is a buffer, the cell reads a part of it."""
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
        """The type of the last steps of a state, rows first."""
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
        """Cell outputs whose steps are all written: states where these are read, and everything else."""
        pairs = zip(self.recurrence.states, self.call.op.outputs[::2], strict=False)
        return [*(state.output for state, every in pairs if every), *self.recurrence.step_outputs]

    def _final(self, i: int) -> str:
        """The name of the Scan's output for a state's last value, made up where it is not read: runtimes want one."""
        last = self.call.op.outputs[2 * i + 1]
        if last in self.finals and not self._is_buffered(self.recurrence.states[i]):
            self.writer.done.add(self.finals[last])
            return self.writer.name(self.finals[last])
        return self.writer.fresh(f"{last or self.key}/final")

    def _every(self, output: str) -> str:
        """The name of all steps of a cell output, made up where they are not read."""
        every, last = self._pair(output)
        return self.writer.name(every) if every else self.writer.fresh(f"{last or self.key}/steps")

    def _pair(self, output: str) -> tuple[str, str]:
        """The blobs `all` and `last` of a cell output."""
        place = 2 * self.recurrence.output_names().index(output)
        every, last = self.call.op.outputs[place : place + 2]
        return every, last

    def _write_lasts(self, finals: Sequence[str], every: Mapping[str, str]) -> None:
        """Write the blobs `last` that are read."""
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
    """The order of axes with the first two exchanged."""
    return [1, 0, *range(2, rank)]


def turned(writer: GraphWriter, name: str, rank: int, hint: str) -> str:
    """With the first two axes exchanged."""
    return writer.result("Transpose", [name], hint, perm=swapped(rank))


def infos(values: Sequence[tuple[str, Type]]) -> list[onnx.ValueInfoProto]:
    """Typed names with a number of axes and no sizes."""
    return [value_info(name, kind.dtype, [None] * kind.rank) for name, kind in values]


def is_final_squeeze(op: Op) -> bool:
    """True if an op takes the axis of one step off."""
    return op.type == "Squeeze" and len(op.inputs) == 1 and dict(op.attributes) == {"axes": (0,)}
