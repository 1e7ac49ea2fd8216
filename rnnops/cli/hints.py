"""Hints of errors in words of the command line: options where Python says `load(path, sizes={'N': ...})`."""

from __future__ import annotations

import re

CALL = re.compile(r"load\(path, (constants|sizes)=\{(.*?)\}\)")
NAME = re.compile(r"'(.*?)': ")


def in_options(text: str, command: str = "onnx") -> str:
    """A text with options of a command in place of calls."""

    def option(call: re.Match[str]) -> str:
        kind, names = call[1], NAME.findall(call[2])
        if kind == "sizes" and command == "export":
            return f"--shape INPUT=1,1,40 ({', '.join(names)})" if names else "--shape INPUT=1,1,40"
        return " ".join(f"--{kind} {name}=..." for name in names or ["NAME"])

    return CALL.sub(option, text)
