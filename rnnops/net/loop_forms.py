"""Loop forms: how an op says that it runs as a loop, their texts, and the contract of an op.

**Forms**. An op has a loop form, or none: then it runs by its reference on every device, and plans say so. A form says
all that is needed to compile an op. Passes that rewrite nets know some library ops by name. `Pointwise` and `View` are
cheap to compute again on the backward pass; other forms are not.

**Texts** of forms are read as expressions. A text is Python over numbers, places in braces, arithmetic (`+ - * /`),
comparisons, `and or not`, `x if c else y`, `inf` and the scalar functions of `rnnops.kernels.scalar_functions`. Nothing
else is read: no attribute, no index, no other name. Places are operands by number (`{0}`), attributes of the op by name
(`{alpha}`), and what a form adds.

**The contract** of an op is checked when it is registered, and its loop form at each use. A form that is the same for
all uses is checked with the class; one that `loop_form` makes for a call is checked when it is made. What depends on
dtypes is checked where a form is compiled, and what a reference returns when it runs.
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
PRODUCTS = (*MATMULS, "Gemm", "RoundedGemm")  # ops whose time goes by multiply-adds


@dataclass(frozen=True)
class Pointwise:
    """Each output element is one scalar expression of the operands' elements, with broadcasting.

    Args:
        text: names operands `{0}`, `{1}`, ... and attributes that are numbers (`{alpha}`); its value is cast to the
            output's dtype. It is part of the op's definition and never holds text from a net or a file.
        begins: (operand, axis of the result where its axes begin), where broadcasting would have the last axes.
    """

    text: str
    begins: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class View:
    """Elements are moved or repeated, or places are filled with 0; nothing is computed.

    The places are read off the reference, run on element numbers. Other inputs must be known before a run.

    Args:
        all_inputs: whether elements of all inputs go to the result (`Concat`), not only those of the first.
    """

    all_inputs: bool = False


@dataclass(frozen=True)
class Reduction:
    """Elements are folded over `schema.reduced_axes(call)` of the first input.

    Each element contributes `element`. Contributions are combined two by two, in any order and in parts. Each part
    starts from `start`, and `finish` makes the result of all. Everything between has the output's dtype.

    Args:
        combine: of `{a}` and `{b}`; associative and commutative.
        start: combined with any contribution it gives that contribution.
        element: of operands `{0}`, `{1}`, ..., which broadcast to the first.
        finish: of `{acc}`, and the number of elements, `{count}`.

    `combine`, `element` and `finish` may name attributes that are numbers.
    """

    combine: str
    start: bool | int | float
    element: str = "{0}"
    finish: str = "{acc}"


@dataclass(frozen=True)
class ProductForm:
    """The matrix product of the first two inputs, as `MatMul` has it.

    Args:
        operands: `"bfloat16"`, `"float16"` or `"tfloat32"`, which they are rounded to first, as `RoundedMatMul` says;
            `"int8"`, what the right ones fit in, as `Int8MatMul` says; `"bytes"`, what both fit in, as `ByteMatMul`
            says; empty for products of what they are.
    """

    operands: str = ""


@dataclass(frozen=True)
class Expansion:
    """The op is a short net of simpler ops: `schema.expand(call, *blobs)` builds it."""


@dataclass(frozen=True)
class Kernel:
    """An own kernel, one of `KERNELS`: look-ups, random numbers, recurrences."""

    name: str


LoopForm = Pointwise | View | Reduction | ProductForm | Expansion | Kernel
KERNELS: Mapping[str, tuple[int, tuple[str, ...]]] = {  # name -> inputs and attributes that it reads
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
    """True if redoing the op costs no more than reading and writing its operands once."""
    return isinstance(form, Pointwise | View)


NUMBERS = {"inf": math.inf}  # words that are numbers
PLACEHOLDER = re.compile(r"{(\w+)}", re.ASCII)
PREFIX = "place_"  # of placeholders' names in a text that was read
OPERATORS = (
    *(ast.Add, ast.Sub, ast.Mult, ast.Div, ast.USub, ast.And, ast.Or, ast.Not),
    *(ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE),
)
EXPRESSIONS = (ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.IfExp)


@cache
def read_text(text: str) -> ast.expr:
    """A text with names such as `place_0` and `place_alpha` for its places. Raises ValueError for what none may say."""
    if not isinstance(text, str):
        raise ValueError(f"a text is wanted, not {text!r}")
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
    """The places of a text, each once, in order."""
    return tuple(dict.fromkeys(PLACEHOLDER.findall(text)))


@cache
def normal_text(text: str) -> str:
    """The text as all texts that say the same word by word are written: spaces and needless parentheses apart."""
    return ast.unparse(read_text(text))


def _check(node: ast.expr, text: str) -> None:
    """Raise ValueError where part of a text is nothing that texts may say."""
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
        raise ValueError(f"in '{text}': '{_shown(node)}' is nothing that a text may say")
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


ROUNDED = ("", "bfloat16", "float16", "tfloat32", "int8", "bytes")  # what operands of products are
OF_A_RULE = "the call, then its blobs"
MANY = 2  # more operands, with which rules of an op that takes any number are tried
ADDING = "docs/adding_an_op.md adds three ops."


def check_op(schema: OpSchema, base: type[OpSchema]) -> None:
    """Raise OpError where a class does not say what an op must.

    Args:
        base: what it inherits from where it says nothing.
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
    """Raise OpError where a loop form is not one that compilers can follow.

    Args:
        given: the inputs that a call has; None where any may be there.
        numbers: attributes that are numbers in a call; None where any may be one.
    """
    if not isinstance(form, LoopForm):
        wanted = "an instance of one of Pointwise, View, Reduction, Product, Expansion, Kernel, or None"
        raise OpError("its loop form is none", op=schema.name, wanted=wanted, came=repr(form), hint=ADDING)
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
        problem = "View() moves the elements of inputs, and there are none"
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
        _fail(schema, "its inputs are in no order", wanted=wanted, came=repr(schema.inputs))
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
        _fail(
            schema, "it accepts what is not a dtype", wanted=f"a tuple of {', '.join(ANY)}", came=repr(schema.accepts)
        )
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
            _fail(
                schema, f"`{name}` lists what is not a port", wanted=f"a tuple of {', '.join(ports)}", came=repr(listed)
            )


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
    """Why a rule cannot be called with so many arguments; empty where it can."""
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
    """True if a plain method surely takes so many arguments. A signature, which says why not, takes 20 times longer."""
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
    """How many inputs a call may have: all, or many."""
    return len(schema.inputs) + (MANY if _takes_any_number(schema) else 0)


# -- loop forms ------------------------------------------------------------------------------------------------------


def _text_problem(what: str, text: str, known: set[str] | frozenset[str], own: set[str] | None) -> str | None:
    """The fault of a text of a form.

    Args:
        known: attributes that are numbers.
        own: other places that it may have; None for operands of any number.
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
    """The numbers of its inputs, None for any number."""
    return None if _takes_any_number(schema) else {str(i) for i, _ in zip(count(), schema.inputs, strict=False)}


def _may_be_number(default: object) -> bool:
    """True if an attribute with this default may be a number: one that must be given, or may be left out, may."""
    return not isinstance(default, str | tuple | list | Mapping)


def _fail(schema: OpSchema, problem: str, hint: str = ADDING, **details: Any) -> None:
    raise OpError(problem, op=schema.name, hint=hint, **details)
