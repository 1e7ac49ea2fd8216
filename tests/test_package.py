"""The package as a whole: imports go down only, import is light, functions and files stay small."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections import Counter
from graphlib import TopologicalSorter
from pathlib import Path

import pytest
from each import check_each

ROOT = Path(__file__).parent.parent
MODULES = sorted([*(ROOT / "rnnops").rglob("*.py"), *(ROOT / "kernels").rglob("*.py")])

# From the ground up; a module imports from its own line or lines above only.
LAYERS = (
    {"errors", "sizes", "svg", "templates", "util"},
    {"types"},
    {"kernels"},
    {"net"},
    {"ops"},
    {"interpreter"},
    {"autodiff"},
    {"checkpoints"},
    {"recurrent"},
    {"compiler"},
    {"cells"},
    {"model"},
    {"onnx"},
    {"testing", "cli", "torch"},
    {"__main__"},
)
# The same of folders of `rnnops/compiler`: the pipeline, from what all share to what users call.
COMPILER = (
    {"lower"},
    {"memory", "schedule"},
    {"codegen", "rewrite"},
    {"targets"},
    {"targets/c99", "targets/cuda"},
    {"run"},
    {"report"},
    {"api"},
)
FLOORS = {part: floor for floor, parts in enumerate(COMPILER) for part in parts}
RANK = {part: rank for rank, parts in enumerate(LAYERS) for part in parts}
OPTIONAL = {
    "matplotlib",
    "onnx",
    "onnxruntime",
    "threadpoolctl",
    "torch",
    "tqdm",
}  # packages that may be imported inside functions


def part_of(path: Path) -> str:
    relative = path.relative_to(ROOT)
    return relative.parts[0] if relative.parts[0] == "kernels" else relative.parts[1].removesuffix(".py")


def runtime_imports(tree: ast.Module) -> list[ast.Import | ast.ImportFrom]:
    """Imports outside `if TYPE_CHECKING:`, late ones too."""
    skipped = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
        for inner in ast.walk(node)
    }
    found = [n for n in ast.walk(tree) if isinstance(n, ast.Import | ast.ImportFrom) and id(n) not in skipped]
    return [*found, *lazy_imports(tree)]


def lazy_imports(tree: ast.Module) -> list[ast.Import]:
    """Modules that are imported when something of them is first read."""
    calls = [n for n in ast.walk(tree) if isinstance(n, ast.Call) and ast.unparse(n.func) == "LazyModule"]
    return [ast.Import([ast.alias(ast.literal_eval(call.args[0]))]) for call in calls]


def imported_parts(tree: ast.Module) -> set[str]:
    names: list[str] = []
    for node in runtime_imports(tree):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif node.module == "rnnops":
            # a public name of the package itself, such as `init_params`, counts as the top layer
            names += [f"rnnops.{alias.name if alias.name in RANK else 'cli'}" for alias in node.names]
        else:
            names.append(node.module or "")
    return {name.split(".")[1] for name in names if name.startswith("rnnops.")}


def test_imports_go_down() -> None:
    check_each([path for path in MODULES if part_of(path) != "__init__"], assert_imports_go_down)


def assert_imports_go_down(path: Path) -> None:
    own = RANK[part_of(path)]
    for part in imported_parts(ast.parse(path.read_text())):
        assert part in RANK, f"{path.name} imports rnnops.{part}, which has no place in LAYERS"
        assert RANK[part] <= own, f"{path.name} ({part_of(path)}) imports {part}, which lies above it"


def module_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def test_imports_have_no_circles() -> None:
    """Files that are loaded with each other can be read one after the other; a CycleError names a circle."""
    trees = {module_of(path): ast.parse(path.read_text()) for path in MODULES}
    graph: dict[str, set[str]] = {name: set() for name in trees}
    for name, tree in trees.items():
        late = {id(n) for f in ast.walk(tree) if isinstance(f, ast.FunctionDef) for n in ast.walk(f)}
        for node in runtime_imports(tree):
            if isinstance(node, ast.ImportFrom) and id(node) not in late:
                module = (node.module or "").replace("rnnops.kernels", "kernels", 1)
                names = {f"{module}.{alias.name}" for alias in node.names}
                graph[name] |= (names & trees.keys()) | ({module} if names - trees.keys() else set())
    TopologicalSorter({name: (found & trees.keys()) - {name} for name, found in graph.items()}).prepare()


def test_sizes_and_import_style() -> None:
    check_each(MODULES, assert_sizes_and_import_style)


def assert_sizes_and_import_style(path: Path) -> None:
    text = path.read_text()
    tree = ast.parse(text)
    assert text.count("\n") <= 600, "split the file by idea"
    assert ast.get_docstring(tree), "a module says what it is"
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            assert (node.end_lineno or 0) - node.lineno < 80, f"{node.name} is too long"
            inner = [n for n in ast.walk(node) if isinstance(n, ast.Import | ast.ImportFrom)]
            names = {alias.name if isinstance(n, ast.Import) else n.module or "" for n in inner for alias in n.names}
            assert {name.split(".")[0] for name in names} <= OPTIONAL, f"{node.name} imports inside"
        if isinstance(node, ast.ImportFrom):
            assert all(alias.name != "*" for alias in node.names)


def compiler_part(module: str) -> str:
    """The longest part of COMPILER that holds a module of the compiler."""
    words = module.split(".")[2:]
    parts = ("/".join(words[:length]) for length in range(len(words), 0, -1))
    return next((part for part in parts if part in FLOORS), words[0])


def test_the_compiler_is_a_pipeline() -> None:
    folder, wrong = ROOT / "rnnops" / "compiler", []
    for path in sorted(folder.rglob("*.py")):
        own = compiler_part(".".join(path.relative_to(ROOT).with_suffix("").parts))
        for node in runtime_imports(ast.parse(path.read_text())):
            prefix = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
            for name in (f"{prefix}{alias.name}" for alias in node.names):
                if path.name != "__init__.py" and name.startswith("rnnops.compiler."):
                    part = compiler_part(name)
                    wrong += [f"{path}: {name}"] if FLOORS[part] >= FLOORS[own] and part != own else []
    assert not wrong


def test_tests_of_the_compiler_lie_in_folders_of_its_names() -> None:
    tests, code = ROOT / "tests" / "compiler", ROOT / "rnnops" / "compiler"
    folders = {path.parent.relative_to(tests) for path in tests.rglob("*.py")} - {Path("end_to_end")}
    assert all((code / folder).is_dir() for folder in folders)


PASSES = ("rewrite", "saving", "buffers", "lower", "schedule", "codegen")  # folders


def test_each_pass_is_tested_by_itself() -> None:
    """A test module imports it, or a fixture shows what it does, so that some failure names it."""
    tests = "\n".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    fixtures = (ROOT / "tests" / "compiler" / "schedule" / "passes").glob("*.txt")
    shown, missing = {f"schedule.{path.stem}" for path in fixtures}, []
    for folder in PASSES:
        for path in sorted((ROOT / "rnnops" / "compiler" / folder).glob("*.py")):
            imports = rf"^ *from rnnops.compiler.{folder}(\.{path.stem} import| import .*\b{path.stem}\b)"
            if path.name != "__init__.py" and f"{folder}.{path.stem}" not in shown:
                missing += [] if re.search(imports, tests, re.M) else [path.name]
    assert missing == []


def run_python(code: str, **environment: str) -> str:
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env={**os.environ, **environment})
    return done.stdout.strip()


def test_every_folder_is_a_package_that_is_installed() -> None:
    (listed,) = re.findall(
        r"^\[tool\.setuptools\]\npackages = \[(.*?)\]", (ROOT / "pyproject.toml").read_text(), re.M | re.S
    )
    folders = {str(path.parent.relative_to(ROOT)) for path in MODULES}
    wanted = {("rnnops/" + folder if folder.startswith("kernels") else folder).replace("/", ".") for folder in folders}
    assert set(re.findall(r'"(.*?)"', listed)) == wanted


def test_import_loads_nothing_heavy() -> None:
    loaded = run_python("import sys, rnnops; print(' '.join(sys.modules))").split()
    assert not {"numba", "scipy", "onnx", "torch", "matplotlib", "tqdm"} & {name.split(".")[0] for name in loaded}


BACKWARD = (
    "rnnops.compiler.memory.choose_saved", "rnnops.compiler.run.backward", "rnnops.compiler.run.segments",
    "rnnops.recurrent.parts", "rnnops.recurrent.training_form",
)  # fmt: skip


def test_a_forward_pass_loads_nothing_of_the_backward_side() -> None:
    code = """
