"""Rewrites of cells: ops that are the same at every step leave the cell, products are merged and split, sums ordered.

**Values that are the same at every step** (`hoist_out_of_cells`) are computed once, before the recurrence, by ops of
the net around it. This comes before differentiation and before the choice of kept values. A step reads such a result as
a reference, so it is not copied for each step. Its gradient is summed over the steps and passed on once. It is computed
by one and the same op, whichever ops the backward pass runs again.

**Values that depend only on bound weights** (`lift_from_cells`) leave the cells and are computed next to these weights.
Cells transpose, slice and join their weights next to the products. Compiled code reads such weights where they are. But
`bound_weights.py`, which does work on weights once and for all, only looks at ops around the recurrence.

**Views of weights** (`sink_views`) go the other way: from the net around the recurrence into the cell.

**Products that share an operand** become one product if it pays. A product of few columns leaves most of a tile of
vector registers unused, and has overheads at every step. Measured on one thread for four gates, times apart / joined:

    | steps | rows | columns | forward | training step |
    |---|---|---|---|---|
    | 100 | 16 | 8 | 1.37 | 1.03 |
    | 100 | 16 | 16 | 1.34 | 1.13 |
    | 100 | 16 | 32 | 1.16 | 1.08 |
    | 100 | 16 | 48 | 1.07 | 1.04 |
    | 100 | 16 | 64 or more | 1.0 | 1.0 |
    | 1000 | 1 | 16 | 2.9 | 1.7 |
    | 30 | 4 | 16 | 1.19 | 0.98 |

With 30 steps of 4 rows, copying weights and their gradients costs as much as is saved. So products are merged only with
at most `NARROW` columns and at least `MANY` steps, and never in outer nets, which run a product once. Results equal
those of separate products within rounding, because the gradient of the shared operand is summed in one product.

**Products of joined operands** (`Concat(x, h) @ w`) are split if one operand waits for a state and another does not.
The product of inputs then runs for all steps at once. The gradient of inputs is a product of its own, which is left out
if it is not wanted. The sum of both products is written to memory and read again. With few inputs this costs as much as
the split saves, so such products stay (`LEAST_SHARE`). Results agree with those of the one product within rounding.

**Sums of products** become one op each. The order of its operands is the order of addition. A blocked product can be
added to the product before it without a pass over memory; a bias is added together with the first product. A backward
pass may run only a part of a step again. The order of addition must not depend on this part, or outputs would depend on
the choice of kept values. So the order is chosen here, on the cell, before that choice. Products that wait for no state
come first, because they run for many steps at once; a bias stands after the first of them. Then come products of
states, then all other operands. Results agree with those of the original sums within rounding.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from rnnops.interpreter import Program, fold_constants, prepare_again, prune, rewritten
from rnnops.net.loop_forms import MATMULS, View
from rnnops.net.net import Net
from rnnops.net.op import Input, Op, free_name
from rnnops.net.schema import Call, form_of, schema_of
from rnnops.ops.base import MANY_OPERANDS
from rnnops.recurrent.recurrence import Recurrence, cell_program, input_types, is_training_form
from rnnops.types import FLOATS
from rnnops.util import cached_property


def hoist_out_of_cells(program: Program) -> Net:
    """Move ops that read only references and constants out of the cells of a net's recurrences.

    rewrite: `RecurrentNetwork(x, h, w) { v = Softmax(w); h_t = MatMul(h, v) }`  -->
        `v = Softmax(w); RecurrentNetwork(x, h, v) { h_t = MatMul(h, v) }`
    """
    taken, ops = set(program.types), list[Op]()
    for call in program.calls:
        ops += _hoisted(call, taken)
    return rewritten(program.net, ops)


@dataclass(frozen=True)
class StepSplit:
    """A step in two: ops that run once, and those that stay in the step.

    Args:
        step: the whole step.
        stay: the ops that stay in the step.
        results: blobs that are made once and are read in the step.
        fixed: all blobs that are the same at every step.
    """

    step: Program
    stay: list[Op]
    results: tuple[str, ...]
    fixed: set[str]

    @cached_property
    def once(self) -> Net:
        """The ops that run once; its outputs are the results."""
        return prune(self.step.net, keep_inputs=(), outputs={name: name for name in self.results})


def split_step(
    step: Program,
    references: Collection[str],
    wanted: Collection[str],
    keep: Collection[str] = (),
    copied: Collection[str] = (),
) -> StepSplit:
    """Find the ops that depend only on references and constants. Views and results that are known before a run stay.

    Args:
        wanted: blobs of the step that are read outside of it.
        keep: blobs that stay in the step; all blobs that depend on them stay too.
        copied: results of ops of the form View that are copies nevertheless.
    """
    fixed, moved = set(references), set()
    for call in step.calls:
        known = _is_known(call)
        if (known or _is_fixed(call, fixed)) and not any(name in keep for name in call.op.outputs):
            fixed.update(name for name in call.op.outputs if name)
            if not known and (not is_view(call) or call.op.outputs[0] in copied):
                moved.add(id(call.op))
    stay = [op for op in step.net.ops if id(op) not in moved]
    read = {*wanted, *(name for op in stay for name in op.inputs)}
    results = (name for op in step.net.ops if id(op) in moved for name in op.outputs)
    return StepSplit(step, stay, tuple(name for name in results if name in read), fixed)


def _is_fixed(call: Call, fixed: Collection[str]) -> bool:
    schema = schema_of(call.op.type)
    given = [name for name in call.op.inputs if name]
    return bool(given) and all(name in fixed for name in given) and not schema.random and not schema.uses_context


def _is_known(call: Call) -> bool:
    """True if the results are known before a run, or the op is a ConstantOfShape, which costs nothing."""
    values = [value for name, value in zip(call.op.outputs, call.output_values, strict=True) if name]
    return call.op.type == "ConstantOfShape" or all(value is not None for value in values)


def is_view(call: Call) -> bool:
    """True if results are views of an operand. An op that joins several operands needs memory of its own."""
    form = form_of(call)
    return isinstance(form, View) and not form.all_inputs


def _hoisted(call: Call, taken: set[str]) -> list[Op]:
    """The ops that leave a recurrence, then the recurrence without them."""
    if call.op.type != "RecurrentNetwork" or is_training_form(call.op):
        return [call.op]
    recurrence = Recurrence(call.op, call.net)
    cell = cell_program(recurrence, call)
    cell = prepare_again(cell, fold_constants(cell), cell.types)
    split = split_step(cell, recurrence.references, list(cell.net.output_blobs.values()), kept_inside(recurrence))
    if not split.results:
        return [call.op]
    outer = {name: blob for kind, name, blob in recurrence.bindings() if kind == "reference"}
    once = [_renamed(op, outer, call.op, taken) for op in split.once.ops]
    inputs = [*cell.net.input_specs, *(Input(name, cell.net.dtype_of(name), None) for name in split.results)]
    step = cell.net.with_ops(split.stay, inputs=inputs).snapshot()
    changed = replace(call.op, attributes={**call.op.attributes, "cell": step})
    return [*once, without_unread_references(with_references(changed, {name: outer[name] for name in split.results}))]


def kept_inside(recurrence: Recurrence) -> set[str]:
    """Blobs with a name of the user, checkpoints, and results of ops that hold a net."""
    cell = recurrence.cell
    named = {name for name in cell.blob_names if cell.is_capturable(name) and name not in cell.input_names}
    return {*named, *cell.checkpoints, *(name for op in cell.ops if op.holds_net for name in op.outputs)}


def _renamed(op: Op, outer: dict[str, str], recurrence: Op, taken: set[str]) -> Op:
    """An op of the cell as an op of the net around it, with new names for its results."""
    scope = recurrence.key.rpartition("/")[0] or recurrence.key
    inputs = tuple(outer.get(name, "") for name in op.inputs)
    outer.update((name, free_name(f"{scope}/{name}", taken)) for name in op.outputs if name)
    outputs = tuple(outer[name] if name else "" for name in op.outputs)
    return replace(op, inputs=inputs, outputs=outputs, layer=op.layer or recurrence.layer)


def lift_from_cells(net: Net, fixed: Collection[str]) -> Net:
    """Move ops that depend only on `fixed` out of cells, and out of cells within cells.

    rewrite: `cell(x, w): v = Transpose(w); y = MatMul(x, v)`  -->  `v = Transpose(w)`; `cell(x, v): y = MatMul(x, v)`

    Args:
        fixed: inputs of the net.
    """
    found, taken, ops = set(fixed), {name for op in net.ops for name in op.outputs} | set(net.input_names), list[Op]()
    for op in net.ops:
        lifted = _lifted(op, net.name, found, taken) if op.type == "RecurrentNetwork" else [op]
        ops += lifted
        found.update(name for one in lifted if _moves(one, found) for name in one.outputs)
    return net.with_ops(ops).snapshot()


def _moves(op: Op, fixed: Collection[str], outputs: Collection[str] = ()) -> bool:
    """True if an op depends only on fixed blobs and may leave the cell."""
    schema, given = schema_of(op.type), {name for name in op.inputs if name}
    stays = schema.random or schema.uses_context or op.holds_net or not set(outputs).isdisjoint(op.outputs)
    return bool(given) and given <= set(fixed) and not stays


def _lifted(op: Op, net: str, fixed: Collection[str], taken: set[str]) -> list[Op]:
    """The ops that have left the cell of a recurrence, then the recurrence."""
    recurrence = Recurrence(op, net)
    outer = {name: blob for kind, name, blob in recurrence.bindings() if kind == "reference" and blob in fixed}
    cell = lift_from_cells(recurrence.cell, outer)
    constant = {name for one in cell.ops if not one.inputs and not schema_of(one.type).random for name in one.outputs}
    outputs, moved, rest = set(cell.output_blobs.values()), list[Op](), list[Op]()
    inside = set(outer)
    for one in cell.ops:
        moves = _moves(one, inside | constant, outputs) and not inside.isdisjoint(one.inputs)
        (moved if moves else rest).append(one)
        inside.update(one.outputs if moves else ())
    made = {name for one in moved for name in one.outputs if name}
    read = {name for one in rest for name in one.inputs} & made
    if not read:
        return [op if cell is recurrence.cell else replace(op, attributes={**op.attributes, "cell": cell})]
    needed = {name for one in moved for name in one.inputs} & constant
    copies = [one for one in cell.ops if not needed.isdisjoint(one.outputs)]
    names = {**outer, **{name: free_name(name, taken) for one in (*copies, *moved) for name in one.outputs if name}}
    ahead = [_with_names(one, names) for one in (*copies, *moved)]
    more = [name for one in moved for name in one.outputs if name in read]
    inner = prune(cell.with_ops(rest, inputs=[*cell.input_specs, *map(Input, more)]))
    recompute = tuple(name for name in op.attributes.get("recompute", ()) if name not in made)
    changed = replace(op, attributes={**op.attributes, "cell": inner, "recompute": recompute})
    return [*ahead, with_references(changed, {name: names[name] for name in more})]


def _with_names(op: Op, names: dict[str, str]) -> Op:
    inputs, outputs = (tuple(names.get(name, name) for name in some) for some in (op.inputs, op.outputs))
    return replace(op, inputs=inputs, outputs=outputs)


SUNK = ("Squeeze", "Transpose", "Unsqueeze")


def sink_views(program: Program) -> Net:
    """Move views of weights into the cells that read them: transposes, and axes of size 1 added or dropped.

    rewrite: `v = Transpose(w)`; `cell(x, v): y = MatMul(x, v)`  -->  `cell(x, w): v = Transpose(w); y = MatMul(x, v)`
    """
    makers = {call.op.key: call.op for call in program.calls if _is_view_of_matrix(call)}
    return rewritten(program.net, [_with_views(op, makers) for op in program.net.ops])


def _is_view_of_matrix(call: Call) -> bool:
    """True for a view whose operand or result is a matrix: packing reads it in any order. A view of more axes stays
    outside, because cells read its result faster."""
    if call.op.type not in SUNK or len(call.op.inputs) != 1 or call.dtype(0) not in FLOATS:
        return False
    return min(call.rank(0), call.output_types[0].rank) <= 2


def _with_views(op: Op, makers: Mapping[str, Op]) -> Op:
    """A recurrence whose cell makes the views that it reads."""
    if op.type != "RecurrentNetwork" or is_training_form(op):
        return op
    recurrence, inputs, views = Recurrence(op, ""), list(op.inputs), list[Op]()
    cell, same = recurrence.cell, dict[str, str]()
    taken, results = set(cell.blob_names), set(cell.output_blobs.values())
    for place, (kind, name, blob) in enumerate(recurrence.bindings()):
        chain = [] if kind != "reference" or name in results else _chain(blob, makers)
        for maker in reversed(chain):
            made = free_name(f"{name}/view", taken)
            views.append(replace(maker, inputs=(same.get(name, name),), outputs=(made,)))
            same[name] = made
        inputs[place] = chain[-1].inputs[0] if chain else blob
    if not views:
        return op
    ops = [replace(one, inputs=tuple(same.get(name, name) for name in one.inputs)) for one in cell.ops]
    specs = [Input(spec.name, spec.dtype) if spec.name in same else spec for spec in cell.input_specs]
    changed = cell.with_ops([*views, *ops], inputs=specs).snapshot()
    return replace(op, inputs=tuple(inputs), attributes={**op.attributes, "cell": changed})


def _chain(blob: str, makers: Mapping[str, Op]) -> list[Op]:
    """The views that make a blob, the last one first."""
    found = list[Op]()
    while blob in makers:
        found.append(makers[blob])
        blob = found[-1].inputs[0]
    return found


def with_references(op: Op, more: dict[str, str]) -> Op:
    """A recurrence with more references: cell input -> outer blob."""
    references = (*op.attributes.get("references", ()), *more)
    return replace(op, inputs=(*op.inputs, *more.values()), attributes={**op.attributes, "references": references})


def without_unread_references(op: Op) -> Op:
    """A recurrence without the references that nothing in its cell reads."""
    recurrence = Recurrence(op, "")
    cell: Net = recurrence.cell
    read = {name for one in cell.ops for name in one.inputs} | set(cell.output_blobs.values())
    unread = {name for name in recurrence.references if name not in read}
    if not unread:
        return op
    ports = zip(recurrence.ports(), op.inputs, strict=True)
    inputs = tuple(blob for name, blob in ports if name not in unread)
    kept = cell.with_ops(cell.ops, inputs=[spec for spec in cell.input_specs if spec.name not in unread]).snapshot()
    references = tuple(name for name in recurrence.references if name not in unread)
    return replace(op, inputs=inputs, attributes={**op.attributes, "cell": kept, "references": references})


NARROW = 32  # columns of a product
MANY = 50  # steps


def merge_products(program: Program, narrow: int = NARROW, many: int = MANY) -> Net:
    """Merge products in the cells of a net's recurrences.

    rewrite: `a = MatMul(x, v); b = MatMul(x, w)`  -->
        `a/weights = Concat(v, w, axis=1); a/joined = MatMul(x, a/weights); a, b = Split(a/joined, axis=-1)`

    Args:
        narrow: products with more columns stay as they are.
        many: recurrences with fewer steps stay as they are.
    """
    ops = [_with_merged_cell(call, narrow, many) for call in program.calls]
    return rewritten(program.net, ops)


def _with_merged_cell(call: Call, narrow: int, many: int) -> Op:
    if call.op.type != "RecurrentNetwork" or is_training_form(call.op):
        return call.op
    recurrence = Recurrence(call.op, call.net)
    if recurrence.steps_and_batch(input_types(recurrence, call))[0] < many:
        return call.op
    stay = call.op.attributes.get("recompute", ())
    cell = merge_in_step(cell_program(recurrence, call), recurrence.references, stay, narrow)
    return call.op if cell is recurrence.cell else replace(call.op, attributes={**call.op.attributes, "cell": cell})


def merge_in_step(step: Program, weights: Collection[str], stay: Collection[str] = (), narrow: int = NARROW) -> Net:
    """A step with one product in place of several with the same left operand; the net itself if there are none.

    Args:
        weights: inputs that are the same at every step.
        stay: products that are not merged.
    """
    groups: dict[tuple[str, str, str], list[Call]] = {}
    for call in step.calls:
        if _may_join(call, weights, narrow) and call.op.key not in stay:
            groups.setdefault((call.op.type, call.op.inputs[0], call.op.layer), []).append(call)
    joined = {id(calls[0]): calls for calls in groups.values() if len(calls) > 1}
    if not joined:
        return step.net
    gone = {id(call) for calls in joined.values() for call in calls}
    taken = set(step.types)
    ops: list[Op] = []
    for call in step.calls:
        ops += (
            _merged_products(joined[id(call)], taken) if id(call) in joined else [] if id(call) in gone else [call.op]
        )
    return step.net.with_ops(ops).snapshot()


def _may_join(call: Call, weights: Collection[str], narrow: int) -> bool:
    if call.op.type not in MATMULS:
        return False
    left, right = call.op.inputs
    rows = call.rank(0) > 1 and call.rank(1) == 2
    return left not in weights and right in weights and rows and 0 < call.shape(1)[1] <= narrow


def _merged_products(calls: Sequence[Call], taken: set[str]) -> list[Op]:
    first, layer = calls[0].op, calls[0].op.layer
    weights, product = (free_name(f"{first.key}/{what}", taken) for what in ("weights", "joined"))
    return [
        Op("Concat", tuple(call.op.inputs[1] for call in calls), (weights,), {"axis": 1}, layer),
        Op(first.type, (first.inputs[0], weights), (product,), first.attributes, layer),
        Op(
            "Split",
            (product,),
            tuple(call.op.key for call in calls),
            {"axis": -1, "split": tuple(call.shape(1)[1] for call in calls)},
            layer,
        ),
    ]


def split_products(program: Program) -> Net:
    """Split products of joined operands in the cells of a net's recurrences.

    rewrite: `a = Concat(x, h, axis=-1); y = MatMul(a, w)`  -->
        `v = Slice(w, :D); u = Slice(w, D:); y = Sum(MatMul(x, v), MatMul(h, u))`
    """
    return rewritten(program.net, [_with_split_cell(call) for call in program.calls])


def _with_split_cell(call: Call) -> Op:
    if call.op.type != "RecurrentNetwork" or is_training_form(call.op):
        return call.op
    recurrence = Recurrence(call.op, call.net)
    step = cell_program(recurrence, call)
    waiting, stay = _waiting_states(recurrence, step), kept_inside(recurrence)
    cell = split_in_step(step, recurrence.references, waiting, stay)
    if cell is recurrence.cell:
        return call.op
    recompute = tuple(name for name in call.op.attributes.get("recompute", ()) if name in cell)
    return replace(call.op, attributes={**call.op.attributes, "cell": cell, "recompute": recompute})


def _waiting_states(recurrence: Recurrence, step: Program) -> Mapping[str, str]:
    """States that depend on a state of an earlier step -> their next values. All other states can be computed for all
    steps at once."""
    waiting = {state.input: step.net.output_blobs[state.output] for state in recurrence.states}
    while True:
        carried = _Places.of(step, (), recurrence.references, waiting).carried
        if all(blob in carried for blob in waiting.values()):
            return waiting
        waiting = {name: blob for name, blob in waiting.items() if blob in carried}


def split_in_step(step: Program, weights: Collection[str], states: Mapping[str, str], stay: Collection[str]) -> Net:
    """A step with sums of products in place of products of joined operands; the net itself if there are none.

    A product that does not depend on itself at an earlier step runs for all steps at once in any case. It is split only
    if the joined operand is then not needed.

    Args:
        weights: inputs that are the same at every step.
        states: inputs that depend on an earlier step -> their next values.
        stay: joined operands that somebody asked for; their products are not split.
    """
    places = _Places.of(step, (), weights, states)
    joins = {c.op.key: runs for c in step.calls if c.op.key not in stay and (runs := _runs(c, places))}
    operands = {c.op.key: c.op.inputs[0] for c in step.calls if c.op.type in SPLIT and c.rank(1) == 2}
    split = {c.op.key for c in step.calls if operands.get(c.op.key) in joins and c.op.inputs[1] in places.fixed}
    others = {name for op in step.net.ops if op.key not in split for name in op.inputs}
    taken, ops = set(step.types), list[Op]()
    for op in step.net.ops:
        pays = op.key in split and (op.inputs[0] not in others or op.key in _followed(step, states, op.inputs[0]))
        ops += _split_product(op, joins[op.inputs[0]], taken) if pays else [op]
    return step.net if len(ops) == len(step.calls) else prune(step.net.with_ops(ops))


def _followed(step: Program, states: Mapping[str, str], name: str) -> set[str]:
    """The blobs of this step and of earlier steps that a blob depends on."""
    inputs = {made: op.inputs for op in step.net.ops for made in op.outputs}
    found, left = set[str](), [name]
    while left:
        blob = left.pop()
        if blob not in found:
            found.add(blob)
            left += inputs.get(blob, [states[blob]] if blob in states else [])
    return found


SPLIT = ("MatMul", "RoundedMatMul")
LEAST_SHARE = 8  # a product is split if at least 1/8 of the features that it sums over do not wait for a state


def _runs(call: Call, places: _Places) -> list[tuple[tuple[str, ...], int]]:
    """The operands of a Concat in runs, with their widths: all operands of a run wait for a state, or none does. Empty
    if a split does not pay."""
    if call.op.type != "Concat" or call.axis(call.attr("axis"), call.rank(0)) != call.rank(0) - 1:
        return []
    named = [(name, call.shape(i)[-1]) for i, name in enumerate(call.op.inputs)]
    groups = [[*some] for _, some in groupby(named, lambda one: one[0] in places.carried)]
    runs = [(tuple(name for name, _ in some), sum(size for _, size in some)) for some in groups]
    free = sum(size for names, size in runs if names[0] not in places.carried)
    return runs if len(runs) > 1 and free * LEAST_SHARE >= sum(size for _, size in runs) else []


def _split_product(op: Op, runs: Sequence[tuple[tuple[str, ...], int]], taken: set[str]) -> list[Op]:
    """A product for each run of joined operands, and their sum under the name of the product."""
    ops, products, first = list[Op](), list[str](), 0
    for names, size in runs:
        part, product = (free_name(f"{op.key}/{what}", taken) for what in ("weights", "part"))
        cut = {"starts": (first,), "ends": (first + size,), "axes": (0,)}
        ops.append(Op("Slice", (op.inputs[1],), (part,), cut, op.layer))
        operand = names[0]
        if len(names) > 1:
            operand = free_name(f"{op.key}/joined", taken)
            ops.append(Op("Concat", names, (operand,), {"axis": -1}, op.layer))
        ops.append(Op(op.type, (operand, part), (product,), op.attributes, op.layer))
        products.append(product)
        first += size
    return [*ops, Op("Sum", tuple(products), op.outputs, {}, op.layer)]


SUMS = ("Add", "Sum")


def order_sums(program: Program) -> Net:
    """Join the sums of products in the cells of a net's recurrences.

    rewrite: `a = x @ v; b = a + c; d = h @ u; e = d + f; y = b + e`  -->  `a = x @ v; d = h @ u; y = Sum(a, c, d, f)`
    """
    return rewritten(program.net, [_with_ordered_cell(call) for call in program.calls])


def _with_ordered_cell(call: Call) -> Op:
    if call.op.type != "RecurrentNetwork" or is_training_form(call.op):
        return call.op
    recurrence = Recurrence(call.op, call.net)
    cell = order_in_step(
        cell_program(recurrence, call), recurrence.references, [one.input for one in recurrence.states]
    )
    if cell is recurrence.cell:
        return call.op
    again = dict.fromkeys(call.op.attributes.get("recompute", ()))
    for op in recurrence.cell.ops:  # in place of an inner sum, the sum that it became a part of
        if any(name in again and name not in cell for name in op.inputs):
            again.update(dict.fromkeys(op.outputs))
    carried = {cell.output_blobs[state.output] for state in recurrence.states}
    recompute = tuple(name for name in again if name in cell and name not in carried)
    return replace(call.op, attributes={**call.op.attributes, "cell": cell, "recompute": recompute})


def order_in_step(step: Program, weights: Collection[str], states: Collection[str]) -> Net:
    """A step in which each sum of two products or more is one op; the net itself if there are none.

    Args:
        weights: inputs that are the same at every step.
        states: inputs that depend on an earlier step.
    """
    inner = _inner_sums(step)
    products = {name for call in step.calls if call.op.type in MATMULS for name in call.op.outputs}
    joined: dict[str, list[str]] = {}
    gone: set[str] = set()
    for call in step.calls:
        if call.op.type in SUMS and call.op.key not in inner:
            leaves, inside = _leaves(call, inner)
            several = len(products.intersection(leaves)) > 1 and 2 < len(leaves) <= MANY_OPERANDS
            if several and len(set(leaves)) == len(leaves):
                joined[call.op.key] = leaves
                gone |= inside
    if not joined:
        return step.net
    places = _Places.of(step, products, weights, states)
    ops = [call.op for call in step.calls if call.op.key not in gone]
    sums = {key: places.ordered(leaves) for key, leaves in joined.items()}
    ops = [replace(op, type="Sum", inputs=sums[op.key]) if op.key in sums else op for op in ops]
    return step.net.with_ops(ops).snapshot()


def _inner_sums(step: Program) -> dict[str, Call]:
    """Name -> sum, for sums that are read only by one other sum of their type and layer."""
    sums = {call.op.key: call for call in step.calls if call.op.type in SUMS}
    reads = Counter(name for call in step.calls for name in call.op.inputs)
    reads.update(step.net.output_blobs.values())
    return {
        name: sums[name]
        for call in step.calls
        if call.op.type in SUMS and step.types[call.op.key].dtype in FLOATS
        for name in call.op.inputs
        if name in sums
        and reads[name] == 1
        and step.types[name] == step.types[call.op.key]
        and sums[name].op.layer == call.op.layer
        and not step.net.is_capturable(name)
    }


def _leaves(call: Call, inner: Mapping[str, Call]) -> tuple[list[str], set[str]]:
    """The operands of a sum, with the operands of inner sums in their place, and the inner sums."""
    leaves: list[str] = []
    inside: set[str] = set()
    ahead = [*reversed(call.op.inputs)]  # a list, not recursion: sums may be thousands deep
    while ahead:
        name = ahead.pop()
        if name in inner:
            inside.add(name)
            ahead += reversed(inner[name].op.inputs)
        else:
            leaves.append(name)
    return leaves, inside


@dataclass(frozen=True)
class _Places:
    """The order of operands in a sum.

    Args:
        products: blobs that are results of products.
        fixed: blobs that are the same at every step.
        carried: blobs that depend on a state.
    """

    products: Collection[str]
    fixed: Collection[str]
    carried: Collection[str]

    @classmethod
    def of(cls, step: Program, products: Collection[str], weights: Collection[str], states: Collection[str]) -> _Places:
        fixed, carried = set(weights), set(states)
        for call in step.calls:
            read = {name for name in call.op.inputs if name}
            if read <= fixed:
                fixed.update(call.op.outputs)
            if read & carried:
                carried.update(call.op.outputs)
        return cls(products, fixed, carried)

    def ordered(self, leaves: Sequence[str]) -> tuple[str, ...]:
        """The first product, the first bias, the other products, then all other operands in their order. Products that
        depend on states come after other products."""
        first, *products = sorted((name for name in leaves if name in self.products), key=self.carried.__contains__)
        others = [name for name in leaves if name not in self.products]
        bias = [name for name in others if name in self.fixed][:1]
        return (first, *bias, *products, *(name for name in others if name not in bias))
