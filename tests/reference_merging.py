"""Merging two untuned learners, feature by feature and with full Hessians (docs/online-mathematics.md)."""

from __future__ import annotations

import math

import numpy as np

A0, A0_OF_NUMBERS = 3 / 16, 1 / 2


def statistics(state):
    """Return the statistics of a state as plain numbers: of features, rows and targets."""
    e = state.experts
    table = [dict(zip(row.dtype.names, (float(v) for v in row.tolist()))) for row in e.features.table]
    for row in table:
        number = int(row["number"])
        row["centre"] = float(e.features.centre[0, number - 1]) if number else None
        row["mean"] = float(e.features.centre[1, number - 1]) if number else None
    totals = dict(zip(e.features.totals.dtype.names, (float(v) for v in e.features.totals[0].tolist())))
    targets = dict(zip(e.mix.targets.dtype.names, (float(v) for v in e.mix.targets[0].tolist())))
    a0 = A0_OF_NUMBERS if targets["numbers"] else A0
    return {"table": table, "totals": totals, "targets": targets, "share": totals["prior"] / a0, "n": state.seen}


def mean(values, weights):
    total = sum(weights)
    return sum(v * w for v, w in zip(values, weights)) / total


def merged_features(a, b, share):
    """Return the table of the merged learner without curvatures."""
    out = []
    for j in range(len(a["table"])):
        rows = [part["table"][j] for part in (a, b)]
        seen = [row["inverse"] > 0 or row["centre"] is not None for row in rows]
        if not any(seen):
            out.append(None)
            continue
        centred = any(row["centre"] is not None for row in rows)
        # Only a part that has centred a feature has its centre and its variance.
        informed = [i for i in (0, 1) if seen[i] and (rows[i]["centre"] is not None or not centred)]
        counts = [rows[i]["count"] for i in informed]
        new = {"square": mean([rows[i]["square"] for i in informed], counts)}
        scaled = [i for i in informed if rows[i]["inverse"] > 0]
        if scaled:
            counts = [rows[i]["count"] for i in scaled]
            new["S"] = math.exp(mean([-math.log(rows[i]["inverse"]) for i in scaled], counts))
            new["P"] = mean([rows[i]["prior"] * share / (a, b)[i]["share"] for i in scaled], counts)
        else:
            new["S"], new["P"] = math.inf, 0.0
        if centred:
            counts = [rows[i]["count"] for i in informed]
            new["centre"] = mean([rows[i]["centre"] for i in informed], counts)
            new["mean"] = mean([rows[i]["mean"] for i in informed], counts)
        out.append(new)
    return out


def in_new_units(state, part, new, totals, targets):
    """Return weights (features, outputs, experts), priors of features, and the sums: slow, fast, exact and B."""
    e, mix = state.experts, state.experts.mix
    w = state.all_weights().copy()
    d, numbers, counts = len(w), targets["numbers"] > 0, targets["counts"] > 0
    unit = 1.0 if counts else part["targets"]["unit"] / targets["unit"]
    if counts:
        offset = math.log(part["targets"]["unit"] / targets["unit"])
    else:
        offset = (part["targets"]["offset"] - targets["offset"]) / targets["unit"]
    w *= unit
    scale, t = np.ones(d), np.zeros(d)  # a row x of the sums becomes x_j scale_j - 4 t_j x_0
    away = np.zeros(d)
    for j in range(1, d):
        row = part["table"][j]
        ratio = 1.0
        if new[j] is not None and row["inverse"] > 0 and np.isfinite(new[j]["S"]):
            ratio = new[j]["S"] * row["inverse"]
        for k in range(w.shape[2]):
            w[j, :, k] *= ratio * (part["totals"]["length"] / totals["length"] if mix.linear[k] else 1.0)
        scale[j] = 1.0 / ratio * (totals["length"] / part["totals"]["length"] if numbers else 1.0)
        if new[j] is not None and "centre" in new[j]:
            away[j] = (new[j]["centre"] - (row["centre"] or 0.0)) / new[j]["S"]
    for k in range(w.shape[2]):
        f = totals["length"] if mix.linear[k] else part["totals"]["norm"]
        for c in range(w.shape[1]):
            w[0, c, k] += 4.0 * f * sum(away[j] * w[j, c, k] for j in range(1, d)) + 4.0 * offset
    t = away * (totals["length"] if numbers else part["totals"]["norm"])
    if counts:
        scale *= math.exp(offset / 2)
    move = np.eye(d)
    move[1:, 0] = -4.0 * t[1:]
    scaled = [np.diag(scale) @ each @ np.diag(scale) for each in e.exact.past]
    past = [move @ each @ move.T for each in scaled]
    rows = [move @ (scale * each) for each in e.low_rank.sketch]
    sums = []
    for memory, name in enumerate(("slow", "fast")):
        own = part["table"][0][name] * scale[0] ** 2
        diagonal = []
        for j in range(d):
            row = part["table"][j]
            # A feature has a zero product with the intercept about its own centre, but not about a new one.
            cross = 0.0 if row["centre"] is not None else 4.0 * t[j] * own
            if memory < len(past):
                cross = scaled[memory][0, j]
            diagonal.append(max(row[name] * scale[j] ** 2 - 8.0 * t[j] * cross + (4.0 * t[j]) ** 2 * own, 0.0))
        sums.append(np.array(diagonal))
    prior = np.array([0.0 if new[j] is None or part["table"][j]["inverse"] == 0 else new[j]["P"] for j in range(d)])
    return w, prior, sums, past, rows