import sys
import numpy as np
import rnnops as ro
net = ro.Net("m")
net.outputs(y=ro.LSTM(net, net.input("x"), None, None, 2, 3)[0])
feeds = {**ro.init_params(net, seed=0), "x": np.ones((2, 2, 2), "float32")}
run = ro.compile(net, threads=1)
run(feeds)
print(*sys.modules)
run.vjp(feeds)
print(*sys.modules)
"""
    forward, both = (set(line.split()) for line in run_python(code).split("\n"))
    assert not {*BACKWARD} & forward
    assert {*BACKWARD} <= both  # else the names are no longer those of modules


def test_numba_is_for_cuda_alone() -> None:
    """Without it a net runs on processors, `devices` says what is missing, and `device="cuda"` is a named error."""
    code = """
import sys
sys.modules["numba"] = None
import numpy as np
import rnnops as ro
net = ro.Net("m")
net.outputs(y=ro.LSTM(net, net.input("x"), None, None, 2, 3)[0])
feeds = {**ro.init_params(net, seed=0), "x": np.ones((2, 2, 2), "float32")}
assert ro.compile(net)(feeds)["y"].shape == (2, 2, 3)
print(ro.devices()[2])
try:
    ro.compile(net, device="cuda")
except ro.DeviceError as error:
    print(error)
