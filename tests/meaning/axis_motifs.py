"""Motifs about axes: norms, parts and joins, windows, sums over odd axes, attention, matrices per row."""

from __future__ import annotations

from random import Random

from cell_text import Feed, Value, Writer
from gate_motifs import bounded, dense, sigmoid, softmax, tanh
from motif_list import enter_around, motif


@motif(weight=2, anywhere=True)
def norm(c: Writer, r: Random) -> None:
    a = c.vector(r)
    k = a.width
    scale, shift = c.parameter(r, (k,), Feed((k,), scale=0.5)), c.parameter(r, (k,), Feed((k,), scale=0.5), tie=0.2)
    centred = f"({a} - {a}.mean(axis=-1, keepdims=True))"
    kind = r.randrange(4)
    if kind == 0:
        c.let(
            a.shape,
            f"ro.layer_normalization({a}, {scale}, {shift}, epsilon=0.1)",
            f"{centred} / np.sqrt(({centred} ** 2.0).mean(axis=-1, keepdims=True) + 0.1) * {scale} + {shift}",
        )
    elif kind == 1:
        c.let(
            a.shape,
            f"ro.rms_normalization({a}, {scale}, epsilon=0.1)",
            f"{a} / np.sqrt(({a} * {a}).mean(axis=-1, keepdims=True) + 0.1) * {scale}",
        )
    elif kind == 2:
        c.let(a.shape, *softmax(a), tame=True, name_it=c.named_maybe(r))
    else:
        length = f"np.sqrt(({a} ** 2.0).sum(axis=-1, keepdims=True) + 0.3)"
        c.let(a.shape, f"{a} / {length}", f"{a} * ro.reciprocal({length})", tame=True)


@motif(weight=2, anywhere=True)
def mean_and_back(c: Writer, r: Random) -> None:
    """A fold over features that goes back to all of them."""
    a = c.vector(r)
    k = a.width
    folds = (
        (f"{a}.mean(axis=-1, keepdims=True)", f"{a}.sum(axis=-1, keepdims=True) / {k}.0",
         f"{a} @ np.full(({k}, 1), {1 / k!r})"),
        (f"{a}.max(axis=-1, keepdims=True)", f"-(-{a}).min(axis=-1, keepdims=True)"),
        (f"ro.reduce_log_sum_exp({a}, [-1])", f"np.log(np.exp({a}).sum(axis=-1, keepdims=True))"),
        (f"ro.reduce_sum_square({a}, [-1])", f"({a} * {a}).sum(axis=-1, keepdims=True)"),
        (f"np.cumsum({a}, axis=-1)", f"np.cumsum({a}[..., ::-1][..., ::-1], axis=-1)",
         f"{a} @ np.triu(np.ones(({k}, {k})))"),
        (f"ro.cumprod(0.5 + 0.5 * np.tanh({a}))", f"ro.cumprod({sigmoid(c, f'2.0 * {a}')})"),
        (f"ro.reduce_prod(np.tanh({a}) + 1.1, [-1])",),
        (f"ro.cumsum({a}, exclusive=1, reverse=1)", f"({a}.sum(axis=-1, keepdims=True) - np.cumsum({a}, axis=-1))"),
    )  # fmt: skip
    ways = r.choice(folds)
    whole = "cum" in ways[0]
    s = c.let((*a.shape[:-1], k if whole else 1), *ways, stem="m")
    c.let(a.shape, f"{a} - {s}", f"{a} + -{s}") if r.random() < 0.5 else c.let(a.shape, f"{a} * {tanh(c, str(s))}")


@motif(weight=1)
def over_the_batch(c: Writer, r: Random) -> None:
    """Rows of the batch meet."""
    a = c.vector(r)
    c.mixes_rows = True
    s = c.let(
        (1, a.width),
        f"{a}.mean(axis=0, keepdims=True)",
        f"{a}.sum(axis=0, keepdims=True) / {c.rows}.0",
        keep=False,
        lead=0,
    )
    if r.random() < 0.5:
        v = f"(({a} - {s}) ** 2.0).mean(axis=0, keepdims=True)"
        c.let(a.shape, f"({a} - {s}) / np.sqrt({v} + 0.2)")
    else:
        c.let(a.shape, f"{a} - 0.5 * {s}", f"{a} + {s} * -0.5")


@motif(weight=1)
def rows_as_keys(c: Writer, r: Random) -> None:
    """Attention of rows to rows."""
    a, b = c.vector(r), c.vector(r)
    b = c.vector(r, a.width)
    c.mixes_rows = True
    scores = c.let((c.rows, c.rows), f"{a} @ {b}.T", f"ro.einsum('ik,jk->ij', {a}, {b})", keep=False)
    p = c.let(scores.shape, *softmax(scores), keep=False)
    c.let(a.shape, f"{p} @ {b}")


