"""Texts of loop forms: what they may say, read as expressions.

A text is Python over numbers, places in braces, arithmetic (`+ - * /`), comparisons, `and or not`, `x if c else y`,
`inf` and the scalar functions of `rnnops.kernels.scalar_functions`. Nothing else is read: no attribute, no index, no
other name. Places are operands by number (`{0}`), attributes of the op by name (`{alpha}`), and what a form adds.
"""

from __future__ import annotations

import ast
import math
import re
from functools import cache

from rnnops.kernels.scalar_functions import SCALAR_FUNCTIONS

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
        raise ValueError(f"'{text}' is no expression") from None
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
            kind = "is a function, and not called" if node.id in SCALAR_FUNCTIONS else "is no word of texts"
            raise ValueError(f"in '{text}': '{node.id}' {kind}")
    elif isinstance(node, ast.Constant):
        if not isinstance(node.value, int | float):
            raise ValueError(f"in '{text}': {node.value!r} is no number")
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
