"""Nets as text: `format_net`, which `str(net)` calls; `rnnops.net.parse` reads the text back.

    net my_lstm(x_t, h_prev, w: param[4, 3] = xavier, lengths: int32)
        matmul_0 = MatMul(x_t, h_prev)
        *i, f = Split(matmul_0, axis=-1, num_outputs=2) @ gates
        return h_t=i, f

Here `i` was given its name with `.named`, which `*` marks (`^` would mark a checkpoint), and the Split belongs to layer
`gates`. `_` stands for an optional input left out and for an output that is not wanted. Names that are not plain words
stand in double quotes. Nets inside attributes stand in braces, indented. After the head of a net whose sizes are known
while it is built comes its float dtype. A parameter that starts from a large array shows a digest of it, and one that
starts from a function its name (`rnnops.net.op`). What follows `#` is a comment: after an op the variables
that held its results where the net was written, under a RecurrentNetwork what each blob of the cell is bound to.

**Names** are prefixed by scopes, and labelled by the variables that hold blobs.

**Labels**: variables that hold blobs where a net is written. `print` shows them next to the blobs' names. A label is
text for readers. Nothing binds to it (`.named` gives a name that binds), and plans, kernels and caches are found
without it. Labels are looked up in the callers' variables each time that an op is appended. The variable of a value
that was computed before exists by then. Only variables that the running code itself names are looked up, and of their
values only whether they are blobs of this net.

Limits: a blob has no label if its variable holds another one before the next op is appended, or if it is only an
attribute or an element of something. Before Python 3.13 a function's variables come as a copy that lives as long as its
call. So that nothing big stays alive with it, only functions that end with their net are looked at there, `@ro.cell`s.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import chain, count
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any

import numpy as np

from rnnops.errors import NetError
from rnnops.net.blob import Blob
from rnnops.net.schema import schema_of
from rnnops.types import FLOAT

if TYPE_CHECKING:
    from rnnops.net.net import Net
    from rnnops.net.op import Input, Op

FAR = 2**31 - 1  # from here on ends of slices stand for those of the axis
_PREFIX: ContextVar[str] = ContextVar("rnnops_name_scope", default="")


@contextmanager
def name_scope(name: str) -> Iterator[str]:
    """Put `<name>/` before names of nets inside of the `with`, those that users give and those made up; scopes nest.

    Only scopes opened after a net was made count for it, so that the names of a cell written in a scope have no prefix.

    Args:
        name: a non-empty string; slashes at its ends are left out.

    Yields:
        The whole prefix, those of outer scopes included.

    Raises:
        NetError: the name is empty or no string.

    Example:
        >>> net = ro.Net("n")
        >>> with ro.name_scope("encoder") as prefix:
        ...     x = net.input("x")
        >>> prefix, x.name
        ('encoder/', 'encoder/x')
    """
    if not isinstance(name, str) or not name.strip("/"):
        raise NetError("a name scope needs a name", wanted="a non-empty string", came=repr(name))
    token = _PREFIX.set(scoped(name.strip("/")) + "/")
    try:
        yield _PREFIX.get()
    finally:
        _PREFIX.reset(token)


@contextmanager
def absolute_names() -> Iterator[None]:
    """Switch scopes off: inside, names are taken as they are (parameters of cells carry absolute names)."""
    token = _PREFIX.set("")
    try:
        yield
    finally:
        _PREFIX.reset(token)


def scoped(name: str) -> str:
    """`name` with the prefix of the open scopes."""
    return _PREFIX.get() + name


def check_name(name: object, kind: str, net: str | None = None) -> str:
    """Names are non-empty printable strings without blanks at their ends; quotes and control characters are refused."""
    if not isinstance(name, str) or not name or name != name.strip() or not name.isprintable() or '"' in name:
        raise NetError(f"not a name for a {kind}", net=net, wanted="a non-empty printable string", came=repr(name))
    return name


def dotted(name: str) -> str:
    """`encoder/layer_0/gates_t_w` -> `encoder.layer_0.gates_t_w`."""
    return name.replace("/", ".")


def unused_name(name: str, taken: Container[str]) -> str:
    """The name, or it with a number behind, such that it is not taken."""
    return next(free for free in chain([name], (f"{name}_{k}" for k in count(1))) if free not in taken)


def free_name(name: str, taken: set[str]) -> str:
    """The name, or it with a number behind, such that it is not taken; it is from then on."""
    found = unused_name(name, taken)
    taken.add(found)
    return found


DEPTH = 8  # frames of a caller's code at most: helper functions within each other
INSIDE = 12  # frames of libraries at most between a caller and `Net.append`
OPTIMIZED = 0x1  # of `co_flags`: variables lie in the frame, and are copied or viewed (`inspect.CO_OPTIMIZED`)
IS_COPIED = sys.version_info < (3, 13)  # PEP 667 made it a view
LIBRARIES = ("rnnops.", "numpy.")


class Labels:
    """Labels of the blobs of a net, from the variables that hold them while it is written.

    Args:
        names: blob -> the variable that held it first.
        in_functions: whether functions are looked at where their variables are copied.
    """

    def __init__(self, names: Mapping[str, str] | None = None, in_functions: bool = False) -> None:
        self.names = dict(names or {})
        self.in_functions = in_functions or not IS_COPIED
        self._open: set[str] = set()
        self._frame = 0

    def expect(self, blob: str) -> None:
        """From now on this blob may get a label, as its name is made up."""
        self._open.add(blob)

    def forget(self, blob: str) -> None:
        """This blob has another name now, given by hand."""
        self._open.discard(blob)
        self.names.pop(blob, None)

    def look(self, blobs: Mapping[str, Blob]) -> None:
        """Note what the callers' variables hold.

        Args:
            blobs: those of the net, by name.
        """
        frames = list(_callers()) if self._open else []
        if not frames:
            return
        is_known, self._frame = id(frames[0]) == self._frame, id(frames[0])
        for frame in frames[:1] if is_known else reversed(frames):  # a caller's variable comes before an argument
            if self.in_functions or not frame.f_code.co_flags & OPTIMIZED:
                self._note(frame, blobs)

    def read(self, blobs: Sequence[str], comment: str) -> None:
        """Take the labels that `said` wrote; another comment is none."""
        labels = comment.removeprefix("# ").split(", ")
        if comment.startswith("# ") and len(labels) == len(blobs) and all(map(str.isidentifier, labels)):
            self.names.update((blob, label) for blob, label in zip(blobs, labels, strict=True) if blob and label != "_")

    def said(self, blobs: Sequence[str]) -> str:
        """A comment with the labels of what an op writes, `_` for what has none; empty where nothing has one."""
        labels = [self.names.get(blob, "_") for blob in blobs]
        return f"# {', '.join(labels)}" if any(label != "_" for label in labels) else ""

    def _note(self, frame: FrameType, blobs: Mapping[str, Blob]) -> None:
        held = frame.f_locals
        if not frame.f_code.co_flags & OPTIMIZED and type(held) is not dict:
            return  # `exec` takes any mapping, which may do anything when it is asked
        for variable in _variables(frame.f_code):
            value = held.get(variable)
            if type(value) is Blob and value.name in self._open and blobs.get(value.name) is value:
                self._open.remove(value.name)
                if variable.isidentifier() and not variable.startswith("_"):
                    self.names[value.name] = variable


def _variables(code: CodeType) -> tuple[str, ...]:
    """Names that the code of a frame may assign; of a module or class, all names that it mentions."""
    return code.co_varnames + code.co_cellvars if code.co_flags & OPTIMIZED else code.co_names


def _callers() -> Iterator[FrameType]:
    """The frames of whoever called the library, from the innermost on up to the library's next one."""
    frame: FrameType | None = sys._getframe(3)  # what called `look`
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


