"""Slow transcription of src/core/forest.hpp and src/core/blend.hpp: boosted trees, and blends of predictions."""

import math

import numpy as np

DEPTH, INNER, BINS, ROWS_PER_BIN, SAMPLE = 7, 127, 64, 16, 4096
LAMBDA, RATE, LEAST, LEAST_GAIN, TIE = 1.0, 0.1, 4.0, 1e-10, 1e-9
MASK = 2**64 - 1


def random_bits(seed, counter):
    """SplitMix64 of a counter."""
    z = (seed + (counter + 1) * 0x9E3779B97F4A7C15) & MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


def cuts_of(values):
    """Return the cuts of a column between its quantiles, or between all of its values if they are few."""
    n = len(values)
    sample = sorted(v for v in values[:: -(-n // SAMPLE)] if not math.isnan(v))
    if len(set(sample)) <= BINS:
        sample = sorted(set(sample))
    parts, cuts = min(len(sample), BINS, max(n // ROWS_PER_BIN, 2)), []
    for k in range(1, parts):
        at = k * len(sample) // parts
        below, above = sample[at - 1], sample[at]
        middle = below + (above - below) / 2
        cut = middle if middle < above else below
        if below != above and (not cuts or cut > cuts[-1]):
            cuts.append(cut)
    return cuts


def grow(columns, g, h, seed, t, all_columns):
    """Return a tree as nested tuples (column, cut, missing_right, value, left, right) or (value,)."""
    n = len(g)
    bits = [random_bits(random_bits(seed, t), i - i % 64) >> (i % 64) & 1 for i in range(n)]
    rows = [i for i in range(n) if bits[i]]
    mean = sum(h[i] for i in rows) / max(len(rows), 1)
    least = LEAST * min(1.0, 2.0 * mean)
    cuts = {j: cuts_of(columns[j]) for j in all_columns}
    return _node(columns, cuts, g, h, rows, least, 0)


def _node(columns, cuts, g, h, rows, least, level):
    G, H = sum(g[i] for i in rows), sum(h[i] for i in rows)
    value = -RATE * G / (H + LAMBDA)
    score = G * G / (H + LAMBDA) * (1 + LEAST_GAIN) + LEAST_GAIN
    best = None
    if level == DEPTH or (level and 2 * least * (1 - TIE) > H):
        return (value,)
    for j, of_column in cuts.items():
        missing = [i for i in rows if math.isnan(columns[j][i])]
        for side in (False, True) if missing else (False,):
            scores = []
            for cut in of_column:
                left = [i for i in rows if columns[j][i] <= cut] + ([] if side else missing)
                gl, hl = sum(g[i] for i in left), sum(h[i] for i in left)
                gr, hr = G - gl, H - hl
                both = gl * gl / (hl + LAMBDA) + gr * gr / (hr + LAMBDA)
                scores.append((both if min(hl, hr) >= least * (1 - TIE) else 0.0, hr > hl * (1 + TIE)))
            top = max(one for one, _ in scores)
            if top > score * (1 + TIE):
                at = next(k for k, (one, _) in enumerate(scores) if one >= top * (1 - TIE))
                score, best = top, (j, of_column[at], side if missing else scores[at][1])
    if best is None:
        return (value,)
    j, cut, side = best
    right = [i for i in rows if (side if math.isnan(columns[j][i]) else columns[j][i] > cut)]
    left = [i for i in rows if i not in set(right)]
    below = [_node(columns, cuts, g, h, some, least, level + 1) for some in (left, right)]
    return (j, cut, side, value, *below)


def value_of(tree, row):
    """Return the value of the leaf of a row."""
    while len(tree) > 1:
        j, cut, side, _, left, right = tree
        tree = right if (side if math.isnan(row[j]) else row[j] > cut) else left
    return tree[0]


def differentiate(objective, level, margin, y, weight):
    """Return the gradients and curvatures of one row, for each output."""
    if objective == "softmax":
        e = [math.exp(m - max(margin)) for m in margin]
        p = [each / sum(e) for each in e]
        return [weight * (q - (y == k)) for k, q in enumerate(p)], [weight * q * (1 - q) for q in p]
    m = margin[0]
    if objective == "logistic":
        p = 1 / (1 + math.exp(-m))
        return [weight * (p - y)], [weight * p * (1 - p)]
    if objective == "counts":
        return [weight * (math.exp(m) - y)], [weight * math.exp(m)]
    if objective == "pinball":
        return [weight * ((m > y) - level)], [weight]
    return [weight * min(max(m - y, -level), level)], [weight]


def boost(rows, y, weight, margin, objective, level, seed, trees):
    """Return trees, one of each output in turn; tree t is that of output t % K."""
    columns, margin = list(np.array(rows).T.tolist()), [list(m) for m in margin]
    outputs, grown = len(margin[0]), []
    usable = [j for j, column in enumerate(columns) if cuts_of(column)]
    for t in range(trees):
        if t % outputs == 0:
            each = [differentiate(objective, level, m, a, w) for m, a, w in zip(margin, y, weight, strict=True)]
        k = t % outputs
        g, h = [one[0][k] for one in each], [one[1][k] for one in each]
        grown.append(grow(columns, g, h, seed, t, usable))
        for i, row in enumerate(rows):
            margin[i][k] += value_of(grown[-1], row)
    return grown


# -- blends

SWITCH, STEADY, RECENT, WORST, MISTAKE = 1e-3, 256, 0.99, 32.0, 0.25


def loss_of(objective, level, margin, y):
    """Return the loss of a prediction."""
    if objective == "logistic":
        return math.log1p(math.exp(-margin[0] if y else margin[0]))
    if objective == "softmax":
        return math.log(sum(map(math.exp, margin))) - margin[int(y)]
    off = y - margin[0]
    if objective == "squared":
        return off * off
    if objective == "pinball":
        return off * (level - (off < 0))
    return margin[0] - y + (y * math.log(y / margin[0]) if y > 0 else 0.0)


def divided_anew(share):
    return [(1 - SWITCH) * s / sum(share) + SWITCH / len(share) for s in share]


def is_wrong(objective, margin, y):
    return (margin[0] > 0) != (y == 1) if objective == "logistic" else int(np.argmax(margin)) != y


def blend(objective, level, margins, ys):
    """Return the blended margins of rows (members, n, outputs), and the last shares; all weights are 1."""
    members, n, outputs = np.shape(margins)
    labels, classes = [0.5, 0.5], objective in ("logistic", "softmax")
    share, steady, typical, recent, out = [1 / members] * members, [1 / members] * members, 0.0, 0.0, []
    for i, y in enumerate(ys):
        own = [[float(m) for m in margins[k][i]] for k in range(members)]
        log = objective == "counts"
        means = [sum(s * (math.log(m[k]) if log else m[k]) for s, m in zip(share, own)) for k in range(outputs)]
        means = [math.exp(m) if log else m for m in means]
        out.append([(1 - labels[1]) * m + labels[1] * f for m, f in zip(means, own[0])] if classes else means)
        losses = [loss_of(objective, level, m, y) for m in own]
        best = min(losses)
        typical, recent = RECENT * typical + best, RECENT * recent + 1
        unit = typical / recent * (1 if objective == "pinball" else 2)
        for k, loss in enumerate(losses):
            loss -= best
            if not classes:
                loss = min(loss / unit, WORST) if unit > 0 else WORST * (loss > 0)
            share[k] *= math.exp(-loss)
        share = divided_anew(share)
        if classes:
            wrong = [is_wrong(objective, m, y) for m in (means, own[0])]
            labels = divided_anew([s * math.exp(-MISTAKE * w) for s, w in zip(labels, wrong)])
        ours = [labels[0] * s + labels[1] * (k == 0) for k, s in enumerate(share)] if classes else share
        steady = [t + (s - t) / min(i + 1, STEADY) for s, t in zip(ours, steady, strict=True)]
    return np.array(out), np.array(share), np.array(steady)