@motif(weight=3, anywhere=True)
def parts(c: Writer, r: Random) -> None:
    """Slices, halves that change places, joins, pads, flips."""
    a, b = c.vector(r), c.vector(r)
    k, lead = a.width, a.shape[:-1]
    kind = r.randrange(7)
    if kind == 0:
        c.let(
            (*lead, k + b.width),
            f"np.concatenate([{a}, {b}], axis=-1)",
            f"ro.concat({a}, {b}, axis=-1)",
            f"(ro.pad({a}, [0, {b.width}], axes=[-1]) + ro.pad({b}, [{k}, 0], axes=[-1]))",
            tame=a.tame and b.tame,
        )
    elif kind == 1:
        cut = r.randrange(1, k + 1)
        c.let(
            (*lead, cut),
            f"{a}[..., :{cut}]",
            f"ro.slice({a}, [0], [{cut}], [-1])",
            f"ro.gather({a}, np.arange({cut}), axis=-1)",
            tame=a.tame,
        )
    elif kind == 2:
        c.let(a.shape, f"{a}[..., ::-1]", f"ro.gather({a}, np.arange({k})[::-1].copy(), axis=-1)", tame=a.tame)
    elif kind == 3:
        c.let(
            a.shape,
            f"np.concatenate([{a}[..., -1:], {a}[..., :-1]], axis=-1)",
            f"{a} @ np.roll(np.eye({k}), 1, axis=1)",
            f"ro.gather({a}, np.roll(np.arange({k}), 1), axis=-1)",
            tame=a.tame,
        )
    elif kind == 4:
        w = c.parameter(r, (k, 2 * k))
        z = c.let((*lead, 2 * k), f"{a} @ {w}", keep=False, stem="z", name_it=c.named_maybe(r))
        c.let(
            a.shape,
            f"{tanh(c, f'{z}[..., :{k}]')} * {z}[..., {k}:]",
            f"{tanh(c, f'({a} @ {w}[:, :{k}])')} * ({a} @ {w}[:, {k}:])",
        )
    elif kind == 5:
        c.let(
            (*lead, 2 * k),
            f"ro.tile({a}, {[1] * len(lead) + [2]})",
            f"np.concatenate([{a}, {a}], axis=-1)",
            tame=a.tame,
        )
    else:
        c.let(
            (*lead, k + 2),
            f"ro.pad({a}, [1, 1], axes=[-1])",
            f"np.concatenate([0.0 * {a}[..., :1], {a}, 0.0 * {a}[..., :1]], axis=-1)",
            tame=a.tame,
        )


@motif(weight=2)
def window(c: Writer, r: Random) -> None:
    """A convolution over features, of one channel or of the sizes of a matrix."""
    a = c.vector(r)
    k = a.width
    w = c.parameter(r, (1, 1, 3))
    wide = f"ro.pad({a}, [1, 1], axes=[-1])"
    taps = " + ".join(f"{wide}[..., {i} : {i + k}] * {w}[0, 0, {i}]" for i in range(3))
    y = c.let(a.shape, f"ro.conv({a}[:, None, :], {w}, pads=[1, 1])[:, 0]", taps, stem="conv")
    if r.random() < 0.3:
        c.let(
            a.shape,
            f"ro.average_pool({y}[:, None], [3], pads=[1, 1], count_include_pad=1)[:, 0]",
            f"({y} + ro.pad({y}, [1, 0], axes=[-1])[..., :-1] + ro.pad({y}, [0, 1], axes=[-1])[..., 1:]) / 3.0",
        )
    elif r.random() < 0.3:
        c.let(a.shape, f"ro.max_pool({y}[:, None], [3], pads=[1, 1])[:, 0]")


