"""Motifs of gates, residual paths, products, and look-ups."""

from __future__ import annotations

from random import Random

from cell_text import Feed, Value, Writer
from motif_list import motif

TAME = ("tanh", "sigmoid", "softsign", "clip", "sin", "erf")


def bounded(c: Writer, r: Random, a: str) -> str:
    """An expression within -1 and 1."""
    kind = r.choice(TAME)
    ways = {
        "tanh": (f"np.tanh({a})", f"2.0 * ro.sigmoid(2.0 * ({a})) - 1.0", f"-np.tanh(-({a}))"),
        "sigmoid": (f"ro.sigmoid({a})", f"1.0 / (1.0 + np.exp(-({a})))", f"0.5 * np.tanh(0.5 * ({a})) + 0.5"),
        "softsign": (f"ro.softsign({a})", f"({a}) / (1.0 + abs({a}))"),
        "clip": (f"ro.clip({a}, -0.8, 0.9)", f"np.minimum(np.maximum({a}, -0.8), 0.9)"),
        "sin": (f"np.sin({a})", f"-ro.sin(-({a}))"),
        "erf": (f"ro.erf({a})", f"-ro.erf(-({a}))"),
    }
    return f"({c.way(*ways[kind])})"


def _whole(c: Writer, plain: str, *others: str) -> str:
    """One of several expressions, in brackets where it needs them."""
    chosen = c.way(plain, *others)
    return chosen if chosen == plain else f"({chosen})"


def sigmoid(c: Writer, a: str) -> str:
    return _whole(c, f"ro.sigmoid({a})", f"1.0 / (1.0 + np.exp(-({a})))", f"0.5 * (np.tanh(({a}) / 2.0) + 1.0)")


def tanh(c: Writer, a: str) -> str:
    return _whole(c, f"np.tanh({a})", f"ro.tanh({a})", f"2.0 / (1.0 + ro.exp(-2.0 * ({a}))) - 1.0")


def bias(c: Writer, r: Random, width: int) -> str:
    """A parameter that broadcasts over rows: by feature, for one feature, for all."""
    ones = (1,) * (len(c.lead) - 1)
    by_row = (*ones, c.rows, 1)
    shape, axes = r.choice(
        [((width,), "")] * 3 + [((1, width), ""), ((1,), ""), ((), ""), (by_row, "." * len(ones) + "N")]
    )
    return c.parameter(r, shape, Feed(shape, scale=0.5, axes=axes))


def linear(c: Writer, r: Random, parts: list[Value], width: int) -> str:
    """A sum of products and a bias, as one product of what is joined, or as several."""
    weights = [c.parameter(r, (a.width, width)) for a in parts]
    tail = f" + {bias(c, r, width)}" if r.random() < 0.6 else ""
    apart = " + ".join(f"{a} @ {w}" for a, w in zip(parts, weights, strict=True))
    joined = f"np.concatenate([{', '.join(map(str, parts))}], axis=-1) @ np.concatenate([{', '.join(weights)}], axis=0)"
    swapped = " + ".join(f"{a} @ {w}" for a, w in list(zip(parts, weights, strict=True))[::-1])
    return c.way(apart, joined, f"({swapped})") + tail


@motif(weight=3, anywhere=True)
def dense(c: Writer, r: Random) -> None:
    parts = [c.vector(r) for _ in range(r.choice([1, 2, 2, 3]))]
    width = r.choice([*(a.width for a in parts), 1, 3])
    z = c.let((*parts[0].shape[:-1], width), linear(c, r, parts, width), stem="z", name_it=c.named_maybe(r))
    c.let(z.shape, bounded(c, r, str(z)), tame=True, stem="a")


