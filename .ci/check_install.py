"""Runs README's two commands as a new user would, in a fresh clone, in both orders, and looks at what they leave.

Usage: python3 .ci/check_install.py. The training run is shortened, and of the tests two files run. After each command
the package is imported from another folder, and `site-packages` must hold what pip put there and no more; at the end
the package is uninstalled, and nothing of it may be left.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SHORTER = (
    ("--time-limit 150 --sample 400", "--steps 2 --max-bytes 50000 --sample 20"),
    ("--numprocesses 2 --dist worksteal", "tests/test_infer.py tests/test_docs.py -k 'infer or adding_an_op'"),
)
IMPORT = "import rnnops as ro; ro.Net('n'); print(ro.compile.__module__, ro.__file__)"
LEFT = """
import importlib.metadata, pathlib, sysconfig
folder = pathlib.Path(sysconfig.get_paths()["purelib"])
try:
    installed = {pathlib.Path(file.locate()).resolve() for file in importlib.metadata.files("rnnops") or ()}
except importlib.metadata.PackageNotFoundError:
    installed = set()
found = [path for path in folder.rglob("*rnnops*") if path.is_file()]
found += [path for name in ("rnnops", "kernels") for path in (folder / name).rglob("*") if path.is_file()]
found += [path for path in folder.rglob("*rnnops*") if path.is_dir() and not any(path.iterdir())]
print(*sorted({str(path) for path in found if path.resolve() not in installed}), sep="\\n", end="")
"""


def commands() -> list[str]:
    """The shell commands of README, shortened."""
    found = re.findall(r"```sh\n(.*?)\n```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    if len(found) != len(SHORTER):
        raise SystemExit(f"README has {len(found)} commands, {len(SHORTER)} were expected")
    for command, (long, _) in zip(found, SHORTER, strict=True):
        if long not in command:
            raise SystemExit(f"README's command has no {long!r}: {command}")
    return [command.replace(long, short) for command, (long, short) in zip(found, SHORTER, strict=True)]


def check(clone: Path, elsewhere: Path, environment: dict[str, str]) -> None:
    """Run the first command, the second, and the first again."""
    train, test = commands()
    python, pip = str(clone / ".venv/bin/python"), str(clone / ".venv/bin/pip")
    for command in (train, test, train):
        print(f"\n$ {command}", flush=True)
        subprocess.run(["bash", "-c", command], cwd=clone, env=environment, check=True)
        subprocess.run([python, "-c", IMPORT], cwd=elsewhere, env=environment, check=True)
        subprocess.run(
            [str(clone / ".venv/bin/rnnops"), "--help"], cwd=elsewhere, stdout=subprocess.DEVNULL, check=True
        )
        expect_nothing_left(python, elsewhere)
    subprocess.run([pip, "uninstall", "--quiet", "--yes", "rnnops"], cwd=elsewhere, check=True)
    expect_nothing_left(python, elsewhere)


def expect_nothing_left(python: str, elsewhere: Path) -> None:
    """End with a list of the files of the package that pip does not know."""
    left = subprocess.run([python, "-c", LEFT], cwd=elsewhere, capture_output=True, text=True, check=True).stdout
    if left:
        raise SystemExit(f"files that pip did not put there:\n{left}")


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="rnnops-install-") as folder:
        clone, elsewhere = Path(folder, "clone"), Path(folder, "elsewhere")
        elsewhere.mkdir()
        subprocess.run(["git", "clone", "--quiet", "--depth", "1", f"file://{ROOT}", str(clone)], check=True)
        environment = {**os.environ, "RNNOPS_CACHE_DIR": str(Path(folder, "cache"))}
        check(clone, elsewhere, environment)
    print("README's commands leave an installation that works, and nothing behind.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
