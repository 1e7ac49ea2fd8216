"""Which lines and branches of the CUDA device's host side no test without a GPU runs, each with the reason.

`python tools/uncovered_cuda.py` (needs coverage.py and PyTorch; two minutes) runs the tests that are for it, in the
simulator and by the fake driver, and ends with status 1 where a line has no reason here.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
FILES = (
    *(f"kernels/cuda/{name}.py" for name in ("facade", "memory", "device_array", "gemm", "launches")),
    *(f"rnnops/torch/{name}.py" for name in ("cuda_calls", "cuda_side", "sides")),
)  # fmt: skip
TESTS = (
    *(f"tests/kernels/test_{name}.py" for name in (
        "cuda_facade", "cuda_card", "cuda_moves", "cuda_exchange", "cuda_dlpack", "cuda_host_numbers",
        "cuda_replays", "cuda_blas", "device_array", "cuda_gemm", "cuda_scalars",
    )),
    *(f"tests/compiler/api/test_cuda_{name}.py" for name in ("run", "stream", "lenders")),
    "tests/compiler/targets/cuda/test_device_memory.py",
    *(f"tests/pytorch/test_cuda_{name}.py" for name in ("side", "driver")),
)  # fmt: skip
A_DEVICE = "asks PyTorch's CUDA itself: tests/pytorch/test_cuda_tensors.py, on a GPU"
REASONS = {  # by the line of the source
    "return torch.cuda.current_device()": A_DEVICE,
    "return torch.cuda.current_stream(device)": A_DEVICE,
    "return torch.cuda.is_current_stream_capturing()": A_DEVICE,
    "return torch.empty(max(nbytes, 1), dtype=torch.uint8, device=device)": A_DEVICE,
}


def main() -> int:
    """Run the tests, and say what they left out."""
    with tempfile.TemporaryDirectory() as folder:
        data, report = f"--data-file={folder}/data", Path(folder) / "report.json"
        coverage, tests = (sys.executable, "-m", "coverage"), ("-m", "(packages or not packages) and not slow")
        run = (*coverage, "run", "--branch", data, f"--include={','.join(FILES)}", "-m", "pytest", "--quiet")
        done = subprocess.run([*run, *tests, *TESTS], cwd=ROOT, check=False)
        if done.returncode:
            return done.returncode
        subprocess.run([*coverage, "json", data, "--quiet", "-o", str(report)], cwd=ROOT, check=True)
        return tell(json.loads(report.read_text(encoding="utf-8")))


def tell(report: dict[str, dict[str, dict[str, list[list[int]]]]]) -> int:
    """Print what was left out; how many lines and branches of it have no reason, at most 1."""
    unknown = 0
    for path, found in report["files"].items():
        lines = (ROOT / path).read_text(encoding="utf-8").splitlines()
        missed = [(line, "is not run") for line in found["missing_lines"]]
        known = {line for line, _ in missed}
        missed += [(a, f"never goes to {b}") for a, b in found["missing_branches"] if a not in known and b not in known]
        for line, what in missed:
            text = lines[line - 1].strip()
            reason = REASONS.get(text, "NO REASON")
            unknown += reason == "NO REASON"
            print(f"{path}:{line} {what}: {text}\n    {reason}")
    totals = report["totals"]
    print(f"{totals['covered_branches']} of {totals['num_branches']} branches, {totals['percent_covered']:.1f} %")
    return int(unknown > 0)


if __name__ == "__main__":
    sys.exit(main())
