"""Finds names, ops, dtypes and types of a net, as far as they are known before it runs.

**Inference** of shapes and dtypes goes op by op, or through a whole net from the types of its feeds. Values that are
known before a run (constants, shapes, and integer arithmetic on these) are computed on the way. So inputs that hold
sizes, such as Reshape's, may be computed.

**The tables of a net** (inputs, ops, names, types) grow as ops are added. Names are unique, ops read only blobs that
exist already, and a finished net does not grow. `Net` is built on these tables.

**Labels** are the names of variables that hold blobs where a net is written. `print` shows them next to the names of
blobs. They are for readers only: no name lookup uses them (`.named` gives a name for that), and plans, kernels and
caches do not depend on them. Each time an op is appended, the variables of the callers are looked up. The variable of
an earlier result exists by then. Only variables that the running code names are looked up, and only to see if they hold
blobs of this net.

Limits: a blob gets no label if its variable holds another blob before the next op is appended, or if it is only an
attribute or an element. Before Python 3.13 a function's variables are read as a copy that lives as long as the call. To
keep nothing large alive, only functions that end with their net (`@ro.cell`) are looked at there.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from math import prod
from operator import is_
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from rnnops.errors import Attributes, NamedRule, NetError, OpError, TypeRuleError, named_options, op_label
from rnnops.net.blob import Blob
from rnnops.net.op import Initializer, Input, Op, check_name, scoped, some_of
from rnnops.net.schema import Call, OpSchema, schema_of
from rnnops.sizes import is_symbolic
from rnnops.types import ANY, FLOAT, OPAQUE, Array, Type, is_float, is_too_large
from rnnops.util import counted

if TYPE_CHECKING:
    from rnnops.net.net import Net

KNOWN = (*ANY, OPAQUE)  # allowed dtypes of outputs
MOST_AXES = 32  # NumPy's limit before version 2
FOLD_LIMIT = 4096  # most elements of a value that is computed; shape arithmetic has far fewer, data far more
TOO_LARGE = "Check the sizes that decide its shape: a file or a computation may have them wrong."


def check_dtypes(schema: OpSchema, op: Op, dtypes: Sequence[str | None], net: str) -> None:
    """Raise TypeRuleError if inputs that must share a dtype do not, or the op does not accept it."""
    shared = range(len(dtypes)) if schema.same_dtype is None else schema.same_dtype
    given = [(op.inputs[i], dtypes[i]) for i in shared if i < len(dtypes) and dtypes[i] is not None]
    for name, dtype in given:
        if dtype not in schema.accepts:
            _refuse(op, net, name, dtype, "dtype not accepted by this op", " or ".join(schema.accepts))
        first, wanted = given[0]
        if dtype != wanted:
            _refuse(op, net, name, dtype, "operands of different dtypes", f"{wanted} as '{first}' has")


def _refuse(op: Op, net: str, blob: str, came: str | None, problem: str, wanted: str) -> NoReturn:
    label, hint = op_label(op.type, op.outputs), "Use ro.cast where a conversion is meant."
    raise TypeRuleError(problem, net=net, op=label, blob=blob, wanted=wanted, came=came, hint=hint)


def infer_call(
    op: Op, types: Sequence[Type | None], values: Sequence[Array | None], net: str, float_dtype: str
) -> tuple[Call, tuple[Array | None, ...]]:
    """The call with its output types. Also the outputs' values, if they are known before a run."""
    schema = schema_of(op.type, net)
    # symbolic sizes belong to one plan, so that nothing is remembered
    if any(is_symbolic(kind.shape) for kind in types if kind is not None):
        return _inferred(schema, op, types, values, net, float_dtype)
    asked = schema, tuple(types), net, float_dtype
    found: tuple[Call, tuple[Array | None, ...]]
    known, before, found = op.memory.get("call", ((), (), None))
    if known == asked and len(before) == len(values) and all(map(is_, before, values)):
        return found
    found = _inferred(schema, op, types, values, net, float_dtype)
    op.memory["call"] = asked, tuple(values), found
    return found


