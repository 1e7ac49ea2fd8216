"""A seed as a check, and what is printed of one that fails."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from program_runs import TUNED, feeds_of, net_of, with_gradients, wrt_of
from program_text import write_program
from recipe import Recipe, draw_recipe
from shrink_recipe import shrink
from verdicts import BESIDE, RELATIONS, Verdict, draw_relation, examine

Tried = tuple[str, Verdict, Recipe]


def try_seed(seed: int, small: bool = False, every: int = 3) -> Iterator[Tried]:
    """What a seed gives beside the reference, and, each so many seeds, under a relation."""
    recipe = draw_recipe(seed, small)
    yield BESIDE, examine(recipe), recipe
    if every and seed % every == 0:
        name, verdict = draw_relation(recipe, seed)
        yield name, verdict, replace(recipe, dtype="float64")


def report(seed: int, name: str, verdict: Verdict, recipe: Recipe, smallest: bool = True) -> str:
    """A failure: its seed, what differs, and a program that shows it."""
    head = f"FAILURE seed {seed}, {name}: {verdict.kind}, {verdict.detail}"
    if smallest:
        recipe = shrink(recipe, lambda smaller: fails(smaller, name, seed, verdict.kind))
        verdict = examine(recipe, name, seed)
        head += f"\n# made smaller: {verdict.detail}"
    return f"{head}\n{script(recipe, name, verdict)}\n# as a net:\n{_commented(str(net_of(write_program(recipe))))}"


def fails(recipe: Recipe, name: str, seed: int, kind: str) -> bool:
    """Whether a recipe fails in the same way; one that cannot be written does not."""
    try:
        return examine(recipe, name, seed).kind == kind
    except Exception:
        return False


SCRIPT = """
shapes = {shapes}
scales = {scales}
r = np.random.default_rng({seed})
feeds = {{name: np.asarray(scales[name] * r.normal(size=shape)) for name, shape in shapes.items()}}
feeds |= {{name: r.integers(0, high + 1, shape).astype(dtype) for name, (shape, high, dtype) in {integers}.items()}}
g, out, grads = {{}}, {{}}, {{}}
for device in ("reference", "cpu"):
    run = ro.compile(net, device=device, **(options if device == "cpu" else {{}}))
    out[device], pullback = run.vjp(feeds, seed=7, wrt={wrt})
    g = g or {{name: r.normal(size=one.shape) for name, one in out[device].items() if name in {some}}}
    grads[device] = pullback(g)
pairs = [(name, one, results["reference"][name]) for results in (out, grads) for name, one in results["cpu"].items()]
off = {{name: abs(one - other).max() for name, one, other in pairs}}
told = ", ".join(f"{{name}} {{one:.1e}}" for name, one in off.items())
print(f"cpu beside reference, results differ by at most {{told}}")
sys.exit(not max(off.values()) < 1e-9)
"""


def script(recipe: Recipe, name: str, verdict: Verdict) -> str:
    """A program that stands alone, which exits with 1 while it fails; for relations, the two texts."""
    program = write_program(recipe)
    if name in RELATIONS:
        return f"# relation {name}, {recipe}\n{program.text}\n# beside\n{_commented(verdict.text)}"
    floats = {key: feed for key, feed in program.feeds.items() if feed.kind == "normal"}
    others = {
        key: (feed.shape, int(feed.scale) - (feed.kind == "int"), "float64" if feed.kind == "flags" else "int32")
        for key, feed in program.feeds.items()
        if feed.kind != "normal"
    }
    body = SCRIPT.format(
        shapes={key: feed.shape for key, feed in floats.items()},
        scales={key: feed.scale for key, feed in floats.items()},
        seed=recipe.seed,
        integers=others,
        wrt=wrt_of(net_of(program), feeds_of(program, recipe), recipe),
        some=with_gradients(list(program.outputs), recipe),
    )
    return f"# {recipe}\nimport sys\n{program.text}{_options_text(recipe)}{body}"


def _options_text(recipe: Recipe) -> str:
    """The options of `compile`, as text that makes them."""
    options = {key: value for key, value in recipe.options if key not in ("wrt", "some_gradients")}
    tuned = {key: options.pop(key) for key in TUNED if key in options}
    text = f"options = {options}\n"
    if tuned:
        text += "from rnnops.compiler.run.compiled_scan import Options\n"
        text += f"options['tuning'] = Options(threads={options.get('threads', 1)}, **{tuned})\n"
    return text


def _commented(text: str) -> str:
    return "\n".join(f"# {line}" for line in text.splitlines())