@motif(weight=3)
def attention(c: Writer, r: Random) -> None:
    """A mean of the rows of a memory: of the whole batch, or of each row of it."""
    q = c.vector(r)
    S, k = r.choice([1, 2, 3, 4]), q.width
    kind = r.randrange(3)
    if kind == 0:  # shared by all rows
        m = c.parameter(r, (S, k), Feed((S, k)))
        scores = c.let(
            (c.rows, S), f"{q} @ {m}.T", f"ro.einsum('nk,sk->ns', {q}, {m})", stem="scores", name_it=c.named_maybe(r)
        )
        read = (f"{{p}} @ {m}", f"ro.einsum('ns,sk->nk', {{p}}, {m})", f"({{p}}[..., None] * {m}).sum(axis=1)")
    elif kind == 1:  # [N, S, k]
        m = c.parameter(r, (c.rows, S, k), Feed((c.rows, S, k), axes="N"))
        scores = c.let(
            (c.rows, S),
            f"({m} @ {q}[..., None])[..., 0]",
            f"ro.einsum('nsk,nk->ns', {m}, {q})",
            f"({m} * {q}[:, None]).sum(axis=-1)",
            stem="scores",
            name_it=c.named_maybe(r),
        )
        read = (
            f"({{p}}[:, None] @ {m})[:, 0]",
            f"ro.einsum('ns,nsk->nk', {{p}}, {m})",
            f"({{p}}[..., None] * {m}).sum(axis=1)",
        )
    else:  # [S, N, k]
        m = c.parameter(r, (S, c.rows, k), Feed((S, c.rows, k), axes=".N"))
        scores = c.let(
            (c.rows, S),
            f"ro.einsum('snk,nk->ns', {m}, {q})",
            f"({m} * {q}).sum(axis=-1).T",
            f"ro.transpose(({m} * {q}).sum(axis=-1), [1, 0])",
            stem="scores",
            name_it=c.named_maybe(r),
        )
        read = (f"ro.einsum('ns,snk->nk', {{p}}, {m})", f"({{p}}.T[..., None] * {m}).sum(axis=0)")
    if r.random() < 0.3:
        v = c.parameter(r, (S,), Feed((S,)))
        scores = c.let(scores.shape, f"np.tanh({scores}) * {v}", keep=False)
    p = c.let(scores.shape, *softmax(scores), tame=True, stem="probs")
    c.let(q.shape, *(one.format(p=p) for one in read), stem="context")


@motif(weight=1)
def additive_attention(c: Writer, r: Random) -> None:
    """Scores of tanh(keys + query), which is [N, S, k] in between."""
    q = c.vector(r)
    S, k, e = r.choice([1, 2, 3]), q.width, r.choice([2, q.width])
    m = c.parameter(r, (c.rows, S, k), Feed((c.rows, S, k), axes="N"))
    u, w, v = c.parameter(r, (k, e)), c.parameter(r, (k, e)), c.parameter(r, (e,))
    keys = c.let((c.rows, S, e), f"{m} @ {u}", f"ro.einsum('nsk,ke->nse', {m}, {u})", keep=False)
    scores = c.let(
        (c.rows, S),
        f"(np.tanh({keys} + ({q} @ {w})[:, None]) * {v}).sum(axis=-1)",
        f"np.tanh(({q} @ {w})[:, None] + {keys}) @ {v}",
        stem="scores",
        keep=False,
    )
    p = c.let(scores.shape, *softmax(scores), keep=False)
    c.let(q.shape, f"ro.einsum('ns,nsk->nk', {p}, {m})", f"({p}[..., None] * {m}).sum(axis=1)", stem="context")


@motif(weight=2)
def outer_product(c: Writer, r: Random) -> None:
    """A matrix per row of two vectors, read by a third."""
    k, v = c.vector(r), c.vector(r)
    q = c.vector(r, k.width)
    shape = (c.rows, k.width, v.width)
    m = c.let(
        shape,
        f"{k}[..., None] * {v}[:, None, :]",
        f"ro.einsum('nk,nv->nkv', {k}, {v})",
        f"{k}[..., None] @ {v}[:, None, :]",
        tame=k.tame and v.tame,
        stem="m",
    )
    c.let(
        v.shape,
        f"ro.einsum('nk,nkv->nv', {q}, {m})",
        f"({q}[:, None, :] @ {m})[:, 0]",
        f"({q}[..., None] * {m}).sum(axis=1)",
    )


