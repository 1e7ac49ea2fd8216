"""The text of a program, from a recipe: cells as people write them, the net around them, inputs and outputs.

`write_program(recipe)` gives a module's text that makes `net`. `form=` writes the same meaning in another way: how
recurrences are called (`FORMS`), and how lines are written (`style`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random

import axis_motifs
import gate_motifs  # noqa: F401 - its motifs
from cell_text import Feed, Value, Writer
from motif_list import MOTIFS
from recipe import Layer, Part, Recipe, State

assert axis_motifs
HEAD = "import numpy as np\n\nimport rnnops as ro\n"
FLAGS = ("mixes_rows", "mixes_steps", "draws", "counts_steps")
DTYPES = {"int": "int32", "lengths": "int32"}


@dataclass(frozen=True)
class Program:
    """A program's text, and what is known of it.

    Args:
        text: that makes `net`.
        feeds: how inputs are filled, by name.
        outputs: name -> axes, as of a feed ("TN", "N", "").
        mixes_rows, mixes_steps, draws, counts_steps: as of a writer.
        lengths, windows: whether rows end, whether a state sees several steps.
    """

    text: str
    feeds: dict[str, Feed]
    outputs: dict[str, str]
    mixes_rows: bool
    mixes_steps: bool
    draws: bool
    counts_steps: bool
    lengths: bool
    windows: bool


@dataclass
class Scan:
    """A recurrence that is about to be written.

    Args:
        name: of its cell; results are `last_<name>` and `every_<name>`.
        layer: what it is.
        sequences: (cell input, text) of each.
        starts: (state, text).
        bound: (parameter, text).
        results: names of what `every` holds.
        named: blobs of the cell that may be computed again.
    """

    name: str
    layer: Layer
    sequences: list[tuple[str, str]]
    starts: list[tuple[str, str]]
    bound: list[tuple[str, str]]
    results: list[str]
    named: list[str]
    timestep: str | None
    steps: int
    rows: int
    widths: dict[str, tuple[int, ...]]


def write_program(recipe: Recipe, style: Random | None = None, form: str = "plain") -> Program:
    """The text of a recipe.

    Args:
        recipe: what to write.
        style: draws among ways to write a line.
        form: how recurrences are called, a key of `FORMS`.
    """
    T, N, D = recipe.sizes
    r = Random(f"around {recipe.seed}")
    around = Writer((T, N), "", style, in_cell=False)
    around.inputs["x"] = Feed((T, N, D), axes="TN")
    around.value("x", (T, N, D))
    finals: list[Value] = []
    if any("i" in layer.sequences for layer in recipe.layers):
        around.inputs["ids"] = Feed((T, N), "int", recipe.classes, "TN")
        around.ints.append(("ids", recipe.classes))
    _apply(around, recipe.before)
    cells = []
    for place, layer in enumerate(recipe.layers):
        cell, scan = _write_layer(recipe, layer, "abc"[place], around, finals, style)
        cells.append(cell)
        around.lines += FORMS[form](scan)
    _apply(around, recipe.after)
    flags = {flag: any(getattr(one, flag) for one in (around, *cells)) for flag in FLAGS}
    outputs = _outputs(r, recipe, around, finals)
    text = _joined(around, outputs)
    windows = any(state.window > 1 for one in recipe.layers for state in one.states)
    lengths = any(one.lengths for one in recipe.layers)
    axes = {name: one for name, (_, one) in outputs.items()}
    return Program(text, around.inputs, axes, windows=windows, lengths=lengths, **flags)


def _apply(writer: Writer, parts: tuple[Part, ...]) -> None:
    for name, seed in parts:
        MOTIFS[name](writer, Random(seed))


def _joined(around: Writer, outputs: dict[str, tuple[str, str]]) -> str:
    inputs = [f"{name} = net.input({name!r}{_dtype(feed)})" for name, feed in around.inputs.items()]
    given = ", ".join(f"{name}={text}" for name, (text, _) in outputs.items())
    return "\n".join(
        [HEAD, *around.functions, 'net = ro.Net("n")', *inputs, *around.lines, f"net.outputs({given})", ""]
    )


def _dtype(feed: Feed) -> str:
    return f", {DTYPES[feed.kind]!r}" if feed.kind in DTYPES else ""


def _write_layer(
    recipe: Recipe, layer: Layer, name: str, around: Writer, finals: list[Value], style: Random | None
) -> tuple[Writer, Scan]:
    """Write the cell of a layer, and bind what it reads."""
    T, N, _ = recipe.sizes
    r = Random(f"layer {layer.seed}")
    cell = Writer((N,), name, style, step="t" if layer.timestep else None)
    sequences = _sequences(r, recipe, layer, around, cell)
    states = {f"{'hcs'[place]}": state for place, state in enumerate(layer.states)}
    for state, one in states.items():
        _enter_state(cell, state, one)
    if not cell.of_rank(1):
        k = recipe.sizes[2]
        cell.inputs[f"ctx{name}"] = Feed((N, k), axes="N")
        cell.value(f"ctx{name}", (N, k))
    _apply(cell, layer.motifs)
    if layer.lengths:
        around.inputs["lengths"] = Feed((N,), "lengths", T, "N")
    ends = {state: _end_state(cell, r, state, one) for state, one in states.items()}
    results = _cell_outputs(cell, r, layer)
    kinds = {key: "int32" for key, _ in sequences if key.startswith("i")}
    around.functions.append(_function(name, cell, sequences, list(states), {**ends, **results}, kinds))
    scan = Scan(
        name, layer, sequences, _starts(r, recipe, layer, states, around, finals), _bound(r, cell, around, finals),
        list(results) or list(states), cell.named, cell.step, T, N, {state: one.shape for state, one in states.items()},
    )  # fmt: skip
    _results(scan, r, states, results, cell, around, finals, T, N)
    return cell, scan


def _sequences(r: Random, recipe: Recipe, layer: Layer, around: Writer, cell: Writer) -> list[tuple[str, str]]:
    """(cell input, text around) of what a layer steps over, entered into its cell."""
    T, N, _ = recipe.sizes
    found = []
    for kind in layer.sequences:
        if kind == "i":
            cell.ints.append(("i", recipe.classes))
            found.append(("i", "ids"))
        elif kind == "m":
            around.inputs["flags"] = Feed((T, N), "flags", axes="TN")
            cell.flags.append("m")
            found.append(("m", "flags"))
        elif kind == "g":
            around.inputs["grid"] = Feed((T, N, 2, 3), axes="TN")
            cell.value("g", (N, 2, 3))
            found.append(("g", "grid"))
        else:
            known = around.of_rank(1)
            taken = known[0] if kind == "first" else known[-1]
            key = f"x{len(found)}"
            cell.data.append(cell.value(key, (N, taken.width), tame=taken.tame))
            found.append((key, str(taken)))
    return found


def _enter_state(cell: Writer, state: str, one: State) -> None:
    names = [state] if one.window == 1 else [f"{state}_{step}" for step in range(one.window)]
    for step, name in enumerate(names):
        if one.window > 1:
            cell.lines.append(f"{name} = {state}[{step}]")
        value = cell.value(name, (cell.rows, *one.shape), tame=True)
        if len(one.shape) == 1:
            cell.states.append(value)


def _end_state(cell: Writer, r: Random, state: str, one: State) -> str:
    """The text of a state's next value."""
    old = state if one.window == 1 else f"{state}_{one.window - 1}"
    if len(one.shape) == 1:
        new = axis_motifs.fitted(cell, r, one.shape[0])
        return r.choice(
            [f"{new}", f"{new}", f"0.6 * {new} + 0.4 * {old}", f"{new} + 0.5 * {old}", f"{new} - 0.5 * {old}"]
        )
    if not one.shape:
        a = cell.vector(r)
        return r.choice(
            [
                f"0.7 * {old} + np.tanh({a}.mean(axis=-1))",
                f"np.tanh({old} + {a}[:, 0])",
                f"np.maximum({old}, np.tanh({a}).max(axis=-1))",
            ]
        )
    return _end_matrix(cell, r, old, one)


