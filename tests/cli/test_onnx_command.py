"""`rnnops onnx`: what it prints of files that can be read, of those that cannot, and of files made to harm."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper
from onnx_command_files import HEAD, command, saved, tagger

from rnnops.cli.language_model import in_options
from rnnops.cli.main import main
from rnnops.cli.onnx_command import MOST, plain

BRANCHES = """g (float[N,3] x, int64 rate, float[1,N,4] h) => (float[N,2] y, float[1,N,4] hn)
    <float[1,12,3] w = {W}, float[1,12,4] r = {R}> {
    sixteen = Constant<value_int = 16000>()
    high = Equal(rate, sixteen)
    y, hn = If(high) <
        then_branch = fast() => (float[N,2] a, float[1,N,4] b) {
            axes = Constant<value = int64[1] {0}>()
            x1 = Unsqueeze(x, axes)
            all, last = GRU<hidden_size = 4>(x1, w, r, "", "", h)
            all2, b = GRU<hidden_size = 4>(x1, w, r, "", "", last)
            flat = Squeeze(all2)
            a = MyOp(flat) },
        else_branch = slow() => (float[N,2] a, float[1,N,4] b) { a = MyOp(x) b = Identity(h) } > }"""
BRANCHES = BRANCHES.replace("{W}", f"{{{', '.join(['0.5'] * 36)}}}").replace("{R}", f"{{{', '.join(['0.5'] * 48)}}}")


def refused(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    """The one line that a command says that exits with 2."""
    assert command(*arguments) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert said.startswith("rnnops: error: ")
    return said


def test_a_file_that_can_be_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tagger(tmp_path)
    assert command(path) == 0
    printed = capsys.readouterr().out
    assert f"{path.stat().st_size:,} bytes" in printed
    assert "made by rnnops" in printed
    assert "op sets: ai.onnx 20" in printed
    assert re.search(r"inputs:\n  x   float32 \[T, N, 3\]\n  h   float32 \[1, N, 5\]", printed)
    assert re.search(r"recurrences:\n  layer 1  LSTM  forward  \? -> 5", printed)
    assert "float32  210 numbers in 5 tensors  840 bytes" in printed
    assert re.search(r"ops: \d+ nodes\n  .*LSTM 1", printed)
    assert re.search(r"read: a net of \d+ ops, 1 of them recurrences, with 5 parameters of 210 numbers", printed)
    assert printed.endswith("not run: --check compares its outputs with those of ONNX Runtime\n")


def test_recurrences_in_branches_and_what_is_not_supported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = saved(tmp_path / "a.onnx", HEAD + BRANCHES)
    assert command(path) == 3
    printed = capsys.readouterr().out
    assert "layer 1  GRU  forward  3 -> 4  84 weights  'all' in then_branch of If 'y'" in printed
    assert "layer 2  GRU  forward  3 -> 4  84 weights  'all2' in then_branch of If 'y'" in printed
    assert "not read:" in printed
    assert re.search(r"MyOp  of ai.onnx  2 nodes  'a' in then_branch of If 'y', 'a' in else_branch of If 'y'", printed)
    assert "rate  int64 []" in printed


def test_ops_of_other_domains_are_named_with_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    nodes = [helper.make_node("Fancy", ["x"], ["a"], domain="com.example", name=f"n{k}") for k in range(5)]
    value = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in ("x", "a")]
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.example", 3)]
    model = helper.make_model(helper.make_graph(nodes, "g", value[:1], value[1:]), opset_imports=opsets)
    (tmp_path / "a.onnx").write_bytes(model.SerializeToString())
    assert command(tmp_path / "a.onnx") == 3
    printed = capsys.readouterr().out
    assert "com.example::Fancy  of com.example  5 nodes  'n0', 'n1', 'n2', ..." in printed
    assert "op sets: ai.onnx 17, com.example 3" in printed


def test_other_reasons_are_told_beside_all_that_the_protobuf_says(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = {
        "g (complex64[N,3] x) => (complex64[N,3] y) { y = Tanh(x) }": ("complex64 [N, 3]", "complex64"),
        "g (float[N] x, int64[2] s) => (float y) { y = Reshape(x, s) }": ("int64 [2]", "give it: --constants s=..."),
        "g (seq(float[N]) x) => (int64 y) { y = SequenceLength(x) }": (
            "sequence of unknown sizes",
            "an input is not a tensor",
        ),
    }
    for text, (told, problem) in files.items():
        assert command(saved(tmp_path / "a.onnx", HEAD + text)) == 3
        printed = capsys.readouterr().out
        assert told in printed
        assert problem in printed.partition("not read:")[2]


def test_hints_are_in_words_of_the_command() -> None:
    text = (
        "Give load(path, constants={'s': ...}), or load(path, sizes={'N': ..., 'x.1': ...}); load(path, sizes={...})."
    )
    assert in_options(text) == "Give --constants s=..., or --sizes N=... --sizes x.1=...; --sizes NAME=...."
    assert "or --shape INPUT=1,1,40 (N, x.1); --shape INPUT=1,1,40." in in_options(text, "export")


def test_nobody_reads_on(tmp_path: Path) -> None:
    read, written = os.pipe()
    os.close(read)
    call = [sys.executable, "-m", "rnnops.cli.main", "onnx", str(tagger(tmp_path))]
    done = subprocess.run(call, stdout=written, stderr=subprocess.PIPE, timeout=60)
    os.close(written)
    assert (done.returncode, done.stderr) == (141, b"")


def test_constants_decide_sizes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = "g (float[N] x, int64[2] s, int64[1] one) => (float y) { z = Reshape(x, s) y = Expand(z, one) }"
    path = saved(tmp_path / "a.onnx", HEAD + text)
    assert command(path, "--constants", "s=2,-1", "--constants", "one=1") == 0
    assert "read: a net" in capsys.readouterr().out
    assert command(path, "--constants", "z=2") == 3
    assert "constants name values that are not inputs" in capsys.readouterr().out


def test_what_is_no_onnx_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    broken = tmp_path / "broken.onnx"
    broken.write_bytes(b"\x08\x08nonsense")
    empty = tmp_path / "empty.onnx"
    empty.write_bytes(b"")
    for path, problem in {
        tmp_path / "none.onnx": "does not exist",
        tmp_path: "not a file",
        broken: "protobuf",
        empty: "no graph",
    }.items():
        assert problem in refused(capsys, path)


def test_arguments_that_make_no_sense(tmp_path: Path) -> None:
    path = tagger(tmp_path)
    for arguments in (
        ("--constants", "x"),
        ("--constants", "x=a"),
        ("--sizes", "T=-1"),
        ("--sizes", "T="),
        ("--range", "x=1"),
        ("--range", "x=2,1"),
        ("--range", "x=nan,1"),
        ("--tolerance", "0"),
        ("--seed", "-1"),
    ):
        with pytest.raises(SystemExit, match="2"):
            command(path, *arguments)


def nested(depth: int) -> Any:
    """A model of Ifs inside each other."""
    graph = helper.make_graph(
        [helper.make_node("Tanh", ["x"], ["y"])], "g", [], [helper.make_empty_tensor_value_info("y")]
    )
    for _ in range(depth):
        node = helper.make_node("If", ["c"], ["y"], then_branch=graph, else_branch=graph)
        graph = helper.make_graph([node], "g", [], [helper.make_empty_tensor_value_info("y")])
    return helper.make_model(graph)


def test_graphs_that_lie_too_deep(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "deep.onnx"
    path.write_bytes(nested(9).SerializeToString())
    assert "too deep" in refused(capsys, path)
    path.write_bytes(nested(3).SerializeToString())
    assert command(path) == 3


def test_names_do_not_reach_the_terminal_as_they_are(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    evil = "\x1b[2J\nrnnops: all is well\u202e" + "a" * 500
    node = helper.make_node(evil, [evil], ["y"], name=evil, domain=evil)
    value = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [evil, 2]) for name in (evil, "y")]
    graph = helper.make_graph([node], evil, value[:1], value[1:])
    model = helper.make_model(graph, producer_name=evil, opset_imports=[helper.make_opsetid(evil, 17)])
    (tmp_path / "a.onnx").write_bytes(model.SerializeToString())
    assert command(tmp_path / "a.onnx") == 3
    printed = capsys.readouterr().out
    assert "\\x1b" in printed
    assert all(line.isprintable() for line in printed.splitlines())
    assert not [line for line in printed.splitlines() if line.startswith("rnnops: all is well")]
    assert max(map(len, printed.splitlines())) < 1200


def test_claims_are_told_and_nothing_is_made(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[2**40, 2**20], raw_data=b"1234")
    below = TensorProto(name="v", data_type=99, dims=[-3])
    value = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in ("x", "y")]
    nodes = [helper.make_node("Add", ["x", "w"], ["y"])]
    model = helper.make_model(helper.make_graph(nodes, "g", value[:1], value[1:], [tensor, below]))
    (tmp_path / "a.onnx").write_bytes(model.SerializeToString())
    assert command(tmp_path / "a.onnx") == 3
    printed = capsys.readouterr().out
    assert "1,152,921,504,606,846,976 numbers in 1 tensor" in printed
    assert "type 99  0 numbers" in printed
    assert "does not hold what it claims" in printed


def test_long_lists_are_cut(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    nodes = [helper.make_node(f"Op{k}", ["x"], [f"y{k}"]) for k in range(MOST + 5)]
    value = [helper.make_tensor_value_info(f"y{k}", TensorProto.FLOAT, [2]) for k in range(MOST + 5)]
    model = helper.make_model(helper.make_graph(nodes, "g", [], value))
    (tmp_path / "a.onnx").write_bytes(model.SerializeToString())
    assert command(tmp_path / "a.onnx") == 3
    assert capsys.readouterr().out.count("5 more") == 3  # outputs, ops, and those not supported


def test_mutated_files_are_reports_or_named_errors(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole, random, path = (
        saved(tmp_path / "a.onnx", HEAD + BRANCHES).read_bytes(),
        np.random.default_rng(0),
        tmp_path / "b",
    )
    codes = set()
    for place in random.integers(0, len(whole), 150):
        changed = bytearray(whole)
        changed[place] ^= int(random.integers(1, 256))
        path.write_bytes(bytes(changed))
        codes.add(command(path))
    assert codes <= {0, 2, 3}
    assert {2, 3} <= codes
    capsys.readouterr()


def test_texts_are_made_plain() -> None:
    assert plain("a\tb\u202e") == "a\\tb\\u202e"
    assert plain("x" * 200) == "x" * 97 + "..."


def test_without_onnx_a_named_error(tmp_path: Path) -> None:
    code = "import sys; sys.modules['onnx'] = None\nfrom rnnops.cli.main import main\n"
    code += f"print(main(['onnx', {str(tmp_path)!r}]))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "2\n"
    assert "pip install onnx" in done.stderr


def test_help_has_exit_codes(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(["onnx", "--help"])
    assert "exit codes: 0 the file can be read" in capsys.readouterr().out