@motif(weight=3, anywhere=True)
def gate(c: Writer, r: Random) -> None:
    """g * a + (1 - g) * b, with a gate of what it gates."""
    a = c.carried(r)
    b = c.vector(r, a.width)
    shape = a.shape
    g = c.let(shape, sigmoid(c, linear(c, r, r.sample([a, b], r.choice([1, 2])), a.width)), tame=True, stem="g")
    if r.random() < 0.5:
        b = c.let(shape, tanh(c, str(b)), f"-{tanh(c, f'-{b}')}", tame=True)
    c.let(
        shape, f"{g} * {a} + (1.0 - {g}) * {b}", f"{b} + {g} * ({a} - {b})", f"{g} * {a} + {b} - {g} * {b}",
        tame=a.tame and b.tame, stem="mixed", name_it=c.named_maybe(r),
    )  # fmt: skip


@motif(weight=2, anywhere=True)
def fused_gates(c: Writer, r: Random) -> None:
    """Four gates of one product, split, as of an LSTM."""
    x, h = c.vector(r), c.carried(r)
    cell = c.vector(r, h.width)
    k, count = h.width, r.choice([2, 3, 4])
    gates = c.let(
        (*x.shape[:-1], count * k), linear(c, r, [x, h], count * k), stem="gates", keep=False, name_it=c.named_maybe(r)
    )
    names = [c.fresh("s") for _ in range(count)]
    parts = ", ".join(f"{gates}[..., {i * k} : {(i + 1) * k}]" for i in range(count))
    c.lines.append(
        f"{', '.join(names)} = "
        + c.way(f"ro.split({gates}, {count}, axis=-1)", parts, f"np.split({gates}, {count}, axis=-1)")
    )
    out = f"{sigmoid(c, names[0])} * {cell} + {sigmoid(c, names[1])} * " + (tanh(c, names[2]) if count > 2 else "0.5")
    new = c.let(h.shape, out, stem="c")
    if count > 3:
        c.let(h.shape, f"{sigmoid(c, names[3])} * {tanh(c, str(new))}", tame=True, stem="h")


@motif(weight=3, anywhere=True)
def residual(c: Writer, r: Random) -> None:
    """A value that goes on beside what is made of it."""
    a = c.carried(r)
    inner = c.let(a.shape, *(f"{bounded(c, r, f'{a} @ {w}')}" for w in [c.parameter(r, (a.width, a.width))]), tame=True)
    scale = r.choice(["", "0.5 * ", "-", "2.0 * "])
    c.let(a.shape, f"{inner} + {scale}{a}", f"{scale}{a} + {inner}", f"{inner} - (-({scale}{a}))", stem="res")


def term(c: Writer, r: Random, width: int) -> str:
    """What people add to a value before a product: another value, one that is scaled, a product, a row of a table."""
    kind = r.randrange(7)
    if kind < 3:
        b = c.vector(r) if kind or not c.data else r.choice(c.data)
        w = c.parameter(r, (b.width, width))
        return c.way(f"{b} @ {w}", f"ro.einsum('...i,ij->...j', {b}, {w})")
    if kind in (3, 4) and c.ints:
        name, classes = r.choice(c.ints)
        return looked_up(c, r, name, classes, c.parameter(r, (classes, width)))
    b = str(c.vector(r, width))
    return f"{b} * {bias(c, r, width)}" if kind == 5 else b


def looked_up(c: Writer, r: Random, name: str, classes: int, table: str) -> str:
    """Rows of a table by their numbers, as a product or by index."""
    ways = [f"ro.one_hot({name}, {classes}) @ {table}", f"ro.gather({table}, {name})"]
    return c.way(*(ways if r.random() < 0.6 else ways[::-1]))


