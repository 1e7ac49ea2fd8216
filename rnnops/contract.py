"""The contract of an op: what its class must say, checked when it is registered; and its loop form, at each use.

A form that is the same for all uses is checked with the class; one that `loop_form` makes for a call is checked when it
is made. What depends on dtypes is checked where a form is compiled, and what a reference returns when it runs.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from itertools import count
from typing import TYPE_CHECKING, Any

from rnnops.errors import OpError
from rnnops.loops import KERNELS, Expansion, Kernel, LoopForm, Pointwise, Product, Reduction, View
from rnnops.scalar_texts import places_of, read_text
from rnnops.types import ANY, FLOATS

if TYPE_CHECKING:
    from rnnops.schema import OpSchema

ROUNDED = ("", "bfloat16", "float16", "tfloat32", "int8")  # what operands of products are
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
        problem = _missing(schema, base, "expand", form) or _expand_problem(schema)
    elif isinstance(form, Product):
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
            _fail(schema, f"its {what} are no tuple of names", came=repr(ports))
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
        _fail(schema, "its attributes are no mapping from names to defaults", came=repr(schema.attributes))


def _check_dtypes(schema: OpSchema) -> None:
    if not isinstance(schema.accepts, tuple) or not set(schema.accepts) <= set(ANY):
        _fail(schema, "it accepts what is no dtype", wanted=f"a tuple of {', '.join(ANY)}", came=repr(schema.accepts))
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
            _fail(schema, f"`{name}` lists what is no port", wanted=f"a tuple of {', '.join(ports)}", came=repr(listed))


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
    problem = _arguments_problem(getattr(schema, rule), rule, arguments, keywords)
    if problem:
        raise OpError(problem, op=schema.name, hint=ADDING)


def _arguments_problem(method: Callable[..., Any], rule: str, arguments: int, keywords: tuple[str, ...] = ()) -> str:
    """Why a rule cannot be called with so many arguments; empty where it can."""
    if not callable(method):
        return f"its `{rule}` is no method, but {method!r}"
    signature = inspect.signature(method)
    try:
        signature.bind(*(None,) * arguments, **dict.fromkeys(keywords))
    except TypeError:
        named = "".join(f" and `{name}=`" for name in keywords)
        return f"its rule `{rule}{signature}` does not take {arguments} arguments{named}: the call, then its blobs"
    return ""


def _declares(schema: OpSchema, base: type[OpSchema], rule: str) -> bool:
    return getattr(type(schema), rule) is not getattr(base, rule)


def _takes_any_number(schema: OpSchema) -> bool:
    return bool(schema.inputs) and schema.inputs[-1].endswith("*")


def _most_inputs(schema: OpSchema) -> int:
    """How many inputs a call may have: all, or many."""
    return len(schema.inputs) + (MANY if _takes_any_number(schema) else 0)


# -- loop forms ------------------------------------------------------------------------------------------------------


def _text_problem(what: str, text: str, known: set[str] | frozenset[str], own: set[str] | None) -> str | None:
    """What is wrong with a text of a form.

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
        return f"`start` of its loop form is no number, but {form.start!r}"
    if problem is None and "0" not in places_of(form.element):
        return f"`element` of its loop form, '{form.element}', does not read {{0}}, whose elements are folded"
    return problem


def _begins_problem(schema: OpSchema, form: Pointwise) -> str | None:
    fits = isinstance(form.begins, tuple) and all(
        isinstance(pair, tuple) and len(pair) == 2 and pair[0] in range(len(schema.inputs)) for pair in form.begins
    )
    return None if fits else f"`begins` of its loop form is no tuple of (input, axis): {form.begins!r}"


def _expand_problem(schema: OpSchema) -> str | None:
    return _arguments_problem(schema.expand, "expand", 1 + _most_inputs(schema)) or None


def _product_problem(schema: OpSchema, form: Product) -> str | None:
    if form.operands not in ROUNDED:
        return (
            f"Product() has operands as they are, rounded to {', '.join(ROUNDED[1:-1])}, or right ones of int8, "
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
    """Whether an attribute with this default may be a number: one that must be given, or may be left out, may."""
    return not isinstance(default, str | tuple | list | Mapping)


def _fail(schema: OpSchema, problem: str, hint: str = ADDING, **details: Any) -> None:
    raise OpError(problem, op=schema.name, hint=hint, **details)
