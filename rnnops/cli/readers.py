"""Options of the command line: how their values are read, and hints of errors that name options.

A reader takes the text of a value, and raises ArgumentTypeError for others. Hints of the library say
`load(path, sizes={'N': ...})`; on the command line that is an option.
"""

from __future__ import annotations

import re
from argparse import ArgumentTypeError
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from math import inf
from typing import Any

from rnnops.errors import ArgumentError
from rnnops.types import Shape

CALL = re.compile(r"load\(path, (constants|sizes)=\{(.*?)\}\)")
NAME = re.compile(r"'(.*?)': ")
WORDS = {"true": True, "false": False}


def in_options(text: str, command: str = "onnx") -> str:
    """A text with options of a command in place of calls."""

    def option(call: re.Match[str]) -> str:
        kind, names = call[1], NAME.findall(call[2])
        if kind == "sizes" and command == "export":
            return f"--shape INPUT=1,1,40 ({', '.join(names)})" if names else "--shape INPUT=1,1,40"
        return " ".join(f"--{kind} {name}=..." for name in names or ["NAME"])

    return CALL.sub(option, text)


def number_reader(kind: Callable[[str], Any], fits: Callable[[Any], bool], wanted: str) -> Callable[[str], Any]:
    """A reader of numbers."""

    def read(text: str) -> Any:
        with suppress(ValueError):
            value = kind(text)
            if fits(value):
                return value
        raise ArgumentTypeError(f"{text!r} is not {wanted}")

    return read


count = number_reader(int, lambda value: value >= 0, "an integer of 0 or more")
positive_count = number_reader(int, lambda value: value >= 1, "an integer of 1 or more")
not_negative = number_reader(float, lambda value: 0 <= value < inf, "a finite number of 0 or more")
positive = number_reader(float, lambda value: 0 < value < inf, "a finite number above 0")


def shape(text: str) -> tuple[str, Shape]:
    """`INPUT=1,1,40` as name and sizes; `INPUT=` has none."""
    if len(text) > 1 and text.endswith("="):
        return text[:-1], ()
    return _sizes(text, "INPUT=1,1,40")


def sizes(text: str) -> tuple[str, Shape]:
    """`NAME=16` as name and sizes."""
    return _sizes(text, "NAME=16")


def rows(text: str) -> tuple[str, int]:
    """`NAME=4` or `4` as name and number."""
    name, _, number = text.rpartition("=")
    return name, count(number)


def constant(text: str) -> tuple[str, Any]:
    """`NAME=1,2` as name and numbers, a number where there is one."""
    name, values = _named(text, "NAME=1,2")
    numbers = [_value(one) for one in values.split(",")]
    return name, numbers if len(numbers) > 1 else numbers[0]


def bounds(text: str) -> tuple[str, tuple[float, float]]:
    """`INPUT=0,1` as name and numbers, the lower one first."""
    name, values = _named(text, "INPUT=0,1")
    low_high: Sequence[float] = [float(_value(one)) for one in values.split(",")]
    if len(low_high) != 2 or not low_high[0] <= low_high[1] or low_high[1] - low_high[0] == inf:
        raise ArgumentTypeError(f"{text}: wanted two numbers, the lower one first")
    return name, (low_high[0], low_high[1])


def state(text: str, net: str, outputs: Iterable[str], inputs: Iterable[str]) -> tuple[str, str]:
    """`OUTPUT=INPUT` as two names, which may have `=` in them. Raises ArgumentError for others."""
    pairs = [(output, name) for output in outputs for name in inputs if f"{output}={name}" == text]
    if len(pairs) != 1:
        wanted = f"OUTPUT=INPUT of outputs {', '.join(outputs)} and inputs {', '.join(inputs)}"
        raise ArgumentError("--state names no pair", net=net, wanted=wanted, came=text)
    return pairs[0]


def add_repeated(parser: Any, option: str, metavar: str, read: Callable[[str], Any], said: str, dest: str) -> None:
    """Add an option that may be given again; its values are a list."""
    text = f"{said}; may be given again"
    parser.add_argument(option, type=read, action="append", default=[], metavar=metavar, help=text, dest=dest)


def _named(text: str, wanted: str) -> tuple[str, str]:
    """A name, which may have `=` in it, and what is said of it."""
    name, _, value = text.rpartition("=")
    if not name or not value:
        raise ArgumentTypeError(f"{text}: wanted {wanted}")
    return name, value


def _sizes(text: str, wanted: str) -> tuple[str, Shape]:
    name, values = _named(text, wanted)
    try:
        return name, tuple(map(count, values.split(",")))
    except ArgumentTypeError as error:
        raise ArgumentTypeError(f"{text}: {error}") from error


def _value(text: str) -> int | float | bool:
    """A number, or `true` and `false`."""
    if text.lower() in WORDS:
        return WORDS[text.lower()]
    for kind in (int, float):
        with suppress(ValueError):
            return kind(text)
    raise ArgumentTypeError(f"{text!r} is not a number, true or false")