@motif(weight=2)
def matrix_state(c: Writer, r: Random) -> None:
    """What a matrix per row, as a state is one, gives and becomes: decay, delta rule, norms of its rows."""
    known = c.of_rank(2)
    if not known:
        return outer_product(c, r)
    m = r.choice(known[-3:])
    _, a, b = m.shape
    k, v = c.vector(r, a), c.vector(r, b)
    kind = r.randrange(4)
    if kind == 0:
        g = c.let((c.rows,), f"({sigmoid(c, str(k))}).mean(axis=-1)", keep=False)
        c.let(
            m.shape,
            f"{g}[:, None, None] * {m} + 0.3 * {k}[..., None] * {v}[:, None]",
            f"ro.einsum('n,nkv->nkv', {g}, {m}) + 0.3 * ro.einsum('nk,nv->nkv', {k}, {v})",
        )
    elif kind == 1:
        read = c.let(v.shape, f"ro.einsum('nk,nkv->nv', {k}, {m})", f"({k}[..., None] * {m}).sum(axis=1)")
        c.let(
            m.shape,
            f"{m} + 0.1 * {k}[..., None] * ({v} - {read})[:, None]",
            f"{m} + 0.1 * ro.einsum('nk,nv->nkv', {k}, {v} - {read})",
        )
    elif kind == 2:
        w = c.parameter(r, (b, b))
        c.let(m.shape, f"np.tanh({m} @ {w})", f"np.tanh(ro.einsum('nab,bc->nac', {m}, {w}))", tame=True)
    else:
        c.let(v.shape, f"{m}.mean(axis=1)", f"{m}.sum(axis=1) / {a}.0")
        c.let(
            (c.rows, a * b),
            f"{m}.reshape({c.rows}, {a * b})" if False else f"ro.flatten({m})",
            f"ro.reshape({m}, [-1, {a * b}])",
        )


@motif(weight=2)
def heads(c: Writer, r: Random) -> None:
    """Features as heads, something done to each head, and back."""
    count, d = r.choice([1, 2, 3]), r.choice([1, 2])
    a = c.vector(r, count * d)
    h = c.let((c.rows, count, d), f"ro.reshape({a}, [-1, {count}, {d}])", keep=False)
    kind = r.randrange(3)
    if kind == 0:
        w = c.parameter(r, (count, d, d))
        h = c.let(
            h.shape,
            f"ro.einsum('nhd,hde->nhe', {h}, {w})",
            f"({h}[:, :, None, :] @ {w})[:, :, 0]",
            f"({h}.transpose(1, 0, 2) @ {w}).transpose(1, 0, 2)",
            keep=False,
        )
    elif kind == 1:
        p = c.let(
            (c.rows, count, count), f"{h} @ {h}.transpose(0, 2, 1)", f"ro.einsum('nid,njd->nij', {h}, {h})", keep=False
        )
        h = c.let(h.shape, f"ro.softmax({p}) @ {h}", f"ro.einsum('nij,njd->nid', ro.softmax({p}), {h})", keep=False)
    else:
        h = c.let(h.shape, f"{h} * ro.softmax({h}, axis=1)", keep=False)
    c.let(a.shape, f"ro.reshape({h}, [-1, {count * d}])", f"ro.flatten({h})")


@motif(weight=1)
def bilinear(c: Writer, r: Random) -> None:
    a, b = c.vector(r), c.vector(r)
    k = r.choice([1, 2, 3])
    w = c.parameter(r, (a.width, b.width, k))
    c.let(
        (c.rows, k),
        f"ro.einsum('na,abk,nb->nk', {a}, {w}, {b})",
        f"(ro.einsum('na,abk->nbk', {a}, {w}) * {b}[..., None]).sum(axis=1)",
        f"ro.einsum('nb,nbk->nk', {b}, ro.einsum('na,abk->nbk', {a}, {w}))",
        stem="q",
    )


@motif(weight=1)
def weights_of_the_row(c: Writer, r: Random) -> None:
    """A product with a matrix that is another in each row."""
    a = c.vector(r)
    k = r.choice([1, 2, a.width])
    w = c.parameter(r, (c.rows, a.width, k), Feed((c.rows, a.width, k), scale=0.7, axes="N"))
    c.let(
        (c.rows, k),
        f"({a}[:, None, :] @ {w})[:, 0]",
        f"ro.einsum('na,nak->nk', {a}, {w})",
        f"({a}[..., None] * {w}).sum(axis=1)",
        stem="q",
    )


@motif(weight=1, anywhere=True)
def chosen_features(c: Writer, r: Random) -> None:
    """The largest features, or features by number, some of them twice."""
    a = c.vector(r)
    k = r.randrange(1, a.width + 1)
    if r.random() < 0.4:
        top, _ = c.fresh("top"), None
        c.lines.append(f"{top}, _ = ro.topk({a}, {k})")
        c.value(top, (*a.shape[:-1], k), tame=a.tame)
        return
    places = [r.randrange(a.width) for _ in range(k + 1)]
    c.let(
        (*a.shape[:-1], k + 1),
        f"ro.gather({a}, np.array({places}), axis=-1)",
        f"np.stack([{', '.join(f'{a}[..., {i}]' for i in places)}], axis=-1)",
        tame=a.tame,
    )


