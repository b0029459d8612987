"""Losses of the order in which an anchor ranks its positives and negatives."""

import math

from tests.losses.references.arithmetic import Array, Mask, cosine, distance, mean, raw_distance, sigmoid, valid_anchors
from tests.losses.references.catalog import reference


@reference("fastap", {"bins": 4}, {"bins": 33})
def fastap(anchors: Array, references: Array, positives: Mask, negatives: Mask, bins: int = 10) -> float:
    """Mean over valid anchors of ``1 - AP``, ``AP = (1/|P|) sum_l H+_l h+_l / H_l`` over the nodes with ``H_l > 0``.

    Nodes ``4 l / bins`` for l = 0..bins on the squared distance. ``h+_l`` is the sum of
    ``max(0, 1 - |d^2 - node| / (4 / bins))`` over the positives, ``h_l`` the sum over positives and negatives, and
    ``H+_l``, ``H_l`` are the sums of ``h+``, ``h`` up to and including node l.
    """
    width = 4.0 / bins
    values = []
    for a, positive_rows, negative_rows in valid_anchors(positives, negatives):
        precision, total_own, total_all = 0.0, 0.0, 0.0
        for node_index in range(bins + 1):
            node = 4.0 * node_index / bins
            count_own, count_all = 0.0, 0.0
            for r in positive_rows + negative_rows:
                share = max(0.0, 1.0 - abs(distance(anchors[a], references[r]) ** 2 - node) / width)
                count_all += share
                if r in positive_rows:
                    count_own += share
            total_own += count_own
            total_all += count_all
            if total_all > 0.0:
                precision += total_own * count_own / total_all
        values.append(1.0 - precision / len(positive_rows))
    return mean(values)


@reference("ranked-list", {"margin": 0.9, "boundary": 1.3, "temperature": 2.0, "balance": 0.3})
def ranked_list(
    anchors: Array,
    references: Array,
    positives: Mask,
    negatives: Mask,
    margin: float = 0.4,
    boundary: float = 1.2,
    temperature: float = 10.0,
    balance: float = 0.5,
) -> float:
    """Mean over valid anchors of ``(1 - balance) * pull + balance * push``.

    ``pull``: mean of ``d - (boundary - margin)`` over the positives with ``d > boundary - margin``.
    ``push``: ``sum w (boundary - d) / sum w`` over the negatives with ``d < boundary``,
    ``w = exp(temperature (boundary - d))``. Either is zero when no pair qualifies.
    """
    values = []
    for a, positive_rows, negative_rows in valid_anchors(positives, negatives):
        gaps = []
        for p in positive_rows:
            d = distance(anchors[a], references[p])
            if d > boundary - margin:
                gaps.append(d - (boundary - margin))
        weighted, weights = 0.0, 0.0
        for n in negative_rows:
            d = distance(anchors[a], references[n])
            if d < boundary:
                weight = math.exp(temperature * (boundary - d))
                weighted += weight * (boundary - d)
                weights += weight
        push = weighted / weights if weights > 0.0 else 0.0
        values.append((1.0 - balance) * mean(gaps) + balance * push)
    return mean(values)


@reference("smooth-ap", {"temperature": 0.3})
def smooth_ap(anchors: Array, references: Array, positives: Mask, negatives: Mask, temperature: float = 0.01) -> float:
    """Mean over valid anchors of ``1 - AP``, AP = mean over p in P of (soft rank among P) / (soft rank among all).

    A soft rank of p is ``1 + sum_j sigmoid((s_j - s_p) / temperature)`` over the other members j of the set.
    """
    values = []
    for a, positive_rows, negative_rows in valid_anchors(positives, negatives):
        ratios = []
        for p in positive_rows:
            s_p = cosine(anchors[a], references[p])
            rank_own, rank_all = 1.0, 1.0
            for j in positive_rows + negative_rows:
                if j == p:
                    continue
                step = sigmoid((cosine(anchors[a], references[j]) - s_p) / temperature)
                rank_all += step
                if j in positive_rows:
                    rank_own += step
            ratios.append(rank_own / rank_all)
        values.append(1.0 - mean(ratios))
    return mean(values)