def _end_matrix(cell: Writer, r: Random, old: str, one: State) -> str:
    shape = (cell.rows, *one.shape)
    known = [value for value in cell.of_rank(2) if value.shape == shape and str(value) != old]
    if known and r.random() < 0.7:
        return f"np.tanh({r.choice(known)})"
    k, v = cell.vector(r, one.shape[0]), cell.vector(r, one.shape[1])
    outer = cell.way(f"{k}[..., None] * {v}[:, None, :]", f"ro.einsum('nk,nv->nkv', {k}, {v})")
    return f"0.8 * {old} + np.tanh({outer})"


def _cell_outputs(cell: Writer, r: Random, layer: Layer) -> dict[str, str]:
    """Values that a step gives beside states: any, intermediate ones too."""
    choices = [one for one in cell.values if one.lead == 1]
    return {f"out{place}": str(r.choice(choices)) for place in range(layer.outputs)}


def _function(
    name: str, cell: Writer, sequences: list[tuple[str, str]], states: list[str], returned: dict[str, str],
    kinds: dict[str, str],
) -> str:  # fmt: skip
    arguments = [key for key, _ in sequences] + states
    parameters = [*cell.inputs, *([cell.step] if cell.step else [])]
    options = [f"timestep={cell.step!r}"] if cell.step else []
    options += [f"dtypes={kinds}"] if kinds else []
    given = f"({', '.join(options)})" if options else ""
    star = ["*", *parameters] if parameters else []
    result = ", ".join(f"{key}={text}" for key, text in returned.items())
    head = f"@ro.cell{given}\ndef cell_{name}({', '.join([*arguments, *star])}):"
    return "\n".join([*cell.functions, head, *(f"    {one}" for one in cell.lines), f"    return dict({result})", ""])


