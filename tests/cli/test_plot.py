"""The learning curve: a PNG is written, what it shows, and what happens without matplotlib."""

from __future__ import annotations

import subprocess
import sys

import pytest

from rnnops.cli.train import PlotError, _draw, _figure, save_learning_curve

TRAINING = [(1_000 * step, 2 + 5 / step) for step in range(1, 200)]
HELD_OUT = [[1_000 * step, 2.1 + 5 / step] for step in range(1, 200, 20)]
BASELINES = {"order 0": 4.5, "order 3": 2.4, "lzma": 1.6}


def test_a_picture_is_written(tmp_path):
    pytest.importorskip("matplotlib")
    save_learning_curve(tmp_path / "curve.png", TRAINING, HELD_OUT, BASELINES, title="LSTM")
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG\r\n\x1a\n")


def test_the_picture_shows_curves_and_baselines():
    pytest.importorskip("matplotlib")
    _, axes = _figure()
    _draw(axes, TRAINING, HELD_OUT, BASELINES)
    lines = {line.get_label(): line for line in axes.get_lines()}
    assert list(lines) == ["training", "held out: 2.128", "order 0: 4.500", "order 3: 2.400", "lzma: 1.600"]
    assert list(lines["held out: 2.128"].get_ydata()) == [bits for _, bits in HELD_OUT]
    assert list(lines["order 3: 2.400"].get_ydata()) == [2.4, 2.4]


@pytest.mark.parametrize(("training", "held_out"), [(TRAINING, []), ([], HELD_OUT[:1])])
def test_parts_may_be_missing(tmp_path, training, held_out):
    pytest.importorskip("matplotlib")
    save_learning_curve(tmp_path / "curve.png", training, held_out, {})
    assert (tmp_path / "curve.png").stat().st_size > 1_000


def test_nothing_to_plot_and_nowhere_to_write_are_named_errors(tmp_path):
    with pytest.raises(PlotError, match="nothing to plot"):
        save_learning_curve(tmp_path / "curve.png", [], [], BASELINES)
    pytest.importorskip("matplotlib")
    with pytest.raises(PlotError, match=r"curve\.png cannot be written"):
        save_learning_curve(tmp_path / "missing" / "curve.png", TRAINING, HELD_OUT, BASELINES)


def test_without_matplotlib_the_error_names_the_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(PlotError, match=r"needs matplotlib, .* `demo` .* pip install matplotlib"):
        save_learning_curve(tmp_path / "curve.png", TRAINING, HELD_OUT, BASELINES)


def test_importing_does_not_load_matplotlib_and_drawing_does_not_load_pyplot(tmp_path):
    pytest.importorskip("matplotlib")
    script = (
        "import sys; from rnnops.cli.train import save_learning_curve\n"
        "assert 'matplotlib' not in sys.modules\n"
        "save_learning_curve(sys.argv[1], [(1, 2.0)], [], {})\n"
        "assert 'matplotlib.pyplot' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", script, str(tmp_path / "curve.png")], check=True)
