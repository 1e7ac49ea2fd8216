"""How Sphinx builds the site: pages of Markdown from this folder, the reference from docstrings.

From the root of a clone: `sphinx-build -W --keep-going docs build/site` (the extra `docs` has what it takes).
"""

from __future__ import annotations

import re
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from rnnops import VERSION

if TYPE_CHECKING:
    from sphinx.application import Sphinx

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
autodoc_default_options = {"exclude-members": "attribute_meanings"}
autodoc_mock_imports = [] if find_spec("torch") else ["torch"]
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 100
napoleon_numpy_docstring = False
napoleon_use_rtype = False
napoleon_preprocess_types = False

# A link that leads nowhere is a warning, and `-W` makes it an error; types of signatures are no links of ours.
nitpicky = True
nitpick_ignore_regex = [("py:.*", ".*")]

html_theme = "furo"
html_title = f"rnnops {VERSION}"
html_copy_source = False
html_show_copyright = html_show_sphinx = False


def setup(app: Sphinx) -> None:
    """Called by Sphinx."""
    app.connect("autodoc-process-signature", without_signature)
    app.connect("autodoc-process-docstring", as_plain_text, priority=400)  # before napoleon, which writes markup


def without_signature(app: Sphinx, what: str, name: str, *more: Any) -> tuple[str, str] | None:
    """Leave out the arguments of errors: those of the base are those of all."""
    return ("", "") if what == "exception" and name != "rnnops.RnnopsError" else None


def as_plain_text(app: Sphinx, what: str, name: str, thing: Any, options: Any, lines: list[str]) -> None:
    """Change a docstring so that backticks alone mean something: `*`, `|` and a last `_` are what they look like."""
    blocks = re.split(r"(::\n\n(?: +.*\n|\n)+)", "\n".join(lines))  # of equations, and what is around them
    lines[:] = "".join(block if k % 2 else without_markup(block) for k, block in enumerate(blocks)).split("\n")


def without_markup(text: str) -> str:
    """Text with its signs escaped, but for the lines of examples."""
    paragraphs = (part.partition(">>>") for part in re.split(r"(\n *\n)", text))
    return "".join(f"{escaped(text)}{mark}{code}" for text, mark, code in paragraphs)


def escaped(text: str) -> str:
    """Text with a backslash before each sign that would be markup, outside of code."""
    return re.sub(r"(`[^`]*`)|([*|]|(?<=\w)_(?!\w))", lambda found: found[1] or f"\\{found[2]}", text)