def _starts(
    r: Random, recipe: Recipe, layer: Layer, states: dict[str, State], around: Writer, finals: list[Value]
) -> list[tuple[str, str]]:
    """(state, text) of where states start."""
    N = recipe.sizes[1]
    found: list[tuple[str, str]] = []
    shapes: list[tuple[int, ...]] = []
    for state, one in states.items():
        full = (N, *one.shape)
        earlier = [text for (_, text), shape in zip(found, shapes, strict=True) if shape == one.shape]
        last = [value for value in finals if value.shape == full]
        name = around.fresh(f"{state}0_")
        if one.start == "tied" and earlier:
            text = earlier[-1]
        elif one.start == "last" and last:
            text = str(r.choice(last))
        elif one.start == "zeros":
            text = f"np.zeros({full})"
        elif one.start == "features":
            around.inputs[name] = Feed(one.shape, scale=0.5)
            text = name
        else:
            shape = (one.window, *full) if one.window > 1 else full
            around.inputs[name] = Feed(shape, scale=0.5, axes=".N" if one.window > 1 else "N")
            text = f"np.tanh({name})" if one.start == "made" else name
        found.append((state, text))
        shapes.append(one.shape if one.start != "features" and one.window == 1 else (-1,))
    if not layer.sequences and all(
        text.startswith("np.zeros") or one.start == "features"
        for (_, text), one in zip(found, states.values(), strict=True)
    ):
        state, one = next(iter(states.items()))
        name = around.fresh(f"{state}0_")
        around.inputs[name] = Feed((N, *one.shape), scale=0.5, axes="N")
        found[0] = (state, name)
    return found


def _bound(r: Random, cell: Writer, around: Writer, finals: list[Value]) -> list[tuple[str, str]]:
    """(parameter, text): inputs of the net, some of them shared with other layers, or what other layers gave."""
    found = []
    for name, feed in cell.inputs.items():
        same = [one for one, other in around.inputs.items() if other == feed and one != "x"]
        steps = [
            one
            for one in around.of_rank(1)
            if feed.axes == ".N" and one.shape[0] >= feed.shape[0] and one.width == feed.shape[-1]
        ]
        last = [one for one in finals if feed.axes == "N" and one.shape == feed.shape]
        if steps and r.random() < 0.5:
            found.append((name, f"{r.choice(steps)}[: {feed.shape[0]}]"))
        elif last and r.random() < 0.5:
            found.append((name, str(r.choice(last))))
        elif same and r.random() < 0.3:
            found.append((name, r.choice(same)))
        else:
            around.inputs[name] = feed
            found.append((name, f"np.tanh({name})" if r.random() < 0.06 else name))
    return found


def _results(
    scan: Scan, r: Random, states: dict[str, State], results: dict[str, str], cell: Writer, around: Writer,
    finals: list[Value], T: int, N: int,
) -> None:  # fmt: skip
    """Enter what a scan gives into what is around."""
    for state, one in states.items():
        made = Value([f"last_{scan.name}[{state!r}]"], (N, *one.shape), 1, True, around.style)
        finals.append(made)
    if r.random() < 0.3:
        wide = [key for key in scan.results if key in states and len(states[key].shape) == 1]
        for key in wide[:1]:
            mean = f"every_{scan.name}[{key!r}].mean(axis=0)"
            finals.append(Value([mean], (N, *states[key].shape), 1, True, around.style))
            around.mixes_steps = True
    by_text = {text: value for value in cell.values for text in value.names}
    for key in scan.results:
        if key in results:
            shape, tame = by_text[results[key]].shape, by_text[results[key]].tame
        else:
            shape, tame = (N, *states[key].shape), True
        around.value(f"every_{scan.name}[{key!r}]", (T, *shape), tame=tame)


