"""How large the library is, and whether it stays below the caps in pyproject.toml.

    python tools/size.py           # prints every measure
    python tools/size.py --check   # also exits with 1 if a measure passes its cap

Lines of code are lines with a token that is neither a comment nor part of a docstring. A small file has fewer than 60
lines and is imported by one other file, which lies in the same folder. The last three measures run a fresh process.
"""

from __future__ import annotations

import argparse
import ast
import subprocess
import sys
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib
else:  # pytest brings it
    import tomli as tomllib

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("rnnops", "kernels")
SMALL = 60  # lines
NO_CODE = {
    tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING,
    tokenize.ENDMARKER,
}  # fmt: skip
FIRST_CALL = """
import sys
from pathlib import Path
ran, folders = set(), tuple(sys.argv[1:])
def note(frame, event, argument):
    if event == "call" and frame.f_code.co_filename.startswith(folders) and frame.f_code.co_name != "<module>":
        ran.add(frame.f_code.co_filename)
import numpy as np
import rnnops as ro
net = ro.Net("net")
net.outputs(y=ro.LSTM(net, net.input("x"), None, None, 8, 16, scope="lstm")[0])
feeds = {**ro.init_params(net, 0), "x": np.ones((5, 4, 8), "float32")}
sys.setprofile(note)
ro.compile(net, threads=1)(feeds)
sys.setprofile(None)
files = {module.__file__ for module in list(sys.modules.values()) if getattr(module, "__file__", None)}
print(sum(name.startswith(folders) for name in files), len(ran))
"""
IMPORT = "import time; start = time.process_time(); import rnnops; print(time.process_time() - start)"


@dataclass(frozen=True)
class Source:
    """A file of Python: where it lies, its text and its syntax tree."""

    path: Path
    text: str
    tree: ast.Module

    @property
    def module(self) -> str:
        parts = self.path.relative_to(ROOT).with_suffix("").parts
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def sources(folders: Sequence[str] = FOLDERS) -> list[Source]:
    """All files of Python in folders of the repository."""
    paths = sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))
    texts = [path.read_text(encoding="utf-8") for path in paths]
    return [Source(path, text, ast.parse(text)) for path, text in zip(paths, texts, strict=True)]


def lines_of_code(source: Source) -> int:
    """How many lines have code."""
    documented = {line for node in ast.walk(source.tree) for line in _docstring_lines(node)}
    found: set[int] = set()
    with source.path.open("rb") as file:
        for token in tokenize.tokenize(file.readline):
            if token.type not in NO_CODE:
                found.update(range(token.start[0], token.end[0] + 1))
    return len(found - documented)


def _docstring_lines(node: ast.AST) -> range:
    if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) or not node.body:
        return range(0)
    first = node.body[0]
    if not (
        isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str)
    ):
        return range(0)
    return range(first.lineno, (first.end_lineno or first.lineno) + 1)


def importers(files: Sequence[Source]) -> dict[str, set[str]]:
    """Module -> the modules that import it."""
    names = {source.module for source in files}
    found: dict[str, set[str]] = defaultdict(set)
    for source in files:
        for imported in _imports(source.tree):
            module = imported.replace("rnnops.kernels", "kernels", 1)
            if module in names and module != source.module:
                found[module].add(source.module)
    return found


def _imports(tree: ast.Module) -> Iterator[str]:
    """Full names of modules that are imported; `from a import b` names `a` and `a.b`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Call) and getattr(node.func, "id", "") == "LazyModule":
            yield ast.literal_eval(node.args[0])


def small_files(files: Sequence[Source]) -> list[str]:
    """Small files that only one file of their folder imports."""
    imported_by = importers(files)
    return [
        source.module
        for source in files
        if source.path.name != "__init__.py"
        and source.text.count("\n") < SMALL
        and len(by := imported_by[source.module]) == 1
        and next(iter(by)).rpartition(".")[0] == source.module.rpartition(".")[0]
    ]


def names_used_twice(files: Sequence[Source]) -> dict[str, int]:
    """Names of more than one class at the top level of files."""
    count = Counter(node.name for source in files for node in source.tree.body if isinstance(node, ast.ClassDef))
    return {name: times for name, times in sorted(count.items()) if times > 1}


def _printed_by(code: str, *arguments: str) -> list[float]:
    """The numbers that a fresh process prints."""
    ran = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True, cwd=ROOT)
    return [float(word) for word in ran.stdout.split()]


def measures(files: Sequence[Source]) -> dict[str, float]:
    """Every measure of the source text, by its name in pyproject.toml."""
    return {
        "files": len(files),
        "lines": sum(source.text.count("\n") for source in files),
        "lines-of-code": sum(map(lines_of_code, files)),
        "longest-file": max(source.text.count("\n") for source in files),
        "small-files": len(small_files(files)),
        "class-names-used-twice": len(names_used_twice(files)),
    }


def running_measures() -> dict[str, float]:
    """The measures of a process: files that a first LSTM call loads and runs, and CPU seconds of `import rnnops`."""
    loaded, ran = _printed_by(FIRST_CALL, *(str(ROOT / folder) for folder in FOLDERS))
    seconds = sorted(_printed_by(IMPORT)[0] for _ in range(5))[2]
    return {"files-loaded-by-first-call": loaded, "files-run-by-first-call": ran, "import-seconds": seconds}


def caps() -> Mapping[str, float]:
    """Measure -> the most that it may be."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        found: Mapping[str, float] = tomllib.load(file)["tool"]["rnnops-size"]
    return found


def passed(found: Mapping[str, float], limits: Mapping[str, float]) -> list[str]:
    """A line for each measure above its cap."""
    return [
        f"{name} is {found[name]:g}; the cap is {cap:g}" for name, cap in limits.items() if found.get(name, 0) > cap
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="exit with 1 if a measure passes its cap")
    check, limits = parser.parse_args().check, caps()
    found = {**measures(sources()), **running_measures()}
    for name, value in found.items():
        print(f"{name:28} {value:10.6g}" + (f"   cap {limits[name]:g}" if name in limits else ""))
    above = passed(found, limits)
    print(*above, sep="\n")
    return int(check and bool(above))


if __name__ == "__main__":
    sys.exit(main())
