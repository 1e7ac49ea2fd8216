"""The revision of the kernels: another one after any change of a kernel, or of the table that says where each is."""

from __future__ import annotations

from pathlib import Path

from rnnops.kernels import scalar_functions
from rnnops.kernels.cpu import elementary
from rnnops.kernels.cpu.processor import HOME, REVISION, source_revision

TABLE = Path(scalar_functions.__file__)


def test_it_is_of_all_kernels_and_of_the_table() -> None:
    assert Path(elementary.__file__).parent == HOME
    assert source_revision([*HOME.glob("*.py"), TABLE]) == REVISION
    assert source_revision(HOME.glob("*.py")) != REVISION


def test_names_and_contents_count(tmp_path: Path) -> None:
    found = set[int]()
    for name, content in (("a.py", "x"), ("a.py", "y"), ("b.py", "x")):
        file = tmp_path / name
        file.write_text(content)
        found.add(source_revision([file]))
    assert len(found) == 3
