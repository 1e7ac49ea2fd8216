"""Every Python block in README and docs runs; the commands are the ones that continuous integration runs."""

from __future__ import annotations

import ast
import re
from importlib.util import find_spec
from pathlib import Path
from xml.etree import ElementTree

import pytest
import test_site
from page_blocks import BLOCK, check_printed, run_code_blocks

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
PYTHON = re.compile(r"```python\n(.*?)```", re.S)
SHELL = re.compile(r"```sh\n(.*?)```", re.S)


TORCH_ALONE = ("pytorch.md", "pixels.md")  # pages that say nothing without PyTorch
NEEDS_TORCH = re.compile(r"^ *(?:import|from) (?:rnnops\.)?torch\b", re.M)


def short_name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def require_packages(page: Path) -> None:
    """Skip where a tutorial imports what is not there; other pages need nothing that tests have not."""
    blocks = "\n".join(PYTHON.findall(page.read_text()))
    named = set(re.findall(r"^(?:import|from) (\w+)", blocks, re.M)) if page.parent.name == "tutorials" else set()
    for package in sorted(named - {"torch"}):
        if find_spec(package) is None:
            pytest.skip(f"{page.name} needs {package}, which is not installed")


@pytest.mark.usefixtures("_clean_registry")
@pytest.mark.parametrize("page", [page for page in PAGES if page.name not in TORCH_ALONE], ids=short_name)
def test_code_blocks_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    require_packages(page)
    monkeypatch.chdir(tmp_path)  # where their files go
    run_code_blocks(page, without=NEEDS_TORCH)
    check_pictures(tmp_path)


def check_pictures(folder: Path) -> None:
    """Raise AssertionError where code of a page has drawn something else than the page shows."""
    for drawn in folder.glob("*.svg"):
        came, shown = (one.read_text("utf-8") for one in (drawn, ROOT / "docs" / "pictures" / drawn.name))
        assert comparable(came) == comparable(shown), f"python tools/draw_docs.py {drawn.stem} draws it anew"


def comparable(svg: str) -> list[str]:
    """A picture. Where it has bytes, some of which depend on the processor, its texts without numbers."""
    if not re.search(r" (?:[KM]i)?B\b", svg):
        return [svg]
    texts = (text.text or "" for text in ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}text"))
    return [word for text in texts if (word := re.sub(r"[\d .,…-]+|(?:[KM]i)?B\b", "", text))]


@pytest.mark.usefixtures("_clean_registry")
@pytest.mark.parametrize("page", [page for page in PAGES if NEEDS_TORCH.search(page.read_text())], ids=short_name)
def test_code_blocks_with_pytorch_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed")
    require_packages(page)
    monkeypatch.chdir(tmp_path)
    run_code_blocks(page)


def test_code_on_pages_is_narrow() -> None:
    """The site cuts longer lines off on a small screen."""
    for page in PAGES:
        code = "\n".join(block for kind, block, _ in BLOCK.findall(page.read_text()) if kind != "sh")
        assert not [line for line in code.splitlines() if len(line) > 88], short_name(page)


SAME = [
    "a 0.12",
    "a  0.121",
    "1. [2, x]",
    "1.0 [2, x]",
    "-3.5e-07",
    "-3.46e-7",
    "loss ...",
    "loss 3 of 4",
    "a\nb",
    "a\nb",
    "a\n...\nd",
    "a\nb\nc\nd",
]
OTHER = [
    "a 0.12",
    "a 0.14",
    "1 x",
    "2 x",
    "0.5",
    "-0.5",
    "a ...",
    "b",
    "a b",
    "ab",
    "a\nb",
    "a",
    "a",
    "a\nb",
    "1.",
    "0.9",
    "a\n...\nd",
    "a\nb\nc",
]


