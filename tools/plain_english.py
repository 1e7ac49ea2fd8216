"""How plain the English is, and whether it stays below the caps in pyproject.toml.

    python tools/plain_english.py             # prints every count
    python tools/plain_english.py PATTERN     # also prints each place where a pattern was found
    python tools/plain_english.py --check     # exits with 1 if a count passes its cap

Read are docstrings, comments and messages of errors in rnnops and kernels, and the prose of README and docs. Patterns
stand in `PATTERNS`, with the words to use instead. A sentence is long above 30 words.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import runpy
import sys
import tokenize
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
SIZE: dict[str, Any] = runpy.run_path(str(Path(__file__).with_name("size.py")))
PATTERNS = {
    "begins-with-what": r"\AWhat\b",  # the noun
    "begins-with-whether": r"\AWhether\b",  # "True if"
    "is-no": r"(?<![Tt]here) (?:is|are|was|were) no (?!longer|more|less|such)",  # "is not a"
    "alone": r"\balone\b",  # "only"
    "beside": r"\bbeside\b",  # "next to", "compared with"
    "nobody": r"\bnobody\b",  # "not read", "unused"
    "of-which": r"\bof which\b",  # another sentence
    "likewise": r"\blikewise\b",  # what it is
}
LONG = 30  # words of a sentence
RAISES = {"fail", "refuse", "_refuse"}  # functions that raise an error with the text that they get
Text = tuple[str, int, str]  # file, line, text


def texts_of_python(path: Path) -> Iterator[Text]:
    """Docstrings, comments and messages of errors."""
    name, text = str(path.relative_to(ROOT)), path.read_text(encoding="utf-8")
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield name, token.start[0], token.string.lstrip("# ")
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and (said := ast.get_docstring(node)):
            yield name, node.body[0].lineno, said
        elif isinstance(node, ast.Raise) or (isinstance(node, ast.Call) and _name(node.func) in RAISES):
            words = (one for one in ast.walk(node) if isinstance(one, ast.Constant) and isinstance(one.value, str))
            yield from ((name, word.lineno, word.value) for word in words)


def _name(function: ast.expr) -> str:
    return getattr(function, "attr", getattr(function, "id", ""))


def texts_of_markdown(path: Path) -> Iterator[Text]:
    """Paragraphs and items of lists, without code and tables."""
    text = re.sub(r"```.*?```", lambda block: "\n" * block[0].count("\n"), path.read_text(encoding="utf-8"), flags=re.S)
    line = 1
    for paragraph in re.split(r"(\n\s*\n|\n(?=[-|#]))", text):
        if paragraph.strip() and not paragraph.startswith(("|", "#")):
            yield str(path.relative_to(ROOT)), line, paragraph.strip()
        line += paragraph.count("\n")


def texts() -> list[Text]:
    """All texts that people read."""
    python = sorted(path for folder in ("rnnops", "kernels") for path in (ROOT / folder).rglob("*.py"))
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [*(one for path in python for one in texts_of_python(path)),
            *(one for path in pages for one in texts_of_markdown(path))]  # fmt: skip


def long_sentences(text: str) -> list[str]:
    """Sentences of more than `LONG` words. Formulas, examples and lists of arguments are not sentences."""
    prose = re.split(r"\n\s*(?:Args|Returns|Raises|Example):", text)[0]
    found = re.split(r"[.!?:;](?:\s+|\Z)|\n\s*\n|\n\s*[-|]", prose)
    return [" ".join(sentence.split()) for sentence in found if len(sentence.split()) > LONG and " = " not in sentence]


def places(found: list[Text]) -> dict[str, list[Text]]:
    """Pattern -> where it was found, with the words around it."""
    result: dict[str, list[Text]] = {name: [] for name in (*PATTERNS, "long-sentences")}
    for file, line, text in found:
        for name, pattern in PATTERNS.items():
            for match in re.finditer(pattern, text):
                around = text[max(0, match.start() - 30) : match.end() + 50]
                result[name].append((file, line, " ".join(around.split())))
        result["long-sentences"] += [(file, line, sentence) for sentence in long_sentences(text)]
    return result


def caps() -> Mapping[str, int]:
    """Pattern -> how often it may be found at most."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        found: Mapping[str, int] = SIZE["tomllib"].load(file)["tool"]["rnnops-english"]
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pattern", nargs="?", choices=(*PATTERNS, "long-sentences"), metavar="PATTERN")
    parser.add_argument("--check", action="store_true", help="exit with 1 if a count passes its cap")
    given, limits = parser.parse_args(), caps()
    found = places(texts())
    counts = {name: len(where) for name, where in found.items()}
    for name, count in counts.items():
        print(f"{name:22} {count:6}   cap {limits[name]}")
    for file, line, words in found.get(given.pattern, ()):
        print(f"{file}:{line}: {words}")
    above = SIZE["passed"](counts, limits)
    print(*above, sep="\n")
    return int(given.check and bool(above))


if __name__ == "__main__":
    sys.exit(main())
