"""Every Python block in README and docs runs; the commands are the ones that continuous integration runs."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
PYTHON = re.compile(r"```python\n(.*?)```", re.S)
SHELL = re.compile(r"```sh\n(.*?)```", re.S)


@pytest.mark.usefixtures("_clean_registry")
@pytest.mark.parametrize("page", [page for page in PAGES if page.name != "pytorch.md"], ids=lambda page: page.name)
def test_code_blocks_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # where their files go
    run_code_blocks(page)


@pytest.mark.usefixtures("_clean_registry")
def test_picture_of_readme_is_what_its_code_draws(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run_code_blocks(ROOT / "README.md")
    assert (tmp_path / "coupled.svg").read_text() == (ROOT / "docs" / "pictures" / "coupled.svg").read_text()


@pytest.mark.usefixtures("_clean_registry")
def test_code_blocks_with_pytorch_run() -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed")
    run_code_blocks(ROOT / "docs" / "pytorch.md")


def run_code_blocks(page: Path) -> dict[str, Any]:
    """Run a page's code in one namespace, and return that."""
    namespace: dict[str, Any] = {"__name__": page.stem}
    for block in PYTHON.findall(page.read_text()):
        exec(compile(block, str(page), "exec"), namespace)  # our own documents
    return namespace


def test_readme_example_is_short() -> None:
    (example,) = PYTHON.findall((ROOT / "README.md").read_text())
    statements = [line for line in example.splitlines() if line.strip() and not line.startswith(("import", " "))]
    assert len(statements) <= 18


def test_continuous_integration_runs_the_readme_command() -> None:
    train, test = (block.strip() for block in SHELL.findall((ROOT / "README.md").read_text()))
    assert "\n" not in train
    assert "\n" not in test
    assert test in (ROOT / ".ci" / "run").read_text()


def test_architecture_names_every_folder_on_three_screens() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text()
    folders = {path.parent for top in ("rnnops", "kernels") for path in (ROOT / top).rglob("*.py")}
    missing = [str(one) for folder in folders if f"`{(one := folder.relative_to(ROOT))}`" not in text]
    assert not missing
    assert text.count("\n") <= 150
    assert not [line for line in text.splitlines() if len(line) > 120 and not line.startswith("|")]


def test_every_module_says_what_it_is() -> None:
    for path in sorted(path for folder in ("rnnops", "kernels") for path in (ROOT / folder).rglob("*.py")):
        first = (ast.get_docstring(ast.parse(path.read_text())) or "").split("\n")[0]
        assert len(first) >= 20, path