def _inferred(
    schema: OpSchema, op: Op, types: Sequence[Type | None], values: Sequence[Array | None], net: str, float_dtype: str
) -> tuple[Call, tuple[Array | None, ...]]:
    dtypes = tuple(kind.dtype if kind else None for kind in types)
    out_dtypes = output_dtypes(schema, op, dtypes, net, float_dtype)
    given = (op, tuple(types), tuple(values), net)
    scalars = tuple(map(_scalar, out_dtypes))
    with NamedRule("shapes", net, op):
        shapes = schema.shapes(Call(*given, scalars, float_dtype=float_dtype))
    _check_declared(op, net, "shapes", shapes, isinstance(shapes, tuple | list) and all(map(_is_shape, shapes)))
    out_types = tuple(Type(dtype, tuple(shape)) for dtype, shape in zip(out_dtypes, shapes, strict=True))
    unknown = (None,) * len(out_types)
    call = Call(*given, out_types, unknown, float_dtype)
    for name, kind in zip(op.outputs, out_types, strict=True):
        if kind.rank > MOST_AXES:
            call.fail("an array cannot have so many axes", blob=name, wanted=f"at most {MOST_AXES}", came=kind.rank)
        if is_too_large(kind.shape):
            call.fail("no memory can hold this result", blob=name, came=kind.in_words(), hint=TOO_LARGE)
    folded = _fold(schema, call)
    if any(value is not None for value in folded):
        call = Call(*given, out_types, folded, float_dtype)
    return call, folded


@cache
def _scalar(dtype: str) -> Type:
    return Type(dtype, ())


def output_dtypes(
    schema: OpSchema, op: Op, dtypes: tuple[str | None, ...], net: str, float_dtype: str
) -> tuple[str, ...]:
    """Dtypes of the outputs. `float_dtype` replaces `"float"`.

    Raises the errors of `check_dtypes`, and OpError if the rule returns something that is not a dtype.
    """
    # a net may be built for one float dtype and run in another
    asked, place = (schema, dtypes, net), f"dtypes for {float_dtype}"
    known, resolved = op.memory.get(place, ((), ()))
    if known != asked:
        resolved = _resolved(schema, op, dtypes, net, float_dtype)
        op.memory[place] = asked, resolved
    found: tuple[str, ...] = resolved
    return found


def _resolved(schema: OpSchema, op: Op, dtypes: tuple[str | None, ...], net: str, float_dtype: str) -> tuple[str, ...]:
    check_dtypes(schema, op, dtypes, net)
    with NamedRule("dtypes", net, op):
        found = schema.dtypes(dtypes, op.attributes)
    right = isinstance(found, tuple | list) and all(dtype in KNOWN for dtype in found)
    _check_declared(op, net, "dtypes", found, right)
    return tuple(float_dtype if dtype == FLOAT else dtype for dtype in found)


def _check_declared(op: Op, net: str, rule: str, came: Any, right: bool) -> None:
    """Raise OpError if a rule does not return one value for each output."""
    if not right or len(came) != len(op.outputs):
        wanted = f"one for each of its outputs ({len(op.outputs)})"
        raise OpError(f"its rule `{rule}` does not return {rule}", net=net, op=op.label, wanted=wanted, came=repr(came))


def _is_shape(shape: object) -> bool:
    return isinstance(shape, tuple | list) and all(isinstance(size, int | np.integer) and size >= 0 for size in shape)


def _fold(schema: OpSchema, call: Call) -> tuple[Array | None, ...]:
    """Values of the outputs, if they depend only on the call (constants, shapes, integer arithmetic on these)."""
    known = schema.known_value(call)
    if known is not None:
        return (known,)
    if not _foldable(call):
        return (None,) * len(call.output_types)
    result = schema.reference(call, *call.values)
    return result if isinstance(result, tuple) else (result,)


def _foldable(call: Call) -> bool:
    known = {name for name, value in zip(call.op.inputs, call.values, strict=True) if value is not None}
    dtypes = [kind.dtype for kind in call.output_types]
    return is_integer_arithmetic(call.op, dtypes, known) and all(map(_is_small, call.output_types))


def is_integer_arithmetic(op: Op, dtypes: Sequence[str], known: Collection[str]) -> bool:
    """True if an op's result may be known before a run, such as that of ConstantOfShape without inputs.

    Casts of a size to a float count too, because a Range over floats may end at a size. So do floats that are joined,
    as scales are.

    Args:
        dtypes: dtypes of its outputs.
        known: names of blobs that are known.
    """
    schema = schema_of(op.type)
    follows = all(name in known for name in op.inputs if name) and not (schema.random or schema.uses_context)
    return follows and (op.type in ("Cast", "Concat") or not any(is_float(dtype) for dtype in dtypes))


def _is_small(kind: Type) -> bool:
    """True if a value is small enough to compute during inference. An empty value may come from large parts."""
    return prod(filter(None, kind.shape)) <= FOLD_LIMIT


