"""One of each uncertainty set, for what all of them have in common."""

from kinfold.dro import KL, Average, ChiSquare, KLBall, OptimisticKL, Simplex, TopK, Trim

SETS = [
    Average(),
    Simplex(),
    TopK(3),
    KL(0.3),
    KLBall(radius=0.4),
    KLBall(effective=2),
    ChiSquare(radius=0.5),
    ChiSquare(effective=2),
    Trim(3),
    OptimisticKL(0.3),
]
