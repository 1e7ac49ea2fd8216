"""Loop forms, which describe how an op runs as a loop: the forms, their texts, and the checks of an op.

**Forms**. An op may have a loop form, which says all that is needed to compile it. An op without one runs by its
reference on every device, and plans say so. A few passes on nets, and the estimate of costs, know some library ops by
name. `Pointwise` and `View` are cheap to compute again in the backward pass. Other forms are not.

**Texts** of forms are expressions of Python: numbers, places in braces, arithmetic (`+ - * /`), comparisons, `and or
not`, `x if c else y`, `inf`, and the scalar functions of `rnnops.kernels.scalar_functions`. Attributes, subscripts and
other names are not allowed. Places are operands by number (`{0}`), attributes of the op by name (`{alpha}`), and places
that a form adds.

**The checks**: an op is checked when it is registered. Its loop form is checked then too, if it is the same for all
calls. A form that `loop_form` makes for a call is checked when it is made. Dtypes are checked when a form is compiled,
and results of a reference when it runs.
"""

from __future__ import annotations

import ast
import inspect
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import count
from types import FunctionType, MethodType
from typing import TYPE_CHECKING, Any

from rnnops.errors import OpError
from rnnops.kernels.scalar_functions import SCALAR_FUNCTIONS
from rnnops.types import ANY, FLOATS

if TYPE_CHECKING:
    from rnnops.net.schema import OpSchema

MATMULS = ("MatMul", "RoundedMatMul", "Int8MatMul", "ByteMatMul")
PRODUCTS = (*MATMULS, "Gemm", "RoundedGemm")  # ops whose time depends on multiply-adds


@dataclass(frozen=True)
class Pointwise:
    """Each output element is one scalar expression of the operands' elements, with broadcasting.

    Args:
        text: names operands `{0}`, `{1}`, ... and attributes that are numbers (`{alpha}`). The value is cast to the
            output's dtype. The text is part of the op's definition. It never holds text from a net or a file.
        begins: (operand, axis of the result at which its axes begin), for operands that do not broadcast to the last
            axes.
    """

    text: str
    begins: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class View:
    """Elements are moved or repeated, or places are filled with 0. Nothing is computed.

    The places are found by running the reference on numbers of elements. Other inputs must be known before a run.

    Args:
        all_inputs: True if elements of all inputs go to the result (`Concat`). By default only those of the first input
            do.
    """

    all_inputs: bool = False


@dataclass(frozen=True)
class Reduction:
    """Elements of the first input are folded over the axes `schema.reduced_axes(call)`.

    Each element contributes `element`. Contributions are combined two by two, in any order and in parts. Each part
    starts from `start`, and `finish` makes the result of the last contribution. All numbers between have the output's
    dtype.

    Args:
        combine: an expression of `{a}` and `{b}`. It must be associative and commutative.
        start: a number. Combined with a contribution, it gives that contribution.
        element: an expression of operands `{0}`, `{1}`, ..., which broadcast to the first.
        finish: an expression of `{acc}` and of the number of elements, `{count}`.

    `combine`, `element` and `finish` may name attributes that are numbers.
    """

    combine: str
    start: bool | int | float
    element: str = "{0}"
    finish: str = "{acc}"


@dataclass(frozen=True)
class ProductForm:
    """The matrix product of the first two inputs, as in `MatMul`.

    Args:
        operands: the format of the operands. `"bfloat16"`, `"float16"` and `"tfloat32"`: they are rounded first
            (`RoundedMatMul`). `"int8"`: the right ones fit in int8 (`Int8MatMul`). `"bytes"`: both fit in bytes
            (`ByteMatMul`). Empty: any numbers.
    """

    operands: str = ""


@dataclass(frozen=True)
class Expansion:
    """The op is a short net of simpler ops: `schema.expand(call, *blobs)` builds it."""


@dataclass(frozen=True)
class Kernel:
    """A kernel of its own, one of `KERNELS`: look-ups, random numbers, recurrences."""

    name: str