"""
    listed, raised = run_python(code).split("\n")
    assert "numba, which is missing" in listed
    assert "Install rnnops with its extra 'cuda'" in raised


def test_import_is_fast(tmp_path: Path) -> None:
    """At most NumPy's own import, which takes some 0.1 s; the best of several tries, as machines are busy.

    Bytecode is written by the first try and read by the others, as it is where a library is used.
    """
    bytecode = {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(tmp_path)}
    clock = "t.append(time.process_time())"
    code = f"import time; t = []; {clock}; import numpy; {clock}; import rnnops; {clock}"
    ratio = "print((t[2] - t[1]) / (t[1] - t[0]))"
    assert any(float(run_python(f"{code}; {ratio}", **bytecode)) < 1 for _ in range(7))


def test_lazy_names_are_there() -> None:
    code = "import rnnops as ro; print(ro.compile.__name__, ro.Run.__name__, ro.Pullback.__name__, ro.testing.__name__)"
    assert run_python(code) == "compile Run Pullback rnnops.testing"


def test_unknown_name_is_an_attribute_error() -> None:
    assert run_python("import rnnops as ro; print(hasattr(ro, 'no_such_name'))") == "False"


def test_no_two_modules_of_tests_share_a_name() -> None:
    """They are imported by their last names, and the second would be taken for the first."""
    names = Counter(path.stem for path in (ROOT / "tests").rglob("*.py") if path.stem != "conftest")
    assert not [name for name, count in names.items() if count > 1]


def test_former_names_of_modules_give_what_moved_and_warn() -> None:
    import rnnops
    from rnnops.net.schema import register

    with pytest.warns(DeprecationWarning, match=r"rnnops\.schema is rnnops\.net\.schema now"):
        from rnnops.schema import register as former
    assert former is register
    with pytest.raises(ImportError):
        from rnnops.schema import no_such_name  # noqa: F401
    with pytest.warns(DeprecationWarning, match="is rnnops"):
        exec("import rnnops.loops; rnnops.loops.Pointwise\nfrom rnnops.loops import *\nReduction", {})
    assert not {"schema", "loops", "op", "blob", "infer"} & set(dir(rnnops))
