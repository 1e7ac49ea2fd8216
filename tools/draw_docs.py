"""Draw the pictures of the pages: `python tools/draw_docs.py [NAME ...]` writes them to docs/pictures.

It runs each page that saves pictures, or those that save a picture of a name. Bytes of packed weights depend on the
processor that plans are made for, and so do some numbers in the pictures.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from page_blocks import run_code_blocks  # noqa: E402

FOLDER = ROOT / "docs" / "pictures"
SAVED = re.compile(r'^[^#\n]*\.save\("(\w+)\.svg"\)', re.M)


def pages(names: list[str]) -> list[Path]:
    """Pages whose code saves pictures of these names, or any."""
    every = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    saved = {page: SAVED.findall(page.read_text()) for page in every}
    return [page for page, found in saved.items() if found and (not names or set(names) & set(found))]


if __name__ == "__main__":
    for page in pages(sys.argv[1:]):
        with TemporaryDirectory() as folder:
            os.chdir(folder)
            run_code_blocks(page)
            for drawn in sorted(Path(folder).glob("*.svg")):
                shutil.copy(drawn, FOLDER)
                print(f"{page.relative_to(ROOT)}: {drawn.name}")
