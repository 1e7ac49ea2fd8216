"""Draw the pictures of docs/pictures.md: `python tools/draw_docs.py` writes them to docs/pictures.

Bytes of packed weights depend on the processor that plans are made for, and so do some numbers in the pictures.
"""

from __future__ import annotations

from pathlib import Path

import rnnops as ro
from rnnops.pictures.svg import Picture

FOLDER = Path(__file__).parent.parent / "docs" / "pictures"
T, N, D, H, LABELS = 100, 16, 32, 64, 50


def tagger() -> ro.Net:
    """An LSTM with a label for each step."""
    net = ro.Net("tagger")
    h_all, *_ = ro.LSTM(net, net.input("x"), None, None, D, H, scope="lstm")
    scores = ro.reshape(h_all, [-1, H]) @ net.parameter("w", (H, LABELS), ("xavier", H))
    net.outputs(loss=ro.softmax_cross_entropy_loss(scores, ro.reshape(net.input("labels", "int32"), [-1])))
    return net


def pictures() -> dict[str, Picture]:
    """Name of a file -> what is drawn."""
    run = ro.compile(tagger(), threads=2)
    shapes = {"x": (T, N, D), "labels": (T, N)}
    plan = run.plan(shapes)
    return {
        "net": plan.draw_net(),
        "schedule": plan.draw(),
        "memory": plan.memory_curve(),
        "budget": run.budget_curve(shapes),
    }


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, picture in pictures().items():
        picture.save(FOLDER / f"{name}.svg")
        print(f"wrote {FOLDER / name}.svg: {picture.text.splitlines()[0]}")