@motif(weight=9, anywhere=True)
def sum_then_product(c: Writer, r: Random) -> None:
    """(a + b) @ w, where a or b is read again."""
    a = c.carried(r)
    width = r.choice([a.width, a.width, 2])
    terms = [f"({term(c, r, a.width)})" for _ in range(r.choice([1, 1, 2]))]
    if r.random() < 0.3:
        terms = [str(c.let(a.shape, one, stem="u")) for one in terms]
    w = c.parameter(r, (a.width, width))
    sign = r.choice("+-")
    joined, apart = (f" {sign} ".join([str(a), *terms]), f" {sign} ".join(f"{one} @ {w}" for one in (a, *terms)))
    shape = (*a.shape[:-1], width)
    p = c.let(shape, f"({joined}) @ {w}", apart, stem="p", name_it=c.named_maybe(r))
    act = c.let(shape, bounded(c, r, str(p)), tame=True)
    if width == a.width and r.random() < 0.8:
        again = r.choice([str(a), str(a), terms[0], str(p)])
        share = r.choice(["0.5 * ", "", f"{act} * "])
        c.let(shape, f"{act} + {share}{again}", f"{share}{again} + {act}", f"2.0 * {act} + {share}{again} - {act}")


@motif(weight=2, anywhere=True)
def product_read_twice(c: Writer, r: Random) -> None:
    a = c.vector(r)
    w = c.parameter(r, (a.width, a.width))
    p = c.let(a.shape, *c.product(a, w), stem="p", name_it=c.named_maybe(r))
    second = r.choice([f"{p}", f"{a}", f"({p} + 1.0)", bounded(c, r, str(p))])
    c.let(a.shape, f"{tanh(c, str(p))} * ({second})", f"({second}) * {tanh(c, str(p))}")


@motif(weight=2, anywhere=True)
def product_of_products(c: Writer, r: Random) -> None:
    a = c.vector(r)
    middle, last = r.choice([1, 2, a.width]), r.choice([a.width, 3])
    u, w = c.parameter(r, (a.width, middle)), c.parameter(r, (middle, last))
    lead = a.shape[:-1]
    if r.random() < 0.5:
        c.let(
            (*lead, last),
            f"({a} @ {u}) @ {w}",
            f"{a} @ ({u} @ {w})",
            f"ro.einsum('...i,ij,jk->...k', {a}, {u}, {w})",
            stem="q",
        )
        return
    p = c.let((*lead, middle), *c.product(a, u), stem="p")
    q = c.let((*lead, last), *c.product(p, w), stem="q")
    c.let((*lead, last), f"{q} * {p}[..., :1]", f"{p}[..., :1] * {q}")


@motif(weight=2, anywhere=True)
def multiplicative(c: Writer, r: Random) -> None:
    """alpha * (x w) * (h u) + beta * (x w) + gamma * (h u)."""
    x, h = c.vector(r), c.carried(r)
    k = h.width
    one = c.let((*x.shape[:-1], k), *c.product(x, c.parameter(r, (x.width, k))), stem="xw", name_it=c.named_maybe(r))
    two = c.let(h.shape, *c.product(h, c.parameter(r, (k, k))), stem="hu")
    a, b, d = (bias(c, r, k) for _ in range(3))
    total = c.let(
        h.shape, f"{a} * {one} * {two} + {b} * {one} + {d} * {two}", f"{one} * ({a} * {two} + {b}) + {d} * {two}"
    )
    c.let(h.shape, tanh(c, str(total)), tame=True)


@motif(weight=1, anywhere=True)
def gated_linear(c: Writer, r: Random) -> None:
    a = c.vector(r)
    k = r.choice([a.width, 2])
    u, w = c.parameter(r, (a.width, k)), c.parameter(r, (a.width, k), tie=0.5)
    gate = r.choice(
        [sigmoid(c, f"{a} @ {u}"), f"ro.gelu({a} @ {u})", f"ro.relu({a} @ {u} + 0.01)", f"ro.elu({a} @ {u})"]
    )
    inner = c.let((*a.shape[:-1], k), f"{gate} * ({a} @ {w})", f"({a} @ {w}) * {gate}")
    c.let(a.shape, f"{inner} @ {w}.T", f"ro.einsum('...k,jk->...j', {inner}, {w})", stem="back")