LoopForm = Pointwise | View | Reduction | ProductForm | Expansion | Kernel
KERNELS: Mapping[str, tuple[int, tuple[str, ...]]] = {  # name -> number of inputs, and attributes that it reads
    "gather": (2, ("axis",)),
    "scatter_add": (2, ("axis", "size")),
    "check_labels": (1, ("classes", "ignore_index")),
    "dropout": (1, ("ratio", "ordinal")),
    "dropout_grad": (2, ("ratio",)),
    "uniform": (1, ("ordinal",)),
    "recurrence": (0, ()),
    "recurrence backward": (0, ()),
    "pointwise kernel": (0, ("body",)),
}


def is_cheap(form: LoopForm | None) -> bool:
    """True if computing the op again costs no more than reading and writing its operands once."""
    return isinstance(form, Pointwise | View)


NUMBERS = {"inf": math.inf}  # words that stand for numbers
PLACEHOLDER = re.compile(r"{(\w+)}", re.ASCII)
PREFIX = "place_"  # prefix of placeholder names in the syntax tree of a text
OPERATORS = (
    *(ast.Add, ast.Sub, ast.Mult, ast.Div, ast.USub, ast.And, ast.Or, ast.Not),
    *(ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE),
)
EXPRESSIONS = (ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.IfExp)


