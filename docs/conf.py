"""How Sphinx builds the site: pages of Markdown from this folder, the reference from docstrings.

From the root of a clone: `sphinx-build -W --keep-going docs build/site` (the extra `docs` has what it takes).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from rnnops import VERSION

if TYPE_CHECKING:
    from sphinx.application import Sphinx

MADE = {"rnnops.Blob", "rnnops.Pullback", "rnnops.Run"}  # by nets, ops and `compile`, never by users

project = "rnnops"
author = "the rnnops developers"
release = version = VERSION
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]

# Pages: links between files and to their headings work as they do on a code host.
myst_heading_anchors = 3

# Docstrings: single backticks are code, arguments are a list, types stand in the signature alone.
default_role = "code"
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_default_options = {"exclude-members": "cells, pullback", "special-members": "__call__"}
autodoc_mock_imports = [] if find_spec("torch") else ["torch"]
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 100
napoleon_numpy_docstring = False
napoleon_use_rtype = False
napoleon_preprocess_types = False

# A link that leads nowhere is a warning, and `-W` makes it an error; types of signatures are not links of ours.
nitpicky = True
nitpick_ignore_regex = [("py:.*", ".*")]

html_theme = "furo"
html_static_path, html_css_files = ["_static"], ["site.css"]
html_title = f"rnnops {VERSION}"
html_copy_source = False
html_show_copyright = html_show_sphinx = False


def setup(app: Sphinx) -> None:
    """Called by Sphinx."""
    app.connect("autodoc-process-signature", without_signature)
    app.connect("autodoc-process-docstring", as_plain_text, priority=400)  # before napoleon, which writes markup
    app.connect("autodoc-process-docstring", without_type, priority=600)
    app.connect("html-page-context", opened_pictures)


def without_signature(
    app: Sphinx, what: str, name: str, thing: Any, options: Any, arguments: str | None, result: str | None
) -> tuple[str, str] | None:
    """Leave out arguments of errors, those of the base being those of all, and of what others make for the user."""
    own = what == "exception" and name != "rnnops.RnnopsError"
    made = what == "class" and (name in MADE or name.startswith("rnnops.compiler."))
    return ("", "") if (own or made) and arguments is not None else None


def as_plain_text(app: Sphinx, what: str, name: str, thing: Any, options: Any, lines: list[str]) -> None:
    """Change a docstring so that backticks alone mean something: `*`, `|`, `name_`, `D.` are what they look like."""
    lines[:] = "".join(paragraphs("\n".join(lines))).split("\n")


def without_type(app: Sphinx, what: str, name: str, thing: Any, options: Any, lines: list[str]) -> None:
    """Put the text of a property together again: napoleon takes what stands before a colon for its type."""
    if what in ("attribute", "property") and (kinds := [line for line in lines if line.startswith(":type: ")]):
        rest = [line for line in lines if line not in kinds]
        lines[:] = [f"{kinds[0].removeprefix(':type: ')}: {rest[0]}", *rest[1:]]


def opened_pictures(app: Sphinx, page: str, template: str, context: dict[str, Any], tree: Any) -> None:
    """A picture that is a link to itself opens; Sphinx would have it saved."""
    found = r'(<a class="reference download internal") download=""( [^>]*><span [^>]*><img )'
    context["body"] = re.sub(found, r"\1\2", context.get("body", ""))


def paragraphs(text: str) -> Iterator[str]:
    """What a docstring is made of, blank lines between included, each as it means what it looks like."""
    around = None  # how far the line with `::` is indented after which everything that is further in is code
    for part in re.split(r"(\n *\n)", text):
        if part.strip() and around is not None and indent_of(part) <= around:
            around = None
        words, mark, code = part.partition(">>>")
        yield part if around is not None else f"{escaped(words)}{mark}{code}"
        if part.endswith("::"):
            around = indent_of(part.rpartition("\n")[2])


def indent_of(line: str) -> int:
    """Blanks that a line begins with."""
    return len(line) - len(line.lstrip(" "))


def escaped(text: str) -> str:
    """Text with a backslash before each sign that would be markup, outside of code."""
    return re.sub(
        r"(`[^`]*`)|([*|]|(?<=\w)_(?!\w)|(?<=\b[A-Z])\.(?!\S))", lambda found: found[1] or f"\\{found[2]}", text
    )