@motif(weight=5)
def look_up(c: Writer, r: Random) -> None:
    """A row of a table by its number."""
    if not c.ints:
        return dense(c, r)
    name, classes = r.choice(c.ints)
    h = c.carried(r)
    table = c.parameter(r, (classes, h.width))
    e = c.let(h.shape, looked_up(c, r, name, classes, table), stem="e")
    kind = r.randrange(5)
    if kind == 0:
        c.let(h.shape, f"{e} + {h}", f"{h} + {e}")
    elif kind < 3:
        w = c.parameter(r, (h.width, h.width))
        p = c.let(h.shape, f"({h} + {e}) @ {w}", f"{h} @ {w} + {e} @ {w}", stem="p")
        act = c.let(h.shape, tanh(c, str(p)), tame=True)
        again = r.choice([h, h, e])
        c.let(h.shape, f"{act} + 0.5 * {again}", f"0.5 * {again} + {act}")
    elif kind == 3:
        c.let(h.shape, f"{e} * {sigmoid(c, str(h))}")


@motif(weight=2, anywhere=True)
def tied_output(c: Writer, r: Random) -> None:
    """Scores over a table's rows, and their mean row again."""
    h = c.vector(r)
    tables = [
        name
        for name, feed in c.inputs.items()
        if len(feed.shape) == 2 and feed.shape[1] == h.width and feed.kind == "normal" and not feed.axes
    ]
    count = r.choice([2, 3, 5])
    table = r.choice(tables) if tables else c.parameter(r, (count, h.width))
    count = c.inputs[table].shape[0] if table in c.inputs else count
    scores = c.let(
        (*h.shape[:-1], count),
        f"{h} @ {table}.T",
        f"ro.einsum('...k,vk->...v', {h}, {table})",
        f"{h} @ ro.transpose({table}, [1, 0])",
        stem="scores",
        name_it=c.named_maybe(r),
    )
    kind = r.randrange(3)
    if kind == 0:
        return
    p = c.let(scores.shape, *softmax(scores), tame=True, stem="probs")
    if kind == 2:
        c.let(h.shape, f"{p} @ {table}", f"ro.einsum('...v,vk->...k', {p}, {table})", f"({h} + {p} @ {table}) - {h}")


def softmax(a: Value, axis: int = -1) -> tuple[str, ...]:
    """Ways to write one."""
    shifted = f"np.exp({a} - {a}.max(axis={axis}, keepdims=True))"
    return (
        f"ro.softmax({a}, axis={axis})", f"{shifted} / {shifted}.sum(axis={axis}, keepdims=True)",
        f"np.exp({a} - ro.reduce_log_sum_exp({a}, [{axis}]))", f"np.exp(ro.log_softmax({a}, axis={axis}))",
    )  # fmt: skip


@motif(weight=1)
def choice_fed_back(c: Writer, r: Random) -> None:
    """The row of the best score, as of greedy decoding."""
    h = c.vector(r)
    table = c.parameter(r, (3, h.width))
    scores = c.let((*h.shape[:-1], 3), f"{h} @ {table}.T", stem="scores")
    best = c.fresh("best")
    c.lines.append(f"{best} = ro.argmax({scores}, axis=-1, keepdims=0)")
    c.let(h.shape, f"ro.one_hot({best}, 3) @ {table}", f"ro.gather({table}, {best})", stem="e")


@motif(weight=1, anywhere=True)
def derived_weight(c: Writer, r: Random) -> None:
    """A product with what was made of parameters alone: the same at every step."""
    a = c.vector(r)
    k = r.choice([a.width, 2])
    w = c.parameter(r, (a.width, k))
    u = c.parameter(r, (a.width, k), tie=0.2)
    made = r.choice([
        f"({w} / np.sqrt(({w} * {w}).sum(axis=0, keepdims=True) + 1.0))",
        f"({w} + 0.5 * {u})", f"ro.softmax({w}, axis=0)",
        f"np.tanh({w})", f"({w} * {u})", f"({w} @ ({u}.T @ {w}))", f"({w} - {w}.mean(axis=0))",
    ])  # fmt: skip
    c.let(
        (*a.shape[:-1], k),
        f"{a} @ {made}",
        f"ro.einsum('...i,ij->...j', {a}, {made})",
        stem="q",
        name_it=c.named_maybe(r),
    )


