"""The gradient of a recurrence as ordinary ops and a recurrence that runs the other way.

The gradient is a RecurrentNetwork again. So the same rule differentiates it, as often as you like:

    sequence <-> all      initial state <-> last      reference <-> sum      reverse <-> not reverse

The recurrence must be in open form (`open_form`): its results hold all values of the steps that the backward steps
read. One kind of these results is a state as each step read it. It is a view of the state's steps
(`Recurrence.before`), one for each place of a window.

The states of the reversed recurrence are gradients of states. A state with L initial steps has L such gradients: those
of its values at the last L steps. At each step they move up by one.
"""

from __future__ import annotations

from collections.abc import Sequence

from rnnops.autodiff import differentiate
from rnnops.checkpoints.policy import backward_net, choose_residuals
from rnnops.interpreter import prepare_again, prune
from rnnops.net.blob import Blob
from rnnops.net.net import Net
from rnnops.net.op import Input, Op, free_name, unused_name
from rnnops.net.schema import Call
from rnnops.ops.base import sum_to
from rnnops.recurrent.recurrence import Recurrence, State, cell_program, input_types
from rnnops.types import Shape, Type


def reversed_recurrence(call: Call, *blobs: Blob | None) -> list[Blob | None]:
    """Gradients of the inputs of a recurrence in open form, None for those that are not wanted.

    Args:
        blobs: the inputs of the recurrence, its results, and the gradients of its results.
    """
    builder = _Reversed(call, blobs)
    builder.read_steps()
    builder.take_grads()
    return builder.results()