@reference("precision-at-k", {"k": 1}, {"k": 2, "margin": 0.5}, {"k": 7}, {"k": 100, "margin": 0.3})
def precision_at_k(
    anchors: Array, references: Array, positives: Mask, negatives: Mask, k: int = 4, margin: float = 0.1
) -> float:
    """Sum over anchors of ``sum_wrong s^ - sum_missed s^``, divided by the number of all anchors.

    ``s^ = s + margin`` for a negative and ``s^ = s`` for a positive; top = the k candidates with the largest s^.

    Fewer than k positives: missed = positives outside the top, wrong = as many lowest-ranked negatives of the top.
    Otherwise: wrong = negatives in the top, missed = as many highest-ranked positives outside the top.

    k is at most the number of candidates. An anchor that is not valid gives zero.
    """
    total = 0.0
    for a, positive_rows, negative_rows in valid_anchors(positives, negatives):
        score = {p: cosine(anchors[a], references[p]) for p in positive_rows}
        score.update({n: cosine(anchors[a], references[n]) + margin for n in negative_rows})
        ranking = sorted(sorted(score), key=lambda item: score[item], reverse=True)
        size = min(k, len(ranking))
        top, rest = ranking[:size], ranking[size:]
        if len(positive_rows) < size:
            missed = [item for item in rest if item in positive_rows]
            top_negatives = [item for item in top if item in negative_rows]
            intruders = top_negatives[len(top_negatives) - len(missed) :]
        else:
            intruders = [item for item in top if item in negative_rows]
            missed = [item for item in rest if item in positive_rows][: len(intruders)]
        total += sum(score[item] for item in intruders) - sum(score[item] for item in missed)
    return total / len(anchors) if len(anchors) else 0.0


@reference(
    "pnp",
    {"form": "o", "temperature": 0.1},
    {"form": "iu", "temperature": 0.2},
    {"form": "ib", "b": 3.0},
    {"form": "ds", "temperature": 0.05},
    {"alpha": 4.0, "temperature": 0.3},
)
def pnp(
    anchors: Array,
    references: Array,
    positives: Mask,
    negatives: Mask,
    form: str = "dq",
    alpha: float = 1.0,
    b: float = 2.0,
    temperature: float = 0.01,
) -> float:
    """Mean over valid anchors of ``mean_P f(z)``, ``z = sum_N sigmoid((s_n - s_p) / temperature)``."""
    functions = {
        "o": lambda z: z,
        "iu": lambda z: (1 + z) * math.log(1 + z),
        "ib": lambda z: (b * z - math.log(1 + b * z)) / b**2,
        "ds": lambda z: math.log(1 + z),
        "dq": lambda z: 1 - 1 / (1 + z) ** alpha,
    }
    values = []
    for a, positive_rows, negative_rows in valid_anchors(positives, negatives):
        terms = []
        for p in positive_rows:
            s = cosine(anchors[a], references[p])
            z = sum(sigmoid((cosine(anchors[a], references[n]) - s) / temperature) for n in negative_rows)
            terms.append(functions[form](z))
        values.append(mean(terms))
    return mean(values)


@reference("recall-at-k", {"k": (1, 3), "temperature": 0.1}, {"k": (2,), "k_temperature": 0.3})
def recall_at_k(
    anchors: Array,
    references: Array,
    positives: Mask,
    negatives: Mask,
    k: tuple[int, ...] = (1, 2, 4, 8, 16),
    temperature: float = 0.01,
    k_temperature: float = 1.0,
) -> float:
    """Mean over valid anchors of ``1 - mean_k min(k, sum_P sigmoid((k - rank) / t)) / min(k, |P|)``."""
    values = []
    for a, positive_rows, negative_rows in valid_anchors(positives, negatives):
        ranks = []
        for p in positive_rows:
            s = cosine(anchors[a], references[p])
            above = [
                sigmoid((cosine(anchors[a], references[r]) - s) / temperature)
                for r in positive_rows + negative_rows
                if r != p
            ]
            ranks.append(1.0 + sum(above))
        recalls = [
            min(cut, sum(sigmoid((cut - rank) / k_temperature) for rank in ranks)) / min(cut, len(positive_rows))
            for cut in k
        ]
        values.append(1.0 - mean(recalls))
    return mean(values)