@motif(weight=1, anywhere=True)
def vector_product(c: Writer, r: Random) -> None:
    """Products with 1-D operands: one number for a row."""
    a = c.vector(r)
    v = c.parameter(r, (a.width,))
    s = c.let(
        a.shape[:-1],
        f"{a} @ {v}",
        f"({a} * {v}).sum(axis=-1)",
        f"({a} @ {v}[:, None])[..., 0]",
        f"ro.einsum('...k,k->...', {a}, {v})",
        stem="s",
        keep=False,
    )
    other = c.vector(r)
    c.let(other.shape, f"{tanh(c, f'{s}[..., None]')} * {other}", f"{other} * {tanh(c, str(s))}[..., None]")


@motif(weight=2, anywhere=True)
def elementwise(c: Writer, r: Random) -> None:
    """A few functions one after another, operands read again."""
    a = c.vector(r)
    for _ in range(r.choice([1, 2, 3])):
        b = c.vector(r, a.width)
        text, ways = r.choice(ELEMENTWISE)
        a = c.let(a.shape, *(one.format(a=a, b=b) for one in (text, *ways)), tame="tanh" in text)


# A function, and other ways to write it.
ELEMENTWISE: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("{a} * {b}", ("{b} * {a}",)),
    ("{a} + {b}", ("{b} - (-{a})",)),
    ("{a} - {b}", ("-({b} - {a})",)),
    ("{a} / (1.5 + {b} * {b})", ("{a} * ro.reciprocal(1.5 + {b} ** 2.0)",)),
    ("np.sqrt({a} * {a} + 0.5)", ("({a} ** 2.0 + 0.5) ** 0.5",)),
    ("np.exp(-{a} * {a})", ("1.0 / np.exp({a} ** 2.0)",)),
    ("ro.softplus({a})", ("np.log(1.0 + np.exp({a}))", "ro.log1p(np.exp({a}))")),
    ("np.maximum({a}, {b})", ("ro.where({a} > {b}, {a}, {b})", "-np.minimum(-{a}, -{b})")),
    ("np.where({a} > {b}, {a}, 0.3 * {b})", ("np.where({a} <= {b}, 0.3 * {b}, {a})",)),
    ("ro.leaky_relu({a} + 0.05)", ("np.where({a} + 0.05 > 0.0, {a} + 0.05, 0.01 * ({a} + 0.05))",)),
    ("abs({a} + 0.03)", ("np.sqrt(({a} + 0.03) ** 2.0)",)),
    ("np.tanh({a}) * np.tanh({b})", ("np.tanh({b}) * np.tanh({a})",)),
    ("({a} + {b}) * ({a} - {b})", ("{a} * {a} - {b} * {b}",)),
    ("ro.selu({a})", ()),
    ("ro.gelu({a})", ("0.5 * {a} * (1.0 + ro.erf({a} * 0.7071067811865476))",)),
    ("ro.expm1(0.5 * np.tanh({a}))", ("np.exp(0.5 * np.tanh({a})) - 1.0",)),
    ("ro.stop_gradient({b}) * {a}", ("{a} * ro.stop_gradient({b})",)),
    ("np.cos({a}) + np.sin({b})", ("np.sin({b}) + np.cos({a})",)),
    ("ro.hard_sigmoid({a}) * {b}", ("ro.clip(0.2 * {a} + 0.5, 0.0, 1.0) * {b}",)),
    ("ro.atan({a})", ()),
    ("ro.mean({a}, {b}, {a})", ("({a} * 2.0 + {b}) / 3.0", "ro.sum({a}, {a}, {b}) / 3.0")),
    ("0.7 * {a}", ("{a} * 0.7", "{a} - 0.3 * {a}")),
    ("np.log(1.2 + abs({a}))", ()),
    ("({a} * {b}) * {a}", ("{a} * ({b} * {a})", "{a} ** 2.0 * {b}")),
    ("({a} + {b}) + {a}", ("2.0 * {a} + {b}",)),
)
