"""Models of loops over time that an exporter has unrolled, as texts, and random ones."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

STEPS = 6
READS = {
    "gather": "k{t} = Constant <value_int = {t}> () x{t} = Gather (x, k{t})",
    "axis kept": "k{t} = Constant <value_ints = [{t}]> () g{t} = Gather (x, k{t}) x{t} = Squeeze (g{t}, zero)",
    "slice": """a{t} = Constant <value_ints = [{t}]> () b{t} = Constant <value_ints = [{next}]> ()
        s{t} = Slice (x, a{t}, b{t}, zero) x{t} = Squeeze (s{t}, zero)""",
    "split": "x{t} = Squeeze (part{t}, zero)",
    "sequence": "k{t} = Constant <value_int = {t}> () x{t} = SequenceAt (parts, k{t})",
    "parts": "k{t} = Constant <value_int = {t}> () e{t} = SequenceAt (parts, k{t}) x{t} = Squeeze (e{t}, zero)",
}
BEFORE = {
    "split": f"{', '.join(f'part{t}' for t in range(STEPS))} = Split <axis = 0> (x)",
    "sequence": "parts = SplitToSequence <axis = 0, keepdims = 0> (x)",
    "parts": "size = Constant <value_int = 1> () parts = SplitToSequence <axis = 0> (x, size)",
}
TANH = """m{t} = MatMul (x{t}, w) r{t} = MatMul ({before}, u) q{t} = Add (m{t}, r{t}) p{t} = Add (q{t}, b)
    h{t} = Tanh (p{t})"""
STACK = "{all} = Concat <axis = {axis}> ({names})"


def numbers(name: str, *shape: int) -> str:
    """An initializer, other numbers for each name."""
    values = np.random.default_rng(sum(map(ord, name))).uniform(-0.7, 0.7, int(np.prod(shape)))
    return f"float{list(shape)} {name} = {{{', '.join(f'{value:.4f}' for value in values)}}}"


WEIGHTS = ", ".join([numbers("w", 2, 3), numbers("u", 3, 3), numbers("b", 3)])


def model(nodes: str, results: str, inputs: str = "float[6, N, 2] x, float[N, 3] h", more: str = "") -> str:
    """The text of a model that has nodes after those that all have."""
    zero = "zero = Constant <value_ints = [0]> () one = Constant <value_ints = [1]> ()"
    return f"({inputs}) => ({results}) <{WEIGHTS}{more}> {{ {zero} {nodes} }}"


def steps(order: Iterable[int] = range(STEPS), step: str = TANH, read: str = "gather", first: str = "h") -> str:
    """The nodes of a loop; h0 is what the step at place 0 makes."""
    nodes, before = [BEFORE.get(read, "")], first
    for t in order:
        nodes += [READS[read].format(t=t, next=t + 1), step.format(t=t, before=before)]
        before = f"h{t}"
    return " ".join(nodes)


def stacked(order: Iterable[int] = range(STEPS), name: str = "y", of: str = "h", axis: int = 0) -> str:
    """All steps as one array."""
    lines = [f"{of}s{t} = Unsqueeze ({of}{t}, {'one' if axis else 'zero'})" for t in order]
    return " ".join([*lines, STACK.format(all=name, axis=axis, names=", ".join(f"{of}s{t}" for t in order))])


BACK = tuple(reversed(range(STEPS)))
EACH = "w{t} = Identity (w)"
LSTM = """m{t} = MatMul (x{t}, w) r{t} = MatMul ({before}, u) q{t} = Add (m{t}, r{t}) f{t} = Sigmoid (q{t})
    g{t} = Tanh (q{t}) d{t} = Mul (f{t}, {cell}) e{t} = Sub (g{t}, d{t}) c{t} = Add (e{t}, b) h{t} = Mul (f{t}, c{t})"""
ALIKE = """m{t} = MatMul (x{t}, w) q{t} = Add ({before}, {cell}) p{t} = Add (q{t}, m{t}) h{t} = Tanh (p{t})
    d{t} = Add ({before}, h) e{t} = Add (d{t}, m{t}) c{t} = Tanh (e{t})"""
BARE = """m{t} = MatMul (x{t}, w) p{t} = Add (m{t}, {before}) h{t} = Tanh (p{t}) q{t} = Mul (m{t}, {cell})
    c{t} = Sin (q{t})"""
ALL = "float[6, N, 3] y"
SECOND = TANH.replace("x{t}", "h{t}").replace("MatMul (h{t}, w)", "MatMul (h{t}, u)")
for letter in "mrqp":
    SECOND = SECOND.replace(f"{letter}{{t}}", f"{letter}{letter}{{t}}")
SECOND = SECOND.replace("h{t} = Tanh", "z{t} = Tanh")


def with_second_state(step: str, swapped: int = -1) -> str:
    """A cell with two states, which change places before one of the steps."""
    befores = [("h", "h"), *((f"h{t}", f"c{t}") for t in range(STEPS))]
    befores[swapped] = befores[swapped][::-1]
    return " ".join(steps((t,), step.replace("{cell}", befores[t][1]), first=befores[t][0]) for t in range(STEPS))


def two_layers(step: str = SECOND) -> str:
    """The second layer reads the steps of the first, in the order of the array."""
    lines, before = [], "h"
    for t in range(STEPS):
        lines.append(step.format(t=t, before=before))
        before = f"z{t}"
    return " ".join([steps(), *lines])


TWIN = numbers("u", 3, 3).replace(" u ", " v ")
COPIES = ", ".join(numbers("w", 2, 3).replace(" w ", f" w{t} ") for t in range(STEPS))
FOUR = ", ".join(numbers("w", 2, 3).replace(" w ", f" w{i} ") for i in range(4))
OF_FOUR = """a{t} = MatMul (x{t}, w0) e{t} = MatMul (x{t}, w1) c{t} = MatMul (x{t}, w2) d{t} = MatMul (x{t}, w3)
    m{t} = Sum (a{t}, e{t}, c{t}, d{t}) r{t} = MatMul ({before}, u) q{t} = Add (m{t}, r{t}) h{t} = Tanh (q{t})"""
ZEROS = ", ".join(f"float[3] b{i} = {{0.0, 0.0, 0.0}}" for i in range(2))
OF_TWO = "p{t} = Add (q{t}, b0) z{t} = Tanh (p{t}) g{t} = Add (z{t}, b1) h{t} = Tanh (g{t})"
OF_TWO = TANH[: TANH.index("p{t}")] + OF_TWO
PARTS = f"{', '.join(f'part{t}' for t in range(STEPS))} = Split <axis = 0> (x, sizes)"
SIZES = "sizes = Constant <value_ints = [{}]> () "
OF_PARTS = TANH.replace(
    "m{t} = MatMul (x{t}, w)", "x{t} = ReduceSum <keepdims = 0> (part{t}, zero) m{t} = MatMul (x{t}, w)"
)
OWN = ", ".join(numbers(f"w{t}", 2, 3) for t in range(STEPS))
FILLED = ", ".join(f"float[3] b{t} = {{0.5, 0.5, 0.5}}" for t in range(STEPS))
FOLDED = TANH.replace("r{t} = MatMul ({before}, u) q{t} = Add (m{t}, r{t})", "q{t} = Identity (m{t})")

ROLLED = {
    **{f"read by {name}": model(steps(read=name) + stacked(), ALL) for name in READS},
    "backwards": model(steps(BACK) + stacked(), ALL),
    "backwards, stacked so": model(steps(BACK) + stacked(BACK), ALL),
    "rows first": model(steps() + stacked(axis=1), "float[N, 6, 3] y"),
    "the last": model(steps(), "float[N, 3] h5"),
    "all, the last and one": model(steps() + stacked() + "v = Exp (h2)", f"{ALL}, float[N, 3] h5, float[N, 3] v"),
    "not in order": model(steps() + "y = Concat <axis = 0> (h5, h1, h0)", "float y"),
    "weights of one step that are equal": model(steps(step=OF_FOUR) + stacked(), ALL, more=f", {FOUR}"),
    "biases of zeros": model(steps(step=OF_TWO) + stacked(), ALL, more=f", {ZEROS}"),
    "parts of one place": model(
        SIZES.format("1, 1, 1, 1, 1, 1") + PARTS + steps(read="split").replace(BEFORE["split"], "") + stacked(), ALL
    ),
    "a turned weight": model(steps(step="v{t} = Transpose (u) " + TANH.replace("u)", "v{t})")) + stacked(), ALL),
    "states that only x meets": model(
        with_second_state(BARE) + stacked() + stacked(name="z", of="c"), f"{ALL}, float[6, N, 3] z"
    ),
    "two states": model(with_second_state(LSTM) + stacked(), f"{ALL}, float[N, 3] c5"),
    "states that are equal in the first step": model(with_second_state(ALIKE) + stacked(), f"{ALL}, float[N, 3] c5"),
    "another first step": model(steps((0,), FOLDED) + steps(range(1, 6), first="h0") + stacked(), ALL),
    "a first value that is repeated": model(steps() + stacked(), ALL, "float[6, N, 2] x, float[1, 3] h"),
    "an open size": model(steps() + stacked(), ALL, "float[T, N, 2] x, float[N, 3] h"),
    "two layers at once": model(two_layers() + stacked(of="z"), ALL),
    "two layers that begin with the same weights": model(
        two_layers(SECOND.replace("u)", "v)")) + stacked(of="z"), ALL, more=f", {TWIN}"
    ),
    "a result of each step": model(steps(step=TANH + " y{t} = MatMul (h{t}, u)") + stacked(of="y"), ALL),
    "a number for each step": model(
        steps(
            step="n{t} = Gather (s, k{t}) "
            + TANH.replace("h{t} = Tanh (p{t})", "o{t} = Tanh (p{t}) h{t} = Mul (o{t}, n{t})")
        )
        + stacked(),
        ALL,
        "float[6, N, 2] x, float[N, 3] h, float[6] s",
    ),
    "an axis of size 1": model(
        "h1 = Unsqueeze (h, zero) ".replace("h1", "start")
        + steps(first="start")
        + "y = Concat <axis = 0> (h0, h1, h2, h3, h4, h5)",
        ALL,
    ),
}
LEFT = {
    "weights of each step that are equal": model(
        steps(step=TANH.replace(", w)", ", w{t})")) + stacked(), ALL, more=f", {COPIES}"
    ),
    "parts of several places": model(
        SIZES.format("2, 1, 1, 1, 1, 0")
        + PARTS
        + " ".join(OF_PARTS.format(t=t, before=f"h{t - 1}" if t else "h") for t in range(STEPS))
        + stacked(),
        ALL,
    ),
    "parts of two places": model(
        SIZES.format("2, 2, 2, 2, 2, 2")
        + PARTS
        + " ".join(OF_PARTS.format(t=t, before=f"h{t - 1}" if t else "h") for t in range(STEPS))
        + stacked(),
        ALL,
        "float[12, N, 2] x, float[N, 3] h",
    ),
    "other weights": model(steps(step=TANH.replace(", w)", ", w{t})")) + stacked(), ALL, more=f", {OWN}"),
    "equal fillings": model(steps(step=TANH.replace(", b)", ", b{t})")) + stacked(), ALL, more=f", {FILLED}"),
    "three steps": model(steps(range(3)), "float[N, 3] h2", "float[3, N, 2] x, float[N, 3] h"),
    "another step in the middle": model(
        steps(range(2))
        + steps((2,), TANH.replace("Tanh", "Sin"), first="h1")
        + steps(range(3, 6), first="h2")
        + stacked(),
        ALL,
    ),
    "states that change places": model(with_second_state(BARE, swapped=4) + stacked(), ALL),
    "a step that reads another one": model(
        steps(range(4), BARE.replace("{cell}", "b"))
        + steps((4, 5), BARE.replace("{cell}", "b"), first="h2")
        + stacked(),
        ALL,
    ),
    "all steps so far": model(
        " ".join(
            steps((t,), "s{t} = Sum (" + ", ".join(["h", *(f"h{i}" for i in range(t))]) + ") " + TANH, first=f"s{t}")
            for t in range(STEPS)
        )
        + stacked(),
        ALL,
    ),
    "no state": model(steps(step="h{t} = MatMul (x{t}, w)") + stacked(), ALL),
    "random numbers": model(
        steps(
            step=TANH.replace("Tanh (p{t})", "Bernoulli <seed = 1.0> (o{t})").replace(
                "h{t} =", "o{t} = Sigmoid (p{t}) h{t} ="
            )
        )
        + stacked(),
        ALL,
    ),
}
# others that may be rolled up as far as they go, or stay
EITHER = {
    "another last step": model(steps(range(5)) + steps((5,), TANH.replace("Tanh", "Sin"), first="h4") + stacked(), ALL),
    "two steps back": model(
        " ".join(
            steps(
                (t,),
                TANH.replace("q{t}, b", f"q{{t}}, {f'h{t - 2}' if t > 1 else 'h'}"),
                first=f"h{t - 1}" if t else "h",
            )
            for t in range(STEPS)
        )
        + stacked(),
        ALL,
    ),
}

ONE = ("Tanh", "Sigmoid", "Sin", "Neg", "Identity")
TWO = ("Add", "Sub", "Mul")


def random_model(random: np.random.Generator) -> str:
    """A loop of a random cell: one to three states, in either direction, read and stacked in some way."""
    count, read = int(random.integers(1, 4)), str(random.choice(list(READS)))
    order = list(range(STEPS)) if random.integers(2) else list(BACK)
    lines, known = ["i0_{t} = MatMul (x{t}, w)"], ["i0_{t}", *(f"{{s{i}}}" for i in range(count))]
    for k in range(1, int(random.integers(4, 12))):
        one, other = random.choice(known, 2)
        kind = random.integers(3)
        if kind == 0:
            lines.append(f"i{k}_{{t}} = {random.choice(ONE)} ({one})")
        elif kind == 1:
            lines.append(f"i{k}_{{t}} = MatMul ({one}, u)")
        else:
            lines.append(f"i{k}_{{t}} = {random.choice(TWO)} ({one}, {other})")
        known.append(f"i{k}_{{t}}")
    for i in range(count):  # each state follows from itself, x and something else
        lines.append(f"o{i}_{{t}} = Add ({{s{i}}}, {random.choice(known)}) p{i}_{{t}} = Sub (o{i}_{{t}}, i0_{{t}})")
        lines.append(f"h{i}_{{t}} = Tanh (p{i}_{{t}})")
    nodes, states = [BEFORE.get(read, "")], {f"s{i}": "h" for i in range(count)}
    for t in order:
        nodes += [READS[read].format(t=t, next=t + 1), *(line.format(t=t, **states) for line in lines)]
        states = {f"s{i}": f"h{i}_{t}" for i in range(count)}
    nodes += [
        stacked(order if random.integers(2) else range(STEPS), f"y{i}", f"h{i}_", int(random.integers(2)))
        for i in range(count)
    ]
    results = [*(f"float y{i}" for i in range(count)), *(f"float h{i}_{random.choice(STEPS)}" for i in range(count))]
    return model(" ".join(nodes), ", ".join(results))