PLAIN_NAME = re.compile(r"[A-Za-z_][\w./-]*\Z", re.ASCII)
RESERVED = ("_", "return")  # words that mean something where a name may stand
INDENT = "    "


def format_net(net: Net, labelled: bool = True) -> str:
    """A listing of the net that `parse_net` reads back.

    Args:
        labelled: whether variables that held blobs are shown, as comments; two nets are the same without them.
    """
    dtype = f": {net.float_dtype}" if net.float_dtype else ""
    head = f"net {format_name(net.name)}({', '.join(map(format_input, net.input_specs))}){dtype}"
    lines = [head, *(INDENT + line for op in net.ops for line in _format_op(net, op, labelled))]
    outputs = ", ".join(
        format_name(blob) if name == blob else f"{format_name(name)}={format_name(blob)}"
        for name, blob in net.output_blobs.items()
    )
    return "\n".join([*lines, f"{INDENT}return {outputs}".rstrip()])


def format_name(name: str) -> str:
    """A name as it stands in text: bare if it is a plain word, else quoted."""
    return name if PLAIN_NAME.match(name) and name not in RESERVED else format_value(name)


def format_input(spec: Input) -> str:
    name, shape = format_name(spec.name), "" if spec.shape is None else format_value(spec.shape)
    if spec.initializer is not None:
        dtype = "" if spec.dtype == FLOAT else f" {spec.dtype}"
        return f"{name}: param{dtype}{shape} = {spec.initializer.text}"
    return name if spec.dtype == FLOAT and not shape else f"{name}: {spec.dtype}{shape}"


