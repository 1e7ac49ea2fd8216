"""Google-style docstrings taken apart: their sections, the names that a section lists, and their examples."""

from __future__ import annotations

import doctest
import re
from inspect import Parameter, cleandoc, isclass, signature
from typing import Any

import numpy as np

import rnnops as ro

SECTIONS = ("Args", "Returns", "Yields", "Raises", "Example", "Attributes")
HEADING = re.compile(rf"^({'|'.join(SECTIONS)}):$", re.M)


def own_doc(value: Any) -> str:
    """The docstring of an object itself: of a class not that of its base, of an op that of its class."""
    doc = vars(value).get("__doc__") if isclass(value) else getattr(value, "__doc__", None)
    return cleandoc(doc or "")


def sections(doc: str) -> dict[str, str]:
    """Heading -> what stands below it; what comes before the first heading under `""`."""
    first, *parts = HEADING.split(doc)
    return {"": first.strip(), **dict(zip(parts[::2], parts[1::2], strict=True))}


def listed(section: str) -> set[str]:
    """The names before the colons of entries: `net, op: the names` lists both."""
    entries = re.findall(r"^    (\*{0,2}\w[\w., ]*?)(?: \([^)]*\))?:(?: |$)", section, re.M)
    return {name.strip().lstrip("*") for entry in entries for name in entry.split(",")}


def parameters(value: Any, all_of_them: bool = False) -> set[str]:
    """Names of what a function, a class or an op takes, none for a property; `**options` only if all are wanted."""
    value = value.__func__ if isinstance(value, classmethod | staticmethod) else value
    if not callable(value):
        return set()
    try:
        found = signature(value).parameters.values()
    except ValueError:  # of what is written in C
        return set()
    named = {one.name for one in found if all_of_them or one.kind is not Parameter.VAR_KEYWORD}
    return {name for name in named if name not in ("self", "cls") and not name.startswith("_")}


def run_examples(doc: str, name: str) -> None:
    """Run the lines after `>>>`. Raises AssertionError that says what came in place of what was wanted.

    `np` and `ro` are there; arrays print four digits, so that they look alike on every machine.
    """
    test = doctest.DocTestParser().get_doctest(doc, {"np": np, "ro": ro}, name, None, 0)
    told: list[str] = []
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    with np.printoptions(precision=4, suppress=True):
        failed = runner.run(test, out=told.append).failed
    assert not failed, "".join(told)
