"""Nets as text. `str(net)` calls `format_net`, and `parse_net` reads the text back.

    net my_lstm(x_t, h_prev, w: param[4, 3] = xavier, lengths: int32)
        matmul_0 = MatMul(x_t, h_prev)
        *i, f = Split(matmul_0, axis=-1, num_outputs=2) @ gates
        return h_t=i, f

Here `i` was named by `.named`, which `*` marks (`^` would mark a checkpoint), and the Split belongs to layer `gates`.
`_` stands for an optional input that is left out, and for an output that is not wanted. Names that are not plain words
are in double quotes. Nets inside attributes are in braces, indented. If the sizes of a net are known while it is built,
its float dtype comes after its head. A parameter that starts from a large array shows a digest, and one that starts
from a function shows the function's name (`rnnops.net.op`). Text after `#` is a comment. After an op it gives the
variables that held its results where the net was written. Under a RecurrentNetwork it gives the outer blob of each blob
of the cell.

**Text to net**: a tokenizer and a recursive descent, in a time linear in the length of the text, with bounded depth.
Round and square brackets may span lines. Apart from them, an op is one line. Names are taken as they stand, whatever
name scope is open. Every error is a `ParseError` that names the line.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, NoReturn, TypeVar

import numpy as np

from rnnops.errors import ParseError, RnnopsError
from rnnops.net.net import Net
from rnnops.net.op import ARRAY, FUNCTION, Initializer, Input, Op, as_initializer, check_name, format_value, is_net
from rnnops.net.schema import schema_of
from rnnops.types import ANY, BOOL, FLOAT, FLOATS, INTEGERS, OPAQUE, Array, Shape

FAR = 2**31 - 1  # ends of slices from here on mean the end of the axis
PLAIN_NAME = re.compile(r"[A-Za-z_][\w./-]*\Z", re.ASCII)
RESERVED = ("_", "return")  # words with a meaning where a name may stand
INDENT = "    "


def format_net(net: Net, labelled: bool = True) -> str:
    """The text of a net, which `parse_net` reads back.

    Args:
        labelled: True to show, as comments, the variables that held blobs. Nets are compared without them.
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
    """A name in the form of the text: bare if it is a plain word, else quoted."""
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
    # op outputs that a cell may find by name are those that were `.named`
    marks = ("^" if name in net.checkpoints else "") + ("*" if net.is_capturable(name) else "")
    return marks + format_name(name) if name else "_"