def merged_bets(states, parts, new, totals, targets):
    """Return the bets (features, outputs, bettors) of the merged learner as weights of a linear expert."""
    d, outputs = len(new), states[0].outputs
    bettors = states[0].experts.bets.shape[2] // outputs
    out = np.zeros((d, outputs, bettors))
    squares, rows = (sum(part["totals"][name] for part in parts) for name in ("bet_squares", "bet_rows"))
    share = min(sum(part["share"] for part in parts), 1.0)
    for c in range(outputs):
        for k in range(bettors):
            alpha, every = 2.0 ** (k - 1), []
            for state, part in zip(states, parts):
                z, g, wealth = (state.experts.bets[:, i, c * bettors + k].astype(float) for i in range(3))
                if targets["counts"]:
                    unit, offset = 1.0, math.log(part["targets"]["unit"] / targets["unit"])
                else:
                    unit = part["targets"]["unit"] / targets["unit"]
                    offset = (part["targets"]["offset"] - targets["offset"]) / targets["unit"]
                b = unit * (alpha + wealth) * z / (part["share"] + g)
                wealth = unit * (alpha + wealth) - alpha
                root = math.sqrt(part["totals"]["bet_squares"] / part["totals"]["bet_rows"])
                z[0] += offset * root * (part["share"] + g[0]) / (alpha + wealth[0])
                for j in range(1, d):  # a new centre
                    if new[j] is not None and "centre" in new[j]:
                        away = (new[j]["centre"] - (part["table"][j]["centre"] or 0.0)) / new[j]["S"]
                        z[0] += away / 2 * b[j] * (part["share"] + g[0]) / (alpha + wealth[0])
                z[0] = np.clip(z[0], -g[0], g[0])
                every.append((z, g, wealth))
            for j in range(d):
                known = [part["share"] * (part["table"][j]["inverse"] > 0) for part in parts]
                if sum(known) == 0:
                    continue
                z, g = (sum(each[i][j] for each in every) for i in (0, 1))
                wealth = mean([each[2][j] for each in every], [p + each[1][j] for p, each in zip(known, every)])
                bet = (alpha + wealth) * z / (share + g) / math.sqrt(squares / rows)
                out[j, c, k] = bet * 4.0 if j == 0 else bet / 2 / totals["length"]
    return out


def merge(one, two):
    """Return the merged features, weights and shares of two settled states of the same width and form."""
    a, b = statistics(one), statistics(two)
    share = min(a["share"] + b["share"], 1.0)
    new = merged_features(a, b, share)
    n = [a["n"], b["n"]]
    totals = {name: mean([part["totals"][name] for part in (a, b)], n) for name in ("length", "norm")}
    targets = dict(a["targets"])
    targets["offset"] = mean([part["targets"]["offset"] for part in (a, b)], n)
    targets["unit"] = math.exp(mean([math.log(part["targets"]["unit"]) for part in (a, b)], n))
    parts = [in_new_units(s, p, new, totals, targets) for s, p in ((one, a), (two, b))]
    count, ladder, bettors = one.count, one.experts.exact.ladder, one.experts.bets.shape[2] // one.outputs
    w = np.zeros_like(parts[0][0])
    priors = [p[1] * part["share"] / share for p, part in zip(parts, (a, b))]
    w[:, :, 2 * count : 2 * count + bettors] = merged_bets((one, two), (a, b), new, totals, targets)
    for k in range(w.shape[2]):
        group, line = k // count, k - 2 * count
        if 0 <= line < bettors:
            continue
        if line >= 2 * bettors:
            group = 2 + (line - 2 * bettors) // count
        hessians = []
        for (_, _, sums, past, rows), prior, part in zip(parts, priors, (a, b)):
            if bettors <= line < 2 * bettors:  # a flat prior
                flat = part["share"] * (prior > 0)
                h = np.diag(flat + sums[0])
            elif group < 2:
                h = np.diag(prior + sums[group])
            elif past:
                last = len(past) > 1 and group - 2 == len(ladder) - 1
                h = ladder[group - 2] * np.diag(prior) + past[1 if last else 0]
            else:
                b_rows = np.array(rows)
                h = b_rows.T @ b_rows
                h += np.diag(prior + np.maximum(sums[0] - np.diag(h), 0.0))
            hessians.append(h)
        total = sum(hessians)
        unseen = np.diag(total) == 0
        total[unseen, unseen] = 1.0
        for c in range(w.shape[1]):
            right = sum(h @ p[0][:, c, k] for h, p in zip(hessians, parts))
            w[:, c, k] = np.linalg.solve(total, right)
    sums = [parts[0][2][m] + parts[1][2][m] for m in (0, 1)]
    mixes = one.experts.mix, two.experts.mix
    shares = [
        np.array([mean([x, y], n) for x, y in zip(*(getattr(mix, name).ravel() for mix in mixes))])
        for name in ("share", "steady")
    ]
    return {
        "features": new, "weights": w, "slow": sums[0], "fast": sums[1], "share": share, "shares": shares,
        "totals": totals, "targets": targets,
    }  # fmt: skip