def _outputs(r: Random, recipe: Recipe, around: Writer, finals: list[Value]) -> dict[str, tuple[str, str]]:
    """Outputs: what is around, sums and losses of it, last states; each as text, and its axes as of a feed."""
    found: list[tuple[str, str]] = []
    for value in [one for one in reversed(around.values) if one.names[0] != "x"]:
        last = "TN" if len(value.shape) > 2 else "T"
        forms = [(f"{value}.sum(axis=0)", "N"), (f"{value}.mean(axis=-1)", last), (f"({value} ** 2.0).mean()", "")]
        found.append(r.choice([(f"{value}", "TN")] * 3 + forms))
    for value in finals:
        found.append(r.choice([(f"{value}", "N")] * 2 + [(f"np.tanh({value}).sum()", "")]))
    chosen = found[:1] + r.sample(found[1:], min(len(found) - 1, recipe.outputs - 1))
    return {f"o{place}": one for place, one in enumerate(chosen)}


def _call(
    scan: Scan, name: str, sequences: list[tuple[str, str]], starts: list[tuple[str, str]], steps: int, **options: str
) -> str:
    given = [f"{key}={text}" for key, text in (*sequences, *starts, *scan.bound)]
    if not sequences:
        given.append(f"steps={steps}")
    shapes = {state: list(shape) for state, shape in scan.widths.items() if len(shape) != 1}
    extra = {"scope": repr(name), **({"state_shapes": repr(shapes)} if shapes else {})}
    if scan.layer.recompute and scan.named:
        extra["recompute"] = repr(scan.named)
    if scan.layer.reverse:
        extra["reverse"] = "True"
    extra.update(options)
    given += [f"{key}={text}" for key, text in extra.items() if text]
    return f"last_{name}, every_{name} = ro.scan(cell_{scan.name}, {', '.join(given)})"


def _lengths(scan: Scan) -> str:
    return "lengths" if scan.layer.lengths else ""


def plain(scan: Scan) -> list[str]:
    """`ro.scan`, or `ro.recurrent_net` where a state sees several steps."""
    if any(state.window > 1 for state in scan.layer.states):
        return _as_net(scan)
    return [_call(scan, scan.name, scan.sequences, scan.starts, scan.steps, lengths=_lengths(scan))]


def _as_net(scan: Scan) -> list[str]:
    windows = {key: state.window for (key, _), state in zip(scan.starts, scan.layer.states, strict=True)}
    links = ", ".join(f"{key!r}: ro.Link({key!r}, window={windows[key]})" for key, _ in scan.starts)
    pairs = [", ".join(f"({key!r}, {_blob_of(text)})" for key, text in part) for part in (scan.sequences, scan.starts)]
    references = ", ".join(f"{key!r}: {text}" for key, text in scan.bound)
    shapes = {state: list(shape) for state, shape in scan.widths.items() if len(shape) != 1}
    extra = f", steps={scan.steps}" if not scan.sequences else ""
    extra += f", recompute_blobs_on_backward={scan.named}" if scan.layer.recompute and scan.named else ""
    extra += ", reverse=True" if scan.layer.reverse else ""
    extra += f", timestep={scan.timestep!r}" if scan.timestep else ""
    name = scan.name
    call = (
        f"results_{name} = ro.recurrent_net(net, cell_{name}.net, [{pairs[0]}], [{pairs[1]}], {{{links}}}, "
        f"scope={name!r}, references={{{references}}}, state_shapes={shapes or None}{extra})"
    )
    keys = list(dict.fromkeys([key for key, _ in scan.starts] + scan.results))
    states = keys[: len(scan.starts)]
    return [
        call,
        f"every_{name} = dict(zip({keys}, results_{name}[::2]))",
        f"last_{name} = {{key: ro.squeeze(one, [0]) for key, one in zip({states}, results_{name}[1::2])}}",
    ]


def _blob_of(text: str) -> str:
    return f"ro.constant(net, {text}, 'float')" if text.startswith("np.zeros") else text