def format_subscript(told: Mapping[str, Any], dropped: Sequence[int] = ()) -> str:
    """The attributes of a Slice in Python's form: `[-1]`, `[2:5]`, `[:, ::2]`.

    Args:
        dropped: axes with a single index, which the result does not have.
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
    """`start:end:step`, without parts that are defaults."""
    begin = "" if (start >= FAR if step < 0 else start == 0) else start
    stop = "" if (end <= -FAR if step < 0 else end >= FAR) else end
    return f"{begin}:{stop}" + (f":{step}" if step != 1 else "")


TOKEN = re.compile(
    r"""
    (?P<blank> [ \t\r]+ ) | (?P<comment> \#[^\n]* ) | (?P<newline> \n )
    | (?P<name> [A-Za-z_][\w./-]* )
    | (?P<number> -Infinity | -?[0-9]+ (?:\.[0-9]+)? (?:[eE][+-]?[0-9]+)? )
    | (?P<string> "[^"\\\n]* (?: \\.[^"\\\n]* )*" )
    | (?P<sign> [\[\](){}=:,@*^] ) | (?P<wrong> . )
    """,
    re.VERBOSE | re.ASCII | re.DOTALL,
)
ENDS = {"newline": "the end of the line", "end": "the end of the text"}  # tokens without a text that can be shown
WORDS = {"true": True, "false": False, "null": None, "NaN": math.nan, "Infinity": math.inf}
ARRAY_DTYPES = (BOOL, *INTEGERS, "float16", *FLOATS[1:])
DEPTH = 50  # of nets and tuples inside each other
RANK = 64  # NumPy's limit of axes
SHOWN = 40  # most characters of the text that an error shows

Item = TypeVar("Item")


class Token(NamedTuple):
    """A piece of the text. The kind of a sign is the sign itself. Other kinds are those of `TOKEN`, and `end`.

    The text of a newline is the comment before it.
    """

    kind: str
    text: str
    line: int


def parse_net(text: str) -> Net:
    """The net that a text describes, in the form of `str(net)`. More ops can be added to it.

    Args:
        text: text of one net with its cells. Names are taken as they stand, whatever name scope is open.

    Returns:
        A `ro.Net`.

    Raises:
        ParseError: the text is not a net; it names the line.

    Example:
        >>> net = ro.Net("n")
        >>> net.outputs(y=ro.tanh(net.input("x", shape=[2])))
        >>> print(net)
        net n(x: float[2])
            tanh_0 = Tanh(x)
            return y=tanh_0
        >>> str(ro.parse_net(str(net))) == str(net)
        True
    """
    if not isinstance(text, str):
        raise ParseError("the text must be a string", wanted="a string", came=type(text).__name__)
    reader = _Reader(_tokens(text))
    net = reader.net()
    reader.expect("end")
    return net


def _tokens(text: str) -> Iterator[Token]:
    line, depth, empty, comment = 1, 0, True, ""
    for match in TOKEN.finditer(text):
        kind, piece = match.lastgroup, match.group()
        if kind == "newline":
            if depth <= 0 and not empty:
                yield Token(kind, comment, line)
            line, empty, comment = line + 1, empty or depth <= 0, ""
        elif kind == "comment":
            comment = piece
        elif kind == "wrong":
            wanted = "a quote at the string's end" if piece == '"' else "a name, value or sign"
            raise ParseError(f"line {line}: this cannot be read", wanted=wanted, came=repr(piece))
        elif kind and kind != "blank":
            depth += (piece in "([") - (piece in ")]")
            yield Token(piece if kind == "sign" else kind, piece, line)
            empty = False
    yield from (Token(kind, "", line) for kind in ("newline", "end")[empty:])


class _Reader:
    """The position of reading. Each method reads one part of the grammar, and stops behind it."""

    def __init__(self, tokens: Iterator[Token]) -> None:
        self.tokens, self.token, self.depth = tokens, next(tokens), 0
        self.following = next(tokens, self.token)

    def accept(self, kind: str) -> bool:
        """Reads the next token if it is of this kind. Returns True then."""
        if self.token.kind != kind:
            return False
        self.token, self.following = self.following, next(self.tokens, self.following)
        return True

    def expect(self, kind: str, wanted: str | None = None) -> str:
        """Reads a token of this kind and returns its text."""
        text = self.token.text
        if not self.accept(kind):
            self.fail(wanted or ENDS.get(kind, f"'{kind}'"))
        return text

    def fail(self, wanted: str) -> NoReturn:
        """Raise the error for a token that cannot stand here."""
        kind, text, line = self.token
        raise ParseError(f"line {line}: this cannot be read", wanted=wanted, came=ENDS.get(kind, repr(text[:SHOWN])))

    def at_word(self, *words: str) -> bool:
        return self.token.kind == "name" and self.token.text in words

    def word(self, *words: str) -> str:
        return self.expect("name") if self.at_word(*words) else self.fail(" or ".join(words))

    def listed(self, close: str, item: Callable[[], Item]) -> list[Item]:
        """Items with commas between them, up to and including `close`."""
        items: list[Item] = []
        while not self.accept(close):
            if items:
                self.expect(",", f"',' or {ENDS.get(close, repr(close))}")
            items.append(item())
        return items

    @contextmanager
    def nested(self) -> Iterator[None]:
        """Goes one level deeper. Raises an error if that is too deep."""
        self.depth += 1
        if self.depth > DEPTH:
            self.fail(f"at most {DEPTH} nets and tuples inside each other")
        yield
        self.depth -= 1

    def net(self) -> Net:
        """Reads `net name(inputs): dtype`, ops, and `return outputs`, each on its own line."""
        with self.nested():
            self.accept("newline")
            net = self.head()
            while not self.at_word("return"):
                self.op(net)
            self.word("return")
            self.listed("newline", lambda: self.output(net))
        return net

    def head(self) -> Net:
        self.word("net")
        name = self.name("net")
        self.expect("(")
        specs = self.listed(")", self.input)
        net = Net(name, self.word(*FLOATS[1:]) if self.accept(":") else None)
        for line, spec in specs:
            with _located(line):
                net.add_input(spec)
        self.expect("newline")
        return net

    def input(self) -> tuple[int, Input]:
        """Reads `name`, `name: dtype[shape]` or `name: param[shape] = initializer`. Returns it with its line."""
        line, name = self.token.line, self.name("input")
        if not self.accept(":"):
            return line, Input(name)
        parameter = self.at_word("param") and bool(self.word("param"))
        dtype = FLOAT if parameter and self.token.kind != "name" else self.word(*ANY, OPAQUE)
        shape = self.shape() if self.token.kind == "[" else None
        return line, Input(name, dtype, shape, self.initializer(name, shape or ()) if parameter else None)

    def initializer(self, name: str, shape: Shape) -> Initializer:
        """Reads `= kind`, `= (kind, numbers)`, `= (function, name)`, or an array or its digest."""
        self.expect("=")
        if self.at_word(ARRAY):
            line, found = self.token.line, self.array(or_digest=True)
            if isinstance(found, str):
                return Initializer(ARRAY, given=found)
            with _located(line):
                return as_initializer(found, "", name, shape)
        line, several = self.token.line, self.accept("(")
        parts: list[Any] = [self.expect("name", "an initializer")]
        if several and not self.accept(")"):
            self.expect(",", "',' or ')'")
            parts += self.listed(")", self.value)
        if parts[0] == FUNCTION and [type(part) for part in parts[1:]] == [str]:
            return Initializer(FUNCTION, given=f"({FUNCTION}, {format_value(parts[1])})")
        with _located(line):
            return as_initializer(tuple(parts), "", name)

    def op(self, net: Net) -> None:
        """Reads `results = Type(inputs, attributes) @ layer { nets }`."""
        line, named, checkpoints = self.token.line, set[str](), set[str]()
        results = self.listed("=", lambda: self.result(named, checkpoints))
        op_type = self.expect("name", "the name of an op")
        inputs, attributes = list[str](), dict[str, Any]()
        self.expect("(")
        self.listed(")", lambda: self.argument(inputs, attributes))
        layer = self.name("layer") if self.accept("@") else ""
        comment = self.following.text if self.token.kind == "{" else self.token.text
        if self.accept("{"):
            self.accept("newline")
            while not self.accept("}"):
                self.attribute(attributes, lambda: self.net().snapshot())
        self.expect("newline")
        op = Op(op_type, tuple(inputs), tuple(results), attributes, layer)
        # a net with known sizes computes integers, which may divide by zero
        with _located(line), np.errstate(all="ignore"):
            net.add_op(op, named, checkpoints)
        net.labels.read(results, comment)

    def result(self, named: set[str], checkpoints: set[str]) -> str:
        """Reads a blob that an op writes. It is added to `named` and `checkpoints` if it has their marks."""
        checkpoint, mark = self.accept("^"), self.accept("*")
        name = self.name("blob") if mark or checkpoint else self.optional_name("blob, or 'return'")
        named.update([name] * mark)
        checkpoints.update([name] * checkpoint)
        return name

    def argument(self, inputs: list[str], attributes: dict[str, Any]) -> None:
        if self.token.kind == "name" and self.following.kind == "=":
            self.attribute(attributes, self.value)
        elif attributes:
            self.fail("an attribute, since inputs come first")
        else:
            inputs.append(self.optional_name("blob"))

    def attribute(self, attributes: dict[str, Any], read: Callable[[], Any]) -> None:
        if self.token.text in attributes:
            self.fail("every attribute once")
        key = self.expect("name", "the name of an attribute")
        self.expect("=")
        attributes[key] = read()

    def output(self, net: Net) -> None:
        """Reads `blob` or `name=blob` after `return`."""
        line, name = self.token.line, self.name("output")
        blob = self.name("blob") if self.accept("=") else name
        with _located(line):
            net.outputs(**{name: net.blob(blob)})

    def name(self, kind: str) -> str:
        """Reads a bare or quoted name. `kind` says in errors what it names."""
        token = self.token
        if token.kind not in ("name", "string") or self.at_word(*RESERVED):
            self.fail(f"a name for the {kind}")
        text = self.scalar("string") if token.kind == "string" else self.expect("name")
        with _located(token.line):
            return check_name(text, kind)

    def optional_name(self, kind: str) -> str:
        """Reads a name. `_` gives `""`."""
        return self.expect("name")[:0] if self.at_word("_") else self.name(kind)

    def value(self) -> Any:
        """Reads a number, string, word, tuple or array."""
        kind = self.token.kind
        if kind == "number" or kind == "string":
            return self.scalar(kind)
        if kind == "[":
            return self.items()
        if self.at_word("array"):
            return self.array()
        return WORDS[self.expect("name")] if self.at_word(*WORDS) else self.fail("a value")

    def items(self) -> tuple[Any, ...]:
        self.expect("[")
        with self.nested():
            return tuple(self.listed("]", self.value))

    def scalar(self, kind: str) -> Any:
        line, text = self.token.line, self.expect(kind, "a value")
        with _located(line):  # JSON has other escapes than Python, and Python limits the digits of an int
            return json.loads(text)

    def shape(self) -> Shape:
        line, sizes = self.token.line, self.items()
        if not all(type(size) is int and size >= 0 for size in sizes):
            raise ParseError(f"line {line}: this is not a shape", wanted="integers of 0 or more")
        return sizes

    def array(self, or_digest: bool = False) -> Any:
        """Reads `array(dtype, [shape], [values])`.

        With `or_digest`, a digest may replace the values, and the result is a text.
        """
        line = self.token.line
        self.word("array")
        self.expect("(")
        dtype = self.word(*ARRAY_DTYPES)
        self.expect(",")
        shape = self.shape()
        self.expect(",")
        digest = format_value(self.scalar("string")) if or_digest and self.token.kind == "string" else ""
        values = () if digest else self.items()
        self.expect(")")
        if digest:
            return f"{ARRAY}({dtype}, {list(shape)}, {digest})"
        with _located(line):
            return _array(dtype, shape, values)


def _array(dtype: str, shape: Shape, values: tuple[Any, ...]) -> Array:
    found = {type(value).__name__ for value in values}
    fitting = {"bool"} if dtype == BOOL else {"int"} if dtype in INTEGERS else {"int", "float"}
    if len(shape) > RANK or math.prod(shape) != len(values) or not found <= fitting:
        came = f"{len(values)} of {' and '.join(sorted(found))}"
        raise ParseError("the values do not fit the array", wanted=f"{dtype}{list(shape)}"[:SHOWN], came=came)
    with np.errstate(over="raise"):
        array = np.array(values, dtype).reshape(shape)
    array.flags.writeable = False
    return array


@contextmanager
def _located(line: int) -> Iterator[None]:
    """Turns errors in building a line into a ParseError that names the line."""
    try:
        yield
    except RnnopsError as error:
        about = {"net": error.net, "op": error.op, "blob": error.blob, "hint": error.hint}
        raise ParseError(f"line {line}: {error.problem}", wanted=error.wanted, came=error.came, **about) from error
    except Exception as error:  # a rule may fail in any way on attributes that the op's function never gives it
        raise ParseError(f"line {line}: this cannot be built", came=repr(error)[: 2 * SHOWN]) from error