@motif(weight=1)
def row_reference(c: Writer, r: Random) -> None:
    """What each row has for all steps: a vector beside the sequence."""
    a = c.vector(r)
    ctx = c.parameter(r, a.shape, Feed(a.shape, axes="N"))
    text = r.choice(
        [f"{a} * np.tanh({ctx})", f"{a} + 0.5 * {ctx}", f"({a} + {ctx}) @ {c.parameter(r, (a.width, a.width))}"]
    )
    c.let(a.shape, text)


@motif(weight=1)
def flagged(c: Writer, r: Random) -> None:
    """A row's flag chooses between two values, as for a reset of states."""
    if not c.flags:
        return dense(c, r)
    flag = r.choice(c.flags)
    a = c.vector(r)
    b = c.vector(r, a.width)
    c.let(
        a.shape,
        f"ro.where({flag}[:, None] > 0.5, {a}, {b})",
        f"{flag}[:, None] * {a} + (1.0 - {flag}[:, None]) * {b}",
        f"{b} + {flag}[..., None] * ({a} - {b})",
        tame=a.tame and b.tame,
    )


@motif(weight=1)
def dropped(c: Writer, r: Random) -> None:
    a = c.vector(r)
    c.draws = True
    c.let(a.shape, f"ro.dropout({a}, 0.3)", pure=False, name_it=c.named_maybe(r))


@motif(weight=1)
def by_step(c: Writer, r: Random) -> None:
    """The number of the step decides: a decay, or a phase."""
    if c.step is None:
        return dense(c, r)
    a = c.vector(r)
    c.counts_steps = True
    t = f"ro.cast({c.step}, 'float')"
    c.let(
        a.shape,
        r.choice(
            [f"{a} / ({t} + 1.0)", f"{a} * np.cos({t})", f"ro.where({c.step} > 1, {a}, 0.5 * {a})", f"{a} + 0.1 * {t}"]
        ),
    )


@motif(weight=2)
def inner_recurrence(c: Writer, r: Random) -> None:
    """A scan in the step: over a memory, whose last state joins the step's values."""
    a = c.vector(r)
    S, k = r.choice([1, 2, 3]), a.width
    name = c.fresh("inner")
    shape = (S, c.rows, k)
    m = c.parameter(r, shape, Feed(shape, axes=".N"))
    w = c.parameter(r, (k, k))
    body = r.choice(["np.tanh(x + s @ w)", "np.tanh((x + s) @ w) + 0.5 * s", "0.5 * s + np.tanh(x) * w[0]"])
    c.functions.append(f"@ro.cell\ndef {name}(x, s, *, w):\n    return dict(s={body}, out=np.tanh(s) * x)\n")
    last, every = c.fresh("last"), c.fresh("every")
    c.lines.append(f"{last}, {every} = ro.scan({name}, {m}, s={a}, w={w}, scope={c.fresh('sc')!r})")
    c.let(a.shape, f"{last}['s']", f"1.0 * {last}['s']")
    if r.random() < 0.5:
        c.let(a.shape, f"{every}['out'].sum(axis=0)", f"{every}['out'].mean(axis=0) * {S}.0")


def over_time(c: Writer, r: Random) -> None:
    """Steps of a sequence meet, around cells: means, sums so far, the step before, attention of steps to steps."""
    a = c.vector(r)
    kind = r.randrange(5)
    c.mixes_steps = True
    if kind == 0:
        c.let(a.shape, f"{a} - {a}.mean(axis=0, keepdims=True)", f"{a} - {a}.sum(axis=0) / {a.shape[0]}.0")
    elif kind == 1:
        c.let(a.shape, f"np.cumsum({a}, axis=0)", f"np.cumsum({a}[::-1][::-1], axis=0)")
    elif kind == 2:
        before = f"np.concatenate([0.0 * {a}[:1], {a}[:-1]], axis=0)"
        c.let(a.shape, before, f"ro.pad({a}, [1, 0], axes=[0])[:-1]", tame=a.tame)
    elif kind == 3:
        c.let(a.shape, f"{a}[::-1]", f"ro.gather({a}, np.arange({a.shape[0]})[::-1].copy(), axis=0)", tame=a.tame)
    else:
        scores = c.let(
            (a.shape[1], a.shape[0], a.shape[0]), f"ro.einsum('tnk,snk->nts', {a}, {a})",
            f"{a}.transpose(1, 0, 2) @ {a}.transpose(1, 2, 0)", keep=False,
        )  # fmt: skip
        c.let(a.shape, f"ro.einsum('nts,snk->tnk', ro.softmax({scores}), {a})")


enter_around(over_time, 4)


def fitted(c: Writer, r: Random, width: int) -> Value:
    """A value within bounds of a width, for a state."""
    a = c.vector(r, width)
    return a if a.tame else c.let(a.shape, bounded(c, r, str(a)), tame=True)