def split(scan: Scan) -> list[str]:
    """The first steps, and the others from the states that these end with; in reverse the last steps come first."""
    cut = max(1, scan.steps // 2)
    first, second = f"[:{cut}]", f"[{cut}:]"
    ends = ("lengths", f"lengths - {cut}") if scan.layer.lengths else ("", "")
    order = [(f"{scan.name}1", first, cut, ends[0]), (f"{scan.name}2", second, scan.steps - cut, ends[1])]
    if scan.layer.reverse:
        order.reverse()
    lines, starts = [], scan.starts
    for name, part, steps, lengths in order:
        lines.append(
            _call(scan, name, [(key, f"{text}{part}") for key, text in scan.sequences], starts, steps, lengths=lengths)
        )
        starts = [(key, f"last_{name}[{key!r}]") for key, _ in scan.starts]
    joined = (
        f"{{key: ro.concat(every_{scan.name}1[key], every_{scan.name}2[key], axis=0) for key in every_{scan.name}1}}"
    )
    return [*lines, f"last_{scan.name}, every_{scan.name} = last_{order[1][0]}, {joined}"]


def unrolled(scan: Scan) -> list[str]:
    """The step called for each step."""
    lines, name = [], scan.name
    full = {key: f"np.zeros({(scan.rows, *scan.widths[key])}) + {_blob_of(text)}" for key, text in scan.starts}
    lines.append(f"last_{name}, every_{name} = {{{', '.join(f'{key!r}: {text}' for key, text in full.items())}}}, {{}}")
    for step in range(scan.steps)[:: -1 if scan.layer.reverse else 1]:
        given = [f"{key}={text}[{step}]" for key, text in scan.sequences]
        given += [f"{key}=last_{name}[{key!r}]" for key, _ in scan.starts]
        given += [f"{key}={text}" for key, text in scan.bound]
        given += [f"{scan.timestep}=ro.constant(net, [{step}], 'int32')"] if scan.timestep else []
        with_scope = f"with ro.name_scope('{name}_step{step}'):"
        lines.append(f"{with_scope}\n    given_{name} = cell_{name}({', '.join(given)})")
        lines.append(f"last_{name} = {{key: given_{name}[key] for key in last_{name}}}")
        lines.append(f"every_{name}[{step}] = given_{name}")
    steps = ", ".join(f"every_{name}[{step}][key]" for step in range(scan.steps))
    lines.append(f"every_{name} = {{key: np.stack([{steps}]) for key in {scan.results}}}")
    return lines


def flipped(scan: Scan) -> list[str]:
    """From the other end, over sequences that are turned."""
    name = scan.name
    turned = [(key, f"{text}[::-1]") for key, text in scan.sequences]
    reverse = "" if scan.layer.reverse else "True"
    call = _call(scan, name, turned, scan.starts, scan.steps, reverse=reverse)
    return [call, f"every_{name} = {{key: one[::-1] for key, one in every_{name}.items()}}"]


def padded(scan: Scan) -> list[str]:
    """With two steps more, past the ends of all rows."""
    name = scan.name
    more = [(key, f"np.concatenate([{text}, {text}[:1], {text}[-1:]], axis=0)") for key, text in scan.sequences]
    lengths = _lengths(scan) or f"np.full({scan.rows}, {scan.steps}, 'int32')"
    call = _call(scan, name, more, scan.starts, scan.steps + 2, lengths=lengths)
    return [call, f"every_{name} = {{key: one[: {scan.steps}] for key, one in every_{name}.items()}}"]


def doubled(scan: Scan) -> list[str]:
    """Twice, with parameters that are the same and written otherwise; half of each."""
    name = scan.name
    twice = replace(scan, bound=[(key, f"1.0 * {text}") for key, text in scan.bound])
    lines = [
        *plain(scan),
        *(
            line
            for line in [_call(twice, f"{name}2", twice.sequences, twice.starts, twice.steps, lengths=_lengths(scan))]
        ),
    ]
    for kind in ("last", "every"):
        lines.append(
            f"{kind}_{name} = {{key: 0.5 * one + 0.5 * {kind}_{name}2[key] for key, one in {kind}_{name}.items()}}"
        )
    return lines


def as_net(scan: Scan) -> list[str]:
    """`ro.recurrent_net` of the cell as a net."""
    return _as_net(scan)


FORMS: dict[str, Callable[[Scan], list[str]]] = {
    "plain": plain, "split": split, "unrolled": unrolled, "flipped": flipped, "padded": padded, "doubled": doubled,
    "as_net": as_net,
}  # fmt: skip


def fits(form: str, program: Program, recipe: Recipe) -> bool:
    """Whether a program may be written in a form: what it is and what it draws would else be another."""
    T = recipe.sizes[0]
    if form == "as_net":
        return not program.windows and not program.lengths
    return not (
        program.windows
        or program.draws
        or (form in ("split", "flipped") and program.counts_steps)
        or (form == "split" and T < 2)
        or (form in ("flipped", "unrolled") and program.lengths)
        or (form == "unrolled" and T > 3)
    )