def infer(net: Net, feeds: Mapping[str, Type], float_dtype: str) -> dict[str, Call]:
    """Types of all blobs of a net.

    Args:
        feeds: the type of every input.
        float_dtype: the dtype for `"float"` in this run.

    Returns: the call with all types, for each op, by the name of its first output that has a name.
    """
    return {call.op.key: call for call in calls_of(net, feeds, float_dtype)}


def calls_of(net: Net, feeds: Mapping[str, Type], float_dtype: str) -> Iterator[Call]:
    """The calls of a net one by one."""
    types, values = dict(feeds), dict[str, Array]()
    for op in net.ops:
        yield _infer_op(op, types, values, net.name, float_dtype)


def _infer_op(op: Op, types: dict[str, Type], values: dict[str, Array], net: str, float_dtype: str) -> Call:
    """The call of an op, from the types and known values of its inputs. Types and values of its outputs are added."""
    given = [types.get(name) for name in op.inputs], [values.get(name) for name in op.inputs]
    call, folded = infer_call(op, *given, net, float_dtype)
    for name, kind, value in zip(op.outputs, call.output_types, folded, strict=True):
        if name:  # "" is an unwanted output or a missing input, which have no type
            types[name] = kind
        if name and value is not None:
            values[name] = value
    return call


def declared_type(net: Net, blob: str) -> Type | None:
    """The type of a blob in a run of float32, if it follows from the shapes that inputs declare; else None."""
    return _known(net, ancestors(net, [blob]), {}).get(blob)


def known_types(net: Net, shapes: Mapping[str, Sequence[int]]) -> dict[str, Type]:
    """Types of all blobs in a run of float32 that follow from shapes of inputs, given or declared."""
    return _known(net, net.ops, shapes)


def _known(net: Net, ops: Sequence[Op], shapes: Mapping[str, Sequence[int]]) -> dict[str, Type]:
    given = {spec.name: shapes.get(spec.name, spec.shape) for spec in net.input_specs}
    types = {
        spec.name: Type("float32" if spec.dtype == FLOAT else spec.dtype, tuple(shape))
        for spec in net.input_specs
        if (shape := given[spec.name]) is not None
    }
    values: dict[str, Array] = {}
    for op in ops:
        if all(not name or name in types for name in op.inputs):
            _infer_op(op, types, values, net.name, "float32")
    return types


def ancestors(net: Net, blobs: Iterable[str]) -> list[Op]:
    """The ops on which blobs depend, in order."""
    wanted, found = set(blobs), []
    for op in reversed(net.ops):
        if wanted & set(op.outputs):
            wanted.update(filter(None, op.inputs))
            found.append(op)
    return found[::-1]


DEPTH = 8  # most frames of a caller's code: helper functions inside each other
INSIDE = 12  # most frames of libraries between a caller and `Net.append`
OPTIMIZED = 0x1  # bit of `co_flags`: variables lie in the frame, and are copied or viewed (`inspect.CO_OPTIMIZED`)
IS_COPIED = sys.version_info < (3, 13)  # since PEP 667 (Python 3.13) it is a view
LIBRARIES = ("rnnops.", "numpy.")


class Labels:
    """Labels of the blobs of a net, from the variables that hold them while it is written.

    Args:
        names: blob -> the variable that held it first.
        in_functions: True if functions are looked at even where their variables are copied.
    """

    def __init__(self, names: Mapping[str, str] | None = None, in_functions: bool = False) -> None:
        self.names = dict(names or {})
        self.in_functions = in_functions or not IS_COPIED
        self._open: set[str] = set()
        self._frame = 0

    def expect(self, blob: str) -> None:
        """From now on this blob may get a label, because its name is made up."""
        self._open.add(blob)

    def forget(self, blob: str) -> None:
        """This blob has a given name now, and needs no label."""
        self._open.discard(blob)
        self.names.pop(blob, None)

    def look(self, blobs: Mapping[str, Blob]) -> None:
        """Notes the blobs in the callers' variables.

        Args:
            blobs: blobs of the net, by name.
        """
        frames = list(_callers()) if self._open else []
        if not frames:
            return
        is_known, self._frame = id(frames[0]) == self._frame, id(frames[0])
        for frame in frames[:1] if is_known else reversed(frames):  # a caller's variable wins over an argument
            if self.in_functions or not frame.f_code.co_flags & OPTIMIZED:
                self._note(frame, blobs)

    def read(self, blobs: Sequence[str], comment: str) -> None:
        """Reads labels from a comment that `said` wrote. Other comments are ignored."""
        labels = comment.removeprefix("# ").split(", ")
        if comment.startswith("# ") and len(labels) == len(blobs) and all(map(str.isidentifier, labels)):
            self.names.update((blob, label) for blob, label in zip(blobs, labels, strict=True) if blob and label != "_")

    def said(self, blobs: Sequence[str]) -> str:
        """A comment with the labels of an op's results, `_` for a result without one. Empty if none has a label."""
        labels = [self.names.get(blob, "_") for blob in blobs]
        return f"# {', '.join(labels)}" if any(label != "_" for label in labels) else ""

    def _note(self, frame: FrameType, blobs: Mapping[str, Blob]) -> None:
        held = frame.f_locals
        if not frame.f_code.co_flags & OPTIMIZED and type(held) is not dict:
            return  # `exec` takes any mapping, whose methods may do anything
        for variable in _variables(frame.f_code):
            value = held.get(variable)
            if type(value) is Blob and value.name in self._open and blobs.get(value.name) is value:
                self._open.remove(value.name)
                if variable.isidentifier() and not variable.startswith("_"):
                    self.names[value.name] = variable


