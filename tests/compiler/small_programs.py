"""Programs of two or three ops, written as text, as one pass after another finds them."""

from __future__ import annotations

import rnnops as ro
from rnnops.checkpoints.policy import DEFAULT_POLICY, Policy
from rnnops.compiler.lower.lower_ops import lower_ops
from rnnops.compiler.lower.scan import Lowered
from rnnops.compiler.lower.statements import Access, dense
from rnnops.compiler.memory.choose_saved import ByPolicy, Saved
from rnnops.interpreter import Program, prepare
from rnnops.net.schema import Call
from rnnops.types import Shape, Type

STEPS, ROWS = 4, (2, 3)  # of recurrences: T, and N with D


def net_of(lines: str, **kinds: Shape | Type) -> ro.Net:
    """The net of some lines, which returns `y`; inputs are float64 of a shape, or of a type."""
    typed = [name if isinstance(kind, tuple) else f"{name}: {kind.dtype}" for name, kind in kinds.items()]
    body = "\n".join(f"    {line.strip()}" for line in lines.split(";"))
    return ro.parse_net(f"net n({', '.join(typed)})\n{body}\n    return y")


def program_of(lines: str, **kinds: Shape | Type) -> Program:
    """The same with the types of all its blobs."""
    types = {name: Type("float64", kind) if isinstance(kind, tuple) else kind for name, kind in kinds.items()}
    return prepare(net_of(lines, **kinds), types, "float64")


def call_of(lines: str, **kinds: Shape | Type) -> Call:
    """The last op of some lines."""
    return program_of(lines, **kinds).calls[-1]


def memory_of(program: Program) -> Lowered:
    """Inputs in memory of their own, and nothing else yet."""
    names = program.net.input_names
    return Lowered(views={name: Access(name, dense(program.types[name].shape)) for name in names})


def lowered_of(lines: str, **kinds: Shape | Type) -> Lowered:
    """The lines as statements."""
    program = program_of(lines, **kinds)
    return lower_ops(program, memory_of(program).views, {})


def texts_of(lowered: Lowered) -> list[str]:
    """Its statements."""
    return [str(statement) for statement in lowered.statements]


def recurrence_of(lines: str, **references: Shape) -> ro.Net:
    """A recurrence over `xs`: the lines make `y`, the next `h`, of `x`, `h` and references."""
    cell, net = net_of(lines, x=ROWS, h=ROWS, **references), ro.Net("outer")
    first = [("x", net.input("xs"))], [("h", net.input("h0"))], {"h": "y"}
    net.outputs(y=ro.recurrent_net(net, cell, *first, references={name: net.input(name) for name in references})[0])
    return net


def saved_of(net: ro.Net, policy: Policy = DEFAULT_POLICY, **shapes: Shape) -> Saved:
    """The net in training form, its gradient net, and what a policy keeps between them."""
    types = {name: Type("float64", shape) for name, shape in shapes.items()}
    return ByPolicy(prepare(net, types, "float64"), types, tuple(types), policy.residuals)(policy)


def recurrence_saved(lines: str, policy: Policy = DEFAULT_POLICY, **references: Shape) -> Saved:
    """The same of `recurrence_of`, over four steps."""
    return saved_of(recurrence_of(lines, **references), policy, xs=(STEPS, *ROWS), h0=ROWS, **references)
