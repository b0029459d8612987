"""Losses of a clustering of the batch, by loops over sets of items."""

import math

from tests.losses.references.arithmetic import Array, Mask, distance
from tests.losses.references.catalog import reference


def mutual_information(first: list[int], second: list[int]) -> float:
    """``I / sqrt(H H)`` of two clusterings of the same items; 1 if both have one cluster."""
    size = len(first)
    shares_first = {a: first.count(a) / size for a in first}
    shares_second = {b: second.count(b) / size for b in second}
    if len(shares_second) == 1:
        return 1.0
    entropy_first = -sum(p * math.log(p) for p in shares_first.values())
    entropy_second = -sum(p * math.log(p) for p in shares_second.values())
    information = 0.0
    pairs = list(zip(first, second, strict=True))
    for a, b in set(pairs):
        joint = pairs.count((a, b)) / size
        information += joint * math.log(joint / (shares_first[a] * shares_second[b]))
    return information / max(math.sqrt(entropy_first * entropy_second), 1e-10)


def serve(costs: list[list[float]], facilities: list[int]) -> list[int]:
    """Number of the nearest facility of every item, the earliest of equally near ones."""
    clusters = []
    for row in costs:
        best = 0
        for number, facility in enumerate(facilities):
            if row[facility] < row[facilities[best]]:
                best = number
        clusters.append(best)
    return clusters


@reference("facility-location", {"weight": 1.0}, {"weight": 3.0, "rounds": 0})
def facility_location(
    anchors: Array,
    references: Array,
    positives: Mask,
    negatives: Mask,
    weight: float = 10.0,
    rounds: int = 5,
) -> float:
    """``[F(S) + weight (1 - NMI(S)) - F*]+`` for the S of a greedy search and of swaps within clusters."""
    columns = range(len(references))
    items = [a for a in range(len(anchors)) if not all(negatives[a])]
    if not items:
        return 0.0
    itself = {(a, r) for a in items for r in columns if not positives[a, r] and not negatives[a, r]}
    costs = [[0.0 if (a, r) in itself else distance(anchors[a], references[r]) for r in columns] for a in items]
    classes = [min(r for r in columns if not negatives[a, r]) for a in items]

    def disagreement(facilities: list[int]) -> float:
        return weight * (1.0 - mutual_information(serve(costs, facilities), classes))

    def service(facilities: list[int]) -> float:
        return -sum(min(row[facility] for facility in facilities) for row in costs)

    def remoteness(r: int) -> float:
        return 1e-9 * sum(row[r] for row in costs)  # decides among facilities with the same score

    def augmented(facilities: list[int]) -> float:
        return service(facilities) + disagreement(facilities) - remoteness(facilities[-1])

    facilities: list[int] = []
    while len(facilities) < len(set(classes)):
        free = [r for r in columns if r not in facilities]
        facilities.append(max(free, key=lambda r: augmented([*facilities, r])))
    for _ in range(rounds):
        clusters = serve(costs, facilities)
        for number in range(len(facilities)):
            inside = [i for i in range(len(items)) if clusters[i] == number]
            others = [*facilities[:number], *facilities[number + 1 :]]
            candidates = [
                r
                for r in columns
                if any((items[i], r) in itself for i in inside) or not any((a, r) in itself for a in items)
            ]
            if candidates:
                facilities[number] = max(
                    candidates,
                    key=lambda r: disagreement([*others, r]) - sum(costs[i][r] for i in inside) - remoteness(r),
                )
    truth = 0.0
    for name in set(classes):
        members = [i for i in range(len(items)) if classes[i] == name]
        centers = [r for r in columns if not any(negatives[items[i], r] for i in members)]
        truth += min(sum(costs[i][r] for i in members) for r in centers)
    return max(0.0, service(facilities) + disagreement(facilities) + truth)