class _Reversed:
    """Builds the recurrence that runs the other way.

    Attributes:
        ports: cell input -> blob of the outer net.
        results_of, grads: (cell output, `all` or `last`) -> blob of the outer net.
        whole: the cell with its types.
        step: the backward step net, which reads blobs of the cell's step and gradients of its outputs.
        inputs: inputs of the new cell.
        before, after: ops of the new cell before and after those of `step`.
        sequences, initials, references: input of the new cell -> blob of the outer net.
        loose: sequences that are not known to have an axis of rows.
        outputs: output of the new cell -> its blob.
        rows: (state input, state output, features) of each new state.
        positions: state of the old recurrence -> the L new states that are its gradients.
    """

    def __init__(self, call: Call, blobs: Sequence[Blob | None]) -> None:
        self.call, self.recurrence = call, Recurrence(call.op, call.net)
        recurrence, n, m = self.recurrence, len(call.op.inputs), len(call.op.outputs)
        places = [(name, part) for name in recurrence.output_names() for part in ("all", "last")]
        self.ports = {name: blob for name, blob in zip(recurrence.ports(), blobs[:n], strict=True) if blob is not None}
        self.results_of = {p: blob for p, blob in zip(places, blobs[n : n + m], strict=True) if blob is not None}
        self.grads = {p: blob for p, blob in zip(places, blobs[n + m :], strict=True) if blob is not None}
        self.net = next(iter(self.grads.values())).net
        self.types = input_types(recurrence, call)
        self.steps, self.batch = recurrence.steps_and_batch(self.types)
        self.whole = cell_program(recurrence, call)
        self.step, self.output_grads = self._backward_step()
        self.taken = {*self.step.blob_names, *self.whole.types}
        self.inputs: list[Input] = []
        self.before: list[Op] = []
        self.after: list[Op] = []
        self.sequences: dict[str, Blob] = {}
        self.initials: dict[str, Blob] = {}
        self.references: dict[str, Blob] = {}
        self.loose: list[str] = []
        self.outputs: dict[str, str] = {}
        self.rows: list[tuple[str, str, Shape]] = []
        self.positions: dict[str, list[str]] = {}

    def _backward_step(self) -> tuple[Net, dict[str, str]]:
        """The backward net of the step, and its inputs for gradients, by output of the step."""
        given, states = {name for name, _ in self.grads}, {state.output for state in self.recurrence.states}
        blobs, kinds = self.whole.net.output_blobs, self.whole.types
        outputs = {name: blob for name, blob in blobs.items() if name in given or name in states}
        net = self.whole.net.with_ops(self.whole.net.ops, outputs).snapshot()
        program = prepare_again(self.whole, net, {name: kinds[name] for name in net.input_names})
        gradient = differentiate(program, self.call.op.attributes["wanted"])
        stored = {*net.input_names, *(blobs[name] for name in self._stored())}
        found = choose_residuals(program, gradient.reads, stored, self.call.op.attributes.get("recompute", ()))
        assert not found.kept, f"not in open form: {found.kept}"
        return backward_net(program, gradient, found), dict(gradient.output_grads)

    def _stored(self) -> list[str]:
        """Outputs of the cell whose steps are all results of the recurrence."""
        sums = self.recurrence.sums
        return [name for name, part in self.results_of if part == "all" and name not in sums]

    # -- what a step reads -----------------------------------------------------------------------------------------

    def read_steps(self) -> None:
        """Bind the blobs of the forward step that the backward step reads."""
        recurrence, read = self.recurrence, set(self.step.input_names)
        for name in filter(read.__contains__, recurrence.sequences):
            self._sequence(name, self.ports[name], name not in recurrence.row_sequences)
        for state in recurrence.states:
            if state.input in read:
                self._read_state(state)
        for name in self._stored():
            blob = self.whole.net.output_blobs[name]
            if blob in read and blob not in self.whole.net.input_names and blob not in self.sequences:
                states = {state.output for state in recurrence.states}
                self._sequence(blob, self.results_of[name, "all"], name not in states)
        for name in filter(read.__contains__, recurrence.references):
            self._reference(name, self.whole.types[name], self.ports[name])
        if recurrence.timestep in read:
            self.inputs.append(Input(recurrence.timestep, "int32", (1,)))

    def _sequence(self, name: str, blob: Blob, loose: bool = False) -> None:
        kind = _type(blob)
        self.inputs.append(Input(name, kind.dtype, kind.shape[1:]))
        self.sequences[name] = blob
        self.loose += [name] if loose else []

    def _reference(self, name: str, kind: Type, blob: Blob) -> None:
        self.inputs.append(Input(name, kind.dtype, kind.shape))
        self.references[name] = blob

    def _read_state(self, state: State) -> None:
        """Bind the values of a state that each step read: one sequence for each place of its window."""
        before = {place: name for name, place in self.recurrence.before.items()}
        outputs = [before[state, j] for j in range(state.window)]
        names = [self.whole.net.output_blobs[output] for output in outputs]
        for output, name in zip(outputs, names, strict=True):
            self._sequence(name, self.results_of[output, "all"])
        if state.window > 1:
            rows = [self._op("Unsqueeze", (name,), f"{name}/row", axes=(0,)) for name in names]
            self.before.append(Op("Concat", tuple(rows), (state.input,), {"axis": 0}))

    def _length(self, state: State) -> int:
        return self.recurrence.initial_steps(state, self.types[state.input], self.batch)

    def _op(self, kind: str, inputs: tuple[str, ...], name: str, **attributes: object) -> str:
        """Append an op before those of the backward step; returns its result."""
        made = free_name(name, self.taken)
        self.before.append(Op(kind, inputs, (made,), attributes))
        return made

    # -- the gradients that a step takes ---------------------------------------------------------------------------

    def take_grads(self) -> None:
        """Bind gradients of outputs. Gradients of states are states, gradients of other outputs are sequences or
        references."""
        states = {state.output: state for state in self.recurrence.states}
        kinds = {spec.name: Type(spec.dtype, spec.shape or ()) for spec in self.step.input_specs}
        for name, grad in self.output_grads.items():
            if name in states:
                self._carry(states[name], grad, kinds[grad])
            elif name in self.recurrence.sums:
                self._reference(grad, kinds[grad], self.grads[name, "all"])
            else:
                self._sequence(grad, self._of_steps(name), True)

    def _carry(self, state: State, grad: str, kind: Type) -> None:
        """Make states of the gradients of a state's last L steps. The last one is `grad`, with the gradient from
        outside added."""
        every = self.grads.get((state.output, "all"))
        names = [free_name(f"{grad}/{j}", self.taken) for j in range(self._length(state))]
        names[-1] = grad if every is None else free_name(f"{grad}/carried", self.taken)
        self.inputs += [Input(name, kind.dtype, kind.shape) for name in names]
        if every is not None:
            given = free_name(f"{grad}/given", self.taken)
            self._sequence(given, every)
            self.before.append(Op("Add", (names[-1], given), (grad,), {}))
        self.positions[state.input] = names
        part = self.step.output_blobs.get(state.input)
        for j, name in enumerate(names):
            moved = [names[j - 1]] if j else []
            place = j - (state.offset or 0)
            if part is not None and 0 <= place < state.window:
                moved.append(part if state.window == 1 else self._row(part, place, kind.shape))
            self._next(name, moved, kind, f"{state.input}_grad/{j}" if len(names) > 1 else f"{state.input}_grad")
        last = self.grads.get((state.output, "last"))
        zeros = self.net.append("ConstantOfShape", [], {"shape": kind.shape, "value": 0.0})[0]
        self.initials.update(dict.fromkeys(names[:-1], zeros) | {names[-1]: zeros if last is None else last})

    def _row(self, window: str, place: int, shape: Shape) -> str:
        """One step of the gradient of a window."""
        cut, row = (free_name(f"{window}/{what}{place}", self.taken) for what in ("cut", "row"))
        ends = {"starts": (place,), "ends": (place + 1,), "axes": (0,)}
        self.after += [Op("Slice", (window,), (cut,), ends), Op("Reshape", (cut,), (row,), {"shape": shape})]
        return row

    def _next(self, name: str, terms: Sequence[str], kind: Type, output: str) -> None:
        """Let the next value of state `name` of the new cell be the sum of `terms`."""
        blob = terms[0] if len(terms) == 1 else free_name(f"{name}/next", self.taken)
        if not terms:
            self.after.append(Op("ConstantOfShape", (), (blob,), {"shape": kind.shape, "value": 0.0}))
        if len(terms) == 2:
            self.after.append(Op("Add", tuple(terms), (blob,), {}))
        self.rows.append((name, self._output(output, blob), kind.shape[1:]))

    def _output(self, name: str, blob: str) -> str:
        """Let a blob be an output of the new cell, under this name or a similar free name."""
        found = unused_name(name, self.outputs)
        self.outputs[found] = blob
        return found

    def _of_steps(self, name: str) -> Blob:
        """The gradient of all steps of an output: that of `all`, with that of `last` added at the last step."""
        every, last = self.grads.get((name, "all")), self.grads.get((name, "last"))
        if last is None:
            assert every is not None
            return every
        shape = {"shape": (self.steps - 1, *_type(last).shape[1:]), "value": 0.0}
        others = self.net.append("ConstantOfShape", [], shape)[0]
        padded = _joined([last, others] if self.recurrence.reverse else [others, last])
        return padded if every is None else every + padded

    # -- what comes out --------------------------------------------------------------------------------------------

    def results(self) -> list[Blob | None]:
        """Append the new recurrence, and return the gradients of the old one's inputs."""
        recurrence, made = self.recurrence, self.step.output_blobs
        wanted = self.call.op.attributes["wanted"]
        steps, sums = (
            {name: self._output(f"{name}_grad", made[name]) for name in names if name in made and name in wanted}
            for names in (recurrence.sequences, recurrence.references)
        )
        ops = [*self.before, *self.step.ops, *self.after]
        cell = Net(f"{recurrence.cell.name}_gradient").with_ops(ops, self.outputs, self.inputs)
        found = self._append(prune(cell.snapshot()), tuple(sums.values()))
        grads = {name: found[new] for name, new in {**steps, **sums}.items()}
        grads.update(
            (state.input, self._of_initial(state, found)) for state in recurrence.states if state.input in made
        )
        return [grads.get(name) for name in recurrence.ports()]

    def _append(self, cell: Net, sums: tuple[str, ...]) -> dict[str, Blob]:
        """Append the recurrence to the outer net. Returns, by output of its cell, the last value of a state, and all
        steps or the sum of any other output."""
        recurrence, carried = self.recurrence, {row[1] for row in self.rows}
        attributes = {
            "cell": cell,
            "inputs": tuple(self.sequences),
            "states": tuple((name, made, 1, None, features) for name, made, features in self.rows),
            "references": tuple(self.references),
            "timestep": recurrence.timestep if recurrence.timestep in cell.input_names else None,
            "steps": self.steps,
            "reverse": 0 if recurrence.reverse else 1,
            "sums": sums,
            "loose": tuple(self.loose),
        }
        order = [*(row[1] for row in self.rows), *(name for name in cell.output_blobs if name not in carried)]
        named = [f"{self.call.op.key}/{name}" for name in order]
        pairs = [("", new) if name in carried else (new, "") for name, new in zip(order, named, strict=True)]
        inputs = [*self.sequences.values(), *self.initials.values(), *self.references.values()]
        told = {key: value for key, value in attributes.items() if value not in (None, ())}
        made = self.net.append("RecurrentNetwork", inputs, told, [name for pair in pairs for name in pair])
        return dict(zip(order, made, strict=True))

    def _of_initial(self, state: State, found: dict[str, Blob]) -> Blob:
        """The gradient of an initial state: the last values of the new states that are its gradients."""
        ends = {name: made for name, made, _ in self.rows}
        heads = [found[ends[name]] for name in self.positions[state.input]]
        kind = self.types[state.input]
        if kind.rank == state.feature_rank:
            return sum_to(heads[0], kind.shape)
        return _shaped(_joined(heads), kind.shape)


def _type(blob: Blob) -> Type:
    assert blob.type is not None
    return blob.type


def _shaped(x: Blob, shape: Shape) -> Blob:
    if _type(x).shape == shape:
        return x
    return x.net.append("Reshape", [x], {"shape": shape, "allowzero": 1})[0]


def _joined(parts: Sequence[Blob]) -> Blob:
    return parts[0] if len(parts) == 1 else parts[0].net.append("Concat", list(parts), {"axis": 0})[0]