def rising_step(gap: float, temperature: float) -> float:
    """A sigmoid up to zero, half a step above it, and a line of slope 100 from 0.05 on."""
    if gap <= 0:
        return sigmoid(gap / temperature)
    if gap <= 0.05:
        return 0.5 + sigmoid(gap / temperature)
    return 100.0 * (gap - 0.05) + 0.5 + sigmoid(0.05 / temperature)


def hierarchical_value(scores: list[float], relevances: list[float], temperature: float) -> float:
    """One minus the bound of hierarchical average precision of one anchor, for all items that it ranks."""
    total = 0.0
    for p in range(len(scores)):
        if relevances[p] == 0:
            continue
        gained, rank = relevances[p], 1.0
        for j in range(len(scores)):
            if j == p:
                continue
            is_above = scores[j] >= scores[p]
            if is_above:
                gained += min(relevances[p], relevances[j])
            if relevances[j] < relevances[p]:
                rank += rising_step(scores[j] - scores[p], temperature)
            elif is_above:
                rank += 1.0
        total += gained / rank
    return 1.0 - total / sum(relevances)


@reference("happier", {"temperature": 0.1, "balance": False})
def happier(
    anchors: Array,
    references: Array,
    positives: Mask,
    negatives: Mask,
    temperature: float = 0.01,
    balance: bool = True,
) -> float:
    """Mean over valid anchors of `hierarchical_value`, all positives with relevance one."""
    values = []
    for a, positive_rows, negative_rows in valid_anchors(positives, negatives):
        scores = [cosine(anchors[a], references[r]) for r in positive_rows + negative_rows]
        relevances = [1.0] * len(positive_rows) + [0.0] * len(negative_rows)
        values.append(hierarchical_value(scores, relevances, temperature))
    return mean(values)


@reference("roadmap", {"temperature": 0.1, "weight": 0.2}, {"positive_threshold": 0.4, "negative_threshold": -0.1})
def roadmap(
    anchors: Array,
    references: Array,
    positives: Mask,
    negatives: Mask,
    temperature: float = 0.01,
    weight: float = 0.5,
    positive_threshold: float = 0.9,
    negative_threshold: float = 0.6,
) -> float:
    """Mean over valid anchors of the bound of one minus average precision, and of hinges on cosines."""
    values = []
    for a, positive_rows, negative_rows in valid_anchors(positives, negatives):
        near = [cosine(anchors[a], references[p]) for p in positive_rows]
        far = [cosine(anchors[a], references[n]) for n in negative_rows]
        precisions = []
        for s in near:
            rank = sum(1 for other in near if other >= s)
            precisions.append(rank / (rank + sum(rising_step(other - s, temperature) for other in far)))
        calibration = mean([max(0.0, positive_threshold - s) for s in near])
        calibration += mean([max(0.0, s - negative_threshold) for s in far])
        values.append((1 - weight) * (1 - mean(precisions)) + weight * calibration)
    return mean(values)


@reference("log-ratio", {"squared": False, "epsilon": 0.1}, {"normalize": True, "epsilon": 0.01})
def log_ratio(
    anchors: Array,
    references: Array,
    positives: Mask,
    negatives: Mask,
    squared: bool = True,
    normalize: bool = False,
    epsilon: float = 1e-6,
) -> float:
    """Mean over anchors with two items or more of the mean over pairs of items of the squared log-ratio."""
    values = []
    for a in range(len(anchors)):
        items = [
            (r, 0.0 if positives[a, r] else 1.0) for r in range(len(references)) if positives[a, r] | negatives[a, r]
        ]
        logs = []
        for r, label_distance in items:
            d = (distance if normalize else raw_distance)(anchors[a], references[r])
            logs.append(math.log((d**2 if squared else d) + epsilon) - math.log(label_distance + epsilon))
        pairs = [(logs[i] - logs[j]) ** 2 for j in range(len(logs)) for i in range(j)]
        if pairs:
            values.append(mean(pairs))
    return mean(values)