def _variables(code: CodeType) -> tuple[str, ...]:
    """Names that the code of a frame may assign. For a module or class: all names that it mentions."""
    return code.co_varnames + code.co_cellvars if code.co_flags & OPTIMIZED else code.co_names


def _callers() -> Iterator[FrameType]:
    """The frames that called the library, from the innermost outwards to the next frame of the library."""
    frame: FrameType | None = sys._getframe(3)  # the caller of `look`
    for _ in range(INSIDE):
        if frame is None or not _is_library(frame):
            break
        frame = frame.f_back
    for _ in range(DEPTH):
        if frame is None or _is_library(frame):
            return
        yield frame
        frame = frame.f_back


def _is_library(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__")).startswith(LIBRARIES)


class NetTables(Attributes):
    """Base of nets: their contents, and the ways in which ops and names are added."""

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
        self.labels = Labels()  # names of variables, for readers only
        self.claims: dict[str, object] = {}  # names that belong to one object, such as a cell without a name
        self.starts: dict[str, Initializer] = {}  # parameter -> the last initializer that `set_init` gave it
        self._layer = ""
        self._frozen = False

    @property
    def ops(self) -> tuple[Op, ...]:
        """All ops, in the order in which they run."""
        return tuple(self._ops)

    @property
    def input_specs(self) -> tuple[Input, ...]:
        """Inputs and parameters, in order: name, dtype, shape and initializer (None if there is none)."""
        return tuple(self._inputs.values())

    @property
    def input_names(self) -> tuple[str, ...]:
        """Names of inputs and parameters, in order."""
        return tuple(self._inputs)

    @property
    def parameters(self) -> tuple[Input, ...]:
        """Inputs that have an initializer, for `ro.init_params`."""
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
            name: the blob's name.

        Raises:
            NetError: there is no such blob.
        """
        try:
            return self._dtypes[name]
        except (KeyError, TypeError):
            raise NetError("no such blob", net=self.name, blob=str(name), wanted=some_of(self._dtypes)) from None

    def type_of(self, name: str) -> Type | None:
        """Dtype and shape of a blob, if they are known while the net is built, as in gradient nets; else None.

        Args:
            name: the blob's name.
        """
        return self._types.get(name)

    def is_capturable(self, name: str) -> bool:
        """True if a cell may find this blob by its name: inputs, parameters and `.named` blobs only.

        Args:
            name: the blob's name.
        """
        return name in self._inputs or name in self._named

    def scoped(self, name: str) -> str:
        """A name with the prefix of the scopes that were opened after this net was made.

        Args:
            name: the name without the prefix.
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
            _infer_op(op, self._types, self._values, self.name, self._sized_as)
        index = len(self._ops)
        for name, dtype in zip(op.outputs, out_dtypes, strict=True):
            if name:
                self._dtypes[name] = dtype
                self._producer[name] = index
        self._ops.append(op)

    def _substitute(self, old: str, new: str) -> None:
        for index in range(self._producer.get(old, 0), len(self._ops)):  # earlier ops cannot mention the blob
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
        """Puts the ops that are appended inside into a layer of exactly this name.

        Args:
            layer: its name, or `""` for none.
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
        """Refuses a call: `ro.compile(net)` makes a function of a net.

        Args:
            feeds, named: as of a run.

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