def _format_op(net: Net, op: Op, labelled: bool) -> Iterator[str]:
    arguments = [format_name(name) if name else "_" for name in op.inputs]
    nets = {key: value for key, value in op.attributes.items() if is_net(value)}
    arguments += [f"{key}={format_value(value)}" for key, value in op.attributes.items() if key not in nets]
    targets = ", ".join(_format_target(net, name) for name in op.outputs)
    layer = f" @ {format_name(op.layer)}" if op.layer else ""
    line = f"{targets} = {op.type}({', '.join(arguments)}){layer}"
    label = net.labels.said(op.outputs) if labelled else ""
    yield line + (" {" if nets else "") + (f"  {label}" if label else "")
    for note in schema_of(op.type).notes(op):
        yield f"{INDENT}# {note}"
    for key, nested in nets.items():
        yield f"{INDENT}{key} ="
        yield from (2 * INDENT + inner for inner in format_net(nested, labelled).split("\n"))
    if nets:
        yield "}"


def _format_target(net: Net, name: str) -> str:
    # op outputs are not inputs, so those that a cell may find by name are those that were `.named`
    marks = ("^" if name in net.checkpoints else "") + ("*" if net.is_capturable(name) else "")
    return marks + format_name(name) if name else "_"


def is_net(value: object) -> bool:
    """True if an attribute is a net (without importing Net, which imports this module)."""
    return hasattr(value, "input_specs") and hasattr(value, "ops")


def format_subscript(told: Mapping[str, Any], dropped: Sequence[int] = ()) -> str:
    """The attributes of a Slice as Python writes them: `[-1]`, `[2:5]`, `[:, ::2]`.

    Args:
        dropped: axes that have one index, and are not in the result.
    """
    starts, ends = told["starts"], told["ends"]
    rows = zip(
        told.get("axes") or range(len(starts)), starts, ends, told.get("steps") or [1] * len(starts), strict=True
    )
    parts = {axis: str(row[0]) if axis in dropped else _format_range(*row) for axis, *row in rows}
    first = [parts.get(axis, ":") for axis in range(max(parts, default=-1) + 1)]
    last = [parts.get(axis, ":") for axis in range(min(parts, default=0), 0)]
    return f"[{', '.join([*first, *(['...', *last] if last else [])])}]"


def _format_range(start: int, end: int, step: int) -> str:
    """`start:end:step`, without what follows by itself."""
    begin = "" if (start >= FAR if step < 0 else start == 0) else start
    stop = "" if (end <= -FAR if step < 0 else end >= FAR) else end
    return f"{begin}:{stop}" + (f":{step}" if step != 1 else "")


def format_value(value: Any) -> str:
    """An attribute as text: JSON, with `NaN`/`Infinity`, and arrays as `array(dtype, [shape], [values])`."""
    if isinstance(value, np.ndarray):
        return f"array({value.dtype.name}, {list(value.shape)}, {json.dumps(value.ravel().tolist())})"
    if isinstance(value, tuple | list):
        return f"[{', '.join(map(format_value, value))}]"
    # signs that are not printable are escaped: some of them would end the line
    plain = value.item() if isinstance(value, np.generic) else value
    return json.dumps(plain, ensure_ascii=isinstance(plain, str) and not plain.isprintable())