def test_what_a_block_prints_is_compared_with_the_page(tmp_path: Path) -> None:
    for shown, printed in zip(SAME[::2], SAME[1::2], strict=True):
        check_printed(shown, printed)
    for shown, printed in zip(OTHER[::2], OTHER[1::2], strict=True):
        with pytest.raises(AssertionError):
            check_printed(shown, printed)
    page = tmp_path / "page.md"
    for code in ("python\nprint(1)\n", "sh\necho 1\n"):
        page.write_text(f"```{code}```\n\n```text\n1\n```\n")
        run_code_blocks(page)
        page.write_text(f"```{code}```\n```text\n2\n```\n")
        with pytest.raises(AssertionError, match="shown:   2\nprinted: 1"):
            run_code_blocks(page)


def test_files_of_a_page_run_where_the_machine_has_what_they_need(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    page = tmp_path / "page.md"
    blocks = "```python\n# one.py\nWORD = 'seen'\n```\n```python\n# two.py\nfrom one import WORD\nprint(WORD)\n```\n"
    page.write_text(f"{blocks}```sh\npython two.py\n```\n```text\nseen\n```\n")
    run_code_blocks(page)
    page.write_text(f"{blocks}```sh\npython two.py\n```\n```text\nother\n```\n")
    with pytest.raises(AssertionError, match="printed: seen"):
        run_code_blocks(page)
    page.write_text(f"{blocks}```sh\npython two.py 1 &&\n```\n```text\nseen\n```\n")
    with pytest.raises(AssertionError, match="yntax error"):
        run_code_blocks(page)
    other = "```python\n# three.py\nimport no_such_package\n```\n```sh\npython three.py\n```\n```text\n1\n```\n"
    page.write_text(f"{other}```sh\nno_such_program 1\n```\n```text\n1\n```\n")
    run_code_blocks(page)


def test_readme_is_short() -> None:
    readme = (ROOT / "README.md").read_text()
    assert readme.count("\n") <= 120
    for example in PYTHON.findall(readme):
        statements = [line for line in example.splitlines() if line.strip() and not line.startswith(("import", " "))]
        assert len(statements) <= 18


def test_continuous_integration_runs_the_readme_command() -> None:
    train, test = (block.strip() for block in SHELL.findall((ROOT / "README.md").read_text()))
    assert "\n" not in train
    assert "\n" not in test
    assert test in (ROOT / ".ci" / "run").read_text()


def test_continuous_integration_builds_the_site() -> None:
    """By `tests/test_site.py`, with the flags of the command that the page has."""
    (flags,) = re.findall(r"sphinx-build (.*) docs build/site", (ROOT / "docs" / "contributing.md").read_text())
    assert tuple(flags.split()) == test_site.FLAGS
    assert re.search(r'^tests -m ".*packages.*"$', (ROOT / ".ci" / "run").read_text(), re.MULTILINE)


def test_links_between_pages_lead_somewhere() -> None:
    """On a code host, where there is no site; `tests/test_site.py` follows those of the site."""
    texts = {page: re.sub(r"```.*?```", "", page.read_text(), flags=re.S) for page in PAGES}
    for page, text in texts.items():
        for file, anchor in re.findall(r"\]\((?!https?:)([^)#]*)#?([^)]*)\)", text):
            target = (page.parent / file).resolve() if file else page
            assert target.exists(), f"{short_name(page)}: {file}"
            assert not anchor or anchor in anchors(target.read_text()), f"{short_name(page)}: {file}#{anchor}"


def anchors(text: str) -> set[str]:
    """Names of the headings of a page, as code hosts and MyST make them."""
    headings = re.findall(r"^#+ (.*)$", text, re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_architecture_names_every_folder_on_two_screens() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text()
    folders = {path.parent for top in ("rnnops", "kernels") for path in (ROOT / top).rglob("*.py")}
    missing = [str(one) for folder in folders if f"`{(one := folder.relative_to(ROOT))}`" not in text]
    assert not missing
    assert text.count("\n") <= 100
    assert not [line for line in text.splitlines() if len(line) > 120 and not line.startswith("|")]


def test_every_module_says_what_it_is() -> None:
    for path in sorted(path for folder in ("rnnops", "kernels") for path in (ROOT / folder).rglob("*.py")):
        first = (ast.get_docstring(ast.parse(path.read_text())) or "").split("\n")[0]
        assert len(first) >= 20, path