@cache
def read_text(text: str) -> ast.expr:
    """The syntax tree of a text, with names such as `place_0` and `place_alpha` for its places.

    Raises ValueError for a wrong text.
    """
    if not isinstance(text, str):
        raise ValueError(f"the text must be a string, not {text!r}")
    try:
        tree = ast.parse(PLACEHOLDER.sub(rf"{PREFIX}\1", text).strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise ValueError(f"'{text}' is not an expression") from None
    if PREFIX in text:
        raise ValueError(f"'{text}' has a word that begins with '{PREFIX}'")
    try:
        _check(tree, text)
    except RecursionError:
        raise ValueError(f"'{text[:40]}...' is nested too deeply") from None
    return tree


def places_of(text: str) -> tuple[str, ...]:
    """The places of a text, in order, without repetitions."""
    return tuple(dict.fromkeys(PLACEHOLDER.findall(text)))


@cache
def normal_text(text: str) -> str:
    """The normal form of a text. Texts that differ only in spaces and needless parentheses have the same."""
    return ast.unparse(read_text(text))


def _check(node: ast.expr, text: str) -> None:
    """Raise ValueError if a part of a text is not allowed."""
    if isinstance(node, ast.Call):
        _check_call(node, text)
    elif isinstance(node, ast.Name):
        if node.id not in NUMBERS and not node.id.startswith(PREFIX):
            kind = "is a function, and not called" if node.id in SCALAR_FUNCTIONS else "is not a word of texts"
            raise ValueError(f"in '{text}': '{node.id}' {kind}")
    elif isinstance(node, ast.Constant):
        if not isinstance(node.value, int | float):
            raise ValueError(f"in '{text}': {node.value!r} is not a number")
    elif not isinstance(node, EXPRESSIONS):
        raise ValueError(f"in '{text}': '{_shown(node)}' is not allowed in a text")
    for part in ast.iter_child_nodes(node):
        if isinstance(part, ast.expr):
            if not (isinstance(node, ast.Call) and part is node.func):
                _check(part, text)
        elif isinstance(part, ast.operator | ast.unaryop | ast.boolop | ast.cmpop) and not isinstance(part, OPERATORS):
            raise ValueError(f"in '{text}': '{_shown(node)}' has an operator that texts do not have")


def _check_call(node: ast.Call, text: str) -> None:
    name = node.func.id if isinstance(node.func, ast.Name) else ast.unparse(node.func)
    function = SCALAR_FUNCTIONS.get(name)
    if function is None:
        raise ValueError(f"in '{text}': there is no scalar function '{name}', but {', '.join(SCALAR_FUNCTIONS)}")
    given = len(node.args)
    if node.keywords or given != function.operands or any(isinstance(one, ast.Starred) for one in node.args):
        raise ValueError(f"in '{text}': {name} takes {function.operands} operands")


def _shown(node: ast.expr) -> str:
    return ast.unparse(node).replace(PREFIX, "")


ROUNDED = ("", "bfloat16", "float16", "tfloat32", "int8", "bytes")  # formats of operands of products
OF_A_RULE = "the call, then its blobs"
MANY = 2  # further inputs of ops that take any number, when their rules are tried
ADDING = "docs/adding_an_op.md adds three ops."


def check_op(schema: OpSchema, base: type[OpSchema]) -> None:
    """Raise OpError if a class lacks a part that an op needs.

    Args:
        base: the class from which it inherits defaults.
    """
    _check_ports(schema)
    _check_attributes(schema)
    _check_dtypes(schema)
    _check_keeps(schema)
    _check_rules(schema, base)
    if schema.loop is not None:
        check_form(schema, schema.loop, base)


def check_form(
    schema: OpSchema,
    form: LoopForm,
    base: type[OpSchema],
    given: frozenset[int] | None = None,
    numbers: frozenset[str] | None = None,
) -> None:
    """Raise OpError for a loop form that compilers cannot follow.

    Args:
        given: numbers of the inputs that a call has. None if any may be given.
        numbers: attributes that are numbers in a call. None if any may be one.
    """
    if not isinstance(form, LoopForm):
        wanted = "an instance of one of Pointwise, View, Reduction, Product, Expansion, Kernel, or None"
        raise OpError("its loop form has a wrong type", op=schema.name, wanted=wanted, came=repr(form), hint=ADDING)
    operands = _operands(schema) if given is None else {str(i) for i in given}
    known = {name for name, value in schema.attributes.items() if _may_be_number(value)} if numbers is None else numbers
    problem = None
    if isinstance(form, Pointwise):
        problem = _text_problem("text", form.text, known, operands) or _begins_problem(schema, form)
    elif isinstance(form, Reduction):
        problem = _reduction_problem(form, known, operands) or _missing(schema, base, "reduced_axes", form)
    elif isinstance(form, Expansion):
        problem = _missing(schema, base, "expand", form)
        problem = problem or arguments_problem(schema.expand, "expand", 1 + _most_inputs(schema))
    elif isinstance(form, ProductForm):
        problem = _product_problem(schema, form)
    elif isinstance(form, Kernel):
        problem = _kernel_problem(schema, form)
    elif isinstance(form, View) and not schema.inputs:
        problem = "View() moves the elements of inputs, and the op has none"
    if problem:
        raise OpError(problem, op=schema.name, hint=ADDING)


# -- ports, attributes, dtypes ---------------------------------------------------------------------------------------


def _check_ports(schema: OpSchema) -> None:
    for what, ports, marks in (("inputs", schema.inputs, "?*"), ("outputs", schema.outputs, "")):
        names = [port.rstrip(marks) if isinstance(port, str) else port for port in ports]
        if not isinstance(ports, tuple) or not all(isinstance(name, str) and name.isidentifier() for name in names):
            _fail(schema, f"its {what} are not a tuple of names", came=repr(ports))
        if len(set(names)) < len(names):
            _fail(schema, f"two of its {what} have one name", came=repr(ports))
    kinds = ["" if port.isidentifier() else port[-1] for port in schema.inputs]
    if any(len(port.rstrip("?*")) < len(port) - 1 for port in schema.inputs) or kinds != sorted(kinds, key=_place):
        wanted = "names, then names ending in ?, then at most one ending in *"
        _fail(schema, "its inputs are in a wrong order", wanted=wanted, came=repr(schema.inputs))
    if kinds.count("*") > 1:
        _fail(schema, "only its last input may take any number of blobs", came=repr(schema.inputs))
    if not schema.outputs:
        _fail(schema, "it has no outputs")


def _place(mark: str) -> int:
    return ("", "?", "*").index(mark)


def _check_attributes(schema: OpSchema) -> None:
    names = schema.attributes if isinstance(schema.attributes, Mapping) else [None]
    if not all(isinstance(name, str) and name.isidentifier() for name in names):
        _fail(schema, "its attributes are not a mapping from names to defaults", came=repr(schema.attributes))


def _check_dtypes(schema: OpSchema) -> None:
    if not isinstance(schema.accepts, tuple) or not set(schema.accepts) <= set(ANY):
        _fail(schema, "unknown dtype in `accepts`", wanted=f"a tuple of {', '.join(ANY)}", came=repr(schema.accepts))
    shared = schema.same_dtype
    most = None if _takes_any_number(schema) else len(schema.inputs)
    fits = shared is None or (
        isinstance(shared, tuple) and all(isinstance(i, int) and i >= 0 and (most is None or i < most) for i in shared)
    )
    if not fits:
        _fail(schema, "same_dtype names inputs that it does not have", wanted="numbers of inputs", came=repr(shared))


def _check_keeps(schema: OpSchema) -> None:
    ports = [port.rstrip("?*") for port in (*schema.inputs, *schema.outputs)]
    for name, known in (("keeps", (*ports, "*")), ("static", ports[: len(schema.inputs)])):
        listed = getattr(schema, name)
        if not isinstance(listed, tuple) or not set(listed) <= set(known):
            _fail(schema, f"unknown port in `{name}`", wanted=f"a tuple of {', '.join(ports)}", came=repr(listed))


# -- rules -----------------------------------------------------------------------------------------------------------


def _check_rules(schema: OpSchema, base: type[OpSchema]) -> None:
    for rule in ("shapes", "reference"):
        if not _declares(schema, base, rule):
            _fail(schema, f"it has no rule `{rule}`", wanted=f"a method `{rule}(self, call, ...)`")
    for rule, arguments in (("shapes", 1), ("dtypes", 2), ("output_count", 1), ("loop_form", 1), ("known_value", 1)):
        if _declares(schema, base, rule):
            _check_arguments(schema, rule, arguments)
    context = ("context",) if schema.uses_context else ()
    _check_arguments(schema, "reference", 1 + _most_inputs(schema), context)
    if schema.differentiable:
        _check_gradient(schema, base)


def _check_gradient(schema: OpSchema, base: type[OpSchema]) -> None:
    if not _declares(schema, base, "gradient"):
        hint = "Say `differentiable = False` where gradients stop, `gradient = no_gradient` where one is an error."
        _fail(schema, "it has no rule `gradient`", wanted="a method `gradient(self, call, ...)`", hint=hint)
    if type(schema).output_count is base.output_count and not schema.may_omit_outputs:
        _check_arguments(schema, "gradient", 1 + _most_inputs(schema) + 2 * len(schema.outputs))


def _check_arguments(schema: OpSchema, rule: str, arguments: int, keywords: tuple[str, ...] = ()) -> None:
    problem = arguments_problem(getattr(schema, rule), rule, arguments, keywords)
    if problem:
        raise OpError(problem, op=schema.name, hint=ADDING)


def arguments_problem(
    method: Callable[..., Any], rule: str, arguments: int, keywords: tuple[str, ...] = (), which: str = OF_A_RULE
) -> str:
    """The reason why a rule cannot be called with so many arguments. Empty if it can."""
    if not callable(method):
        return f"its `{rule}` is not a method, but {method!r}"
    try:
        if _takes(method, arguments, keywords):
            return ""
        signature = inspect.signature(method)
    except ValueError as error:
        return f"its `{rule}` has arguments that cannot be read: {error}"
    try:
        signature.bind(*(None,) * arguments, **dict.fromkeys(keywords))
    except TypeError:
        named = "".join(f" and `{name}=`" for name in keywords)
        return f"its rule `{rule}{signature}` does not take {arguments} arguments{named}: {which}"
    return ""


def _takes(method: Callable[..., Any], arguments: int, keywords: tuple[str, ...]) -> bool:
    """True if a plain method certainly takes so many arguments.

    Reading its signature, which says why not, takes 20 times longer.
    """
    plain = inspect.unwrap(method, stop=lambda one: hasattr(one, "__signature__"))
    plain = getattr(plain, "__func__", plain)
    if not isinstance(method, MethodType) or type(plain) is not FunctionType or hasattr(plain, "__signature__"):
        return False
    code, own = plain.__code__, arguments + 1  # with `self`
    least = code.co_argcount - len(plain.__defaults__ or ())
    named = code.co_varnames[code.co_argcount : code.co_argcount + code.co_kwonlyargcount]
    return (own <= code.co_argcount or bool(code.co_flags & inspect.CO_VARARGS)) and least <= own and named == keywords


def _declares(schema: OpSchema, base: type[OpSchema], rule: str) -> bool:
    return getattr(type(schema), rule) is not getattr(base, rule)


def _takes_any_number(schema: OpSchema) -> bool:
    return bool(schema.inputs) and schema.inputs[-1].endswith("*")


def _most_inputs(schema: OpSchema) -> int:
    """The largest number of inputs of a call: all, or a few for an op with any number."""
    return len(schema.inputs) + (MANY if _takes_any_number(schema) else 0)


# -- loop forms ------------------------------------------------------------------------------------------------------


def _text_problem(what: str, text: str, known: set[str] | frozenset[str], own: set[str] | None) -> str | None:
    """The fault of a text of a form. None if it is right.

    Args:
        known: attributes that are numbers.
        own: other places that it may have. None for operands of any number.
    """
    try:
        read_text(text)
    except ValueError as problem:
        return f"the {what} of its loop form cannot be read: {problem}"
    for place in places_of(text):
        if place not in known and (not place.isdigit() if own is None else place not in own):
            there = ", ".join(sorted({*(own or ("0", "1")), *known})) or "nothing"
            return f"the {what} of its loop form, '{text}', names '{{{place}}}', and there is {there}"
    return None


def _reduction_problem(form: Reduction, known: set[str] | frozenset[str], operands: set[str] | None) -> str | None:
    texts = (("element", operands), ("combine", {"a", "b"}), ("finish", {"acc", "count"}))
    found = [_text_problem(what, getattr(form, what), known, own) for what, own in texts]
    problem = next(filter(None, found), None)
    if problem is None and not {"a", "b"} <= set(places_of(form.combine)):
        return f"`combine` of its loop form, '{form.combine}', does not combine {{a}} and {{b}}"
    if problem is None and not isinstance(form.start, bool | int | float):
        return f"`start` of its loop form is not a number, but {form.start!r}"
    if problem is None and "0" not in places_of(form.element):
        return f"`element` of its loop form, '{form.element}', does not read {{0}}, whose elements are folded"
    return problem


def _begins_problem(schema: OpSchema, form: Pointwise) -> str | None:
    fits = isinstance(form.begins, tuple) and all(
        isinstance(pair, tuple) and len(pair) == 2 and pair[0] in range(len(schema.inputs)) for pair in form.begins
    )
    return None if fits else f"`begins` of its loop form is not a tuple of (input, axis): {form.begins!r}"


def _product_problem(schema: OpSchema, form: ProductForm) -> str | None:
    if form.operands not in ROUNDED:
        return (
            f"Product() has operands as they are, rounded to {', '.join(ROUNDED[1:-2])}, right ones of int8, or bytes, "
            f"and not {form.operands!r}"
        )
    if len(schema.inputs) != 2 or not all(port.isidentifier() for port in schema.inputs) or len(schema.outputs) != 1:
        return "Product() multiplies two inputs into one output"
    return None if set(schema.accepts) <= set(FLOATS) else "Product() multiplies floats, and it accepts other dtypes"


def _kernel_problem(schema: OpSchema, form: Kernel) -> str | None:
    if form.name not in KERNELS:
        return f"there is no kernel '{form.name}', but {', '.join(KERNELS)}"
    inputs, attributes = KERNELS[form.name]
    missing = [name for name in attributes if name not in schema.attributes]
    if missing or len(schema.inputs) < inputs:
        return f"kernel '{form.name}' reads {inputs} inputs and the attributes {', '.join(attributes) or 'none'}"
    return None


def _missing(schema: OpSchema, base: type[OpSchema], rule: str, form: LoopForm) -> str | None:
    if _declares(schema, base, rule):
        return None
    return f"its loop form is {type(form).__name__}, and it has no rule `{rule}`"


def _operands(schema: OpSchema) -> set[str] | None:
    """The numbers of its inputs. None for any number."""
    return None if _takes_any_number(schema) else {str(i) for i, _ in zip(count(), schema.inputs, strict=False)}


def _may_be_number(default: object) -> bool:
    """True if an attribute with this default may be a number. Attributes without a default value may."""
    return not isinstance(default, str | tuple | list | Mapping)


def _fail(schema: OpSchema, problem: str, hint: str = ADDING, **details: Any) -> None:
    raise OpError(problem, op=schema.name, hint=hint, **details)
