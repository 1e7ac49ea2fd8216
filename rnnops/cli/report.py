"""What `rnnops train` prints on standard output."""

from __future__ import annotations

import sys
from collections.abc import Mapping

from rnnops.cli.corpus import Corpus
from rnnops.cli.evaluate import Score
from rnnops.cli.session import Session

OWN_NAME, ROUNDED_NAME = "this model", "this model, int8"


def show(text: str) -> None:
    """Print a text; characters that the terminal's encoding does not have become question marks."""
    encoding = sys.stdout.encoding or "utf-8"
    print(text.encode(encoding, "replace").decode(encoding), flush=True)


def print_text(corpus: Corpus) -> None:
    """Say what is trained on."""
    show(f"text: {corpus.source}")
    sizes = f"{len(corpus.train):,} to train on, {len(corpus.held_out):,} held out, {len(corpus.alphabet)} different"
    show(f"characters: {sizes}")


def print_model(session: Session) -> None:
    """Say what is trained."""
    step = session.trainer.model.step_count
    show(f"model: {model_text(session)}, {parameter_count(session):,} parameters")
    if step:
        show(f"resumed: step {step:,}, {session.trainer.characters:,} characters seen")


def print_training(session: Session, reason: str) -> None:
    """Say what was done."""
    trainer, compiling = session.trainer, session.compiling.seconds
    characters, seconds = trainer.characters, trainer.state.seconds
    timed = characters - (trainer.streams.characters_per_window if compiling else 0)
    rate = f", {timed / seconds:,.0f} characters a second" if timed and seconds else ""
    compiled = f"; compiling, with the first step, took {compiling:.1f} s" if compiling else ""
    steps = trainer.model.step_count
    show(f"stopped {reason}: {steps:,} steps, {characters:,} characters in {seconds:.1f} s{rate}{compiled}")
    if session.target is not None:
        show(f"saved: {session.target}")


def print_held_out(score: Score, tables: Mapping[str, float], rounded: Score | None = None) -> None:
    """Print the model's bits per held-out character among those of tables and compressors, worst first.

    Args:
        rounded: of the model with weights of int8.
    """
    show(f"\nbits per held-out character ({score.characters:,} characters)")
    own = {OWN_NAME: score.bits} | ({ROUNDED_NAME: rounded.bits} if rounded else {})
    digits = 4 if rounded else 3  # as these two differ in the fourth
    rows = sorted({**tables, **own}.items(), key=lambda row: -row[1])
    for name, bits in rows:
        kind = " characters" if name.startswith("order") else ""
        show(f"  {name + kind:<20}{bits:{digits + 4}.{digits}f}{'  <--' if name in own else ''}")


def print_sample(text: str, temperature: float) -> None:
    """Print generated text."""
    show(f"\nsample of {len(text):,} characters at temperature {temperature:g}:\n{text}")


def model_text(session: Session) -> str:
    """`gru, 2 layers of 128`, and what products are rounded to, where they are."""
    settings = session.settings
    products = "" if settings.precision == "float32" else f", products of {settings.precision}"
    layers = "1 layer" if settings.layers == 1 else f"{settings.layers} layers"
    return f"{settings.cell}, {layers} of {settings.hidden}{products}"


def parameter_count(session: Session) -> int:
    return sum(array.size for array in session.trainer.model.arrays.values())
