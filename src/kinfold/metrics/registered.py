"""Registered metrics of clusters, the embedding space, pairs and open sets. Those of rankings are in `retrieval`.

Each function returns what its metric is computed from, and how.
"""

from kinfold.metrics import agreement, embedding_space
from kinfold.metrics.class_rates import ClassRates
from kinfold.metrics.metric_kinds import (
    ClassRateMetric,
    ClusteringMetric,
    EmbeddingSpaceMetric,
    OpenSetMetric,
    PairMetric,
)
from kinfold.metrics.open_set_scores import OpenSetScores
from kinfold.metrics.verification_curve import VerificationCurve


def nmi() -> ClusteringMetric:
    """Normalized mutual information 2 I / (H(classes) + H(clusters)) of k-means with as many clusters as classes.

    I is the mutual information of classes and clusters, H the entropy (Manning et al., 2008). It grows with the
    number of clusters even by chance; `ami` does not.
    """
    return ClusteringMetric(agreement.nmi)


def ami() -> ClusteringMetric:
    """Mutual information of k-means clusters and classes, adjusted for chance (Vinh et al., 2010).

    (I - E[I]) / ((H(classes) + H(clusters)) / 2 - E[I]), E[I] the mean over tables with the same sums.
    """
    return ClusteringMetric(agreement.ami)


def f1() -> ClusteringMetric:
    """F1 of pairs in one k-means cluster against pairs of one class: 2 TP / (pairs of a class + pairs of a cluster).

    TP is the number of pairs that share both class and cluster.
    """
    return ClusteringMetric(agreement.pairwise_f1)


def nmi_coarse() -> ClusteringMetric:
    """Normalized mutual information of the coarse labels and as many k-means clusters; see `nmi`."""
    return ClusteringMetric(agreement.nmi, coarse=True)


def ami_coarse() -> ClusteringMetric:
    """Adjusted mutual information of the coarse labels and as many k-means clusters; see `ami`."""
    return ClusteringMetric(agreement.ami, coarse=True)


def f1_coarse() -> ClusteringMetric:
    """F1 of pairs for the coarse labels and as many k-means clusters; see `f1`."""
    return ClusteringMetric(agreement.pairwise_f1, coarse=True)


def rho(k: int) -> EmbeddingSpaceMetric:
    """KL(uniform || singular values without the k - 1 largest): 0 is a flat spectrum (Roth et al., 2020).

    The remaining singular values are divided by their sum.

    Args:
        k: The first singular value that counts, from 1, the largest.
    """
    return EmbeddingSpaceMetric(
        lambda rows, labels, world: embedding_space.spectral_decay(embedding_space.spectrum(rows), drop=k - 1)
    )


def uniformity() -> EmbeddingSpaceMetric:
    """log mean over pairs of exp(-2 |x - y|^2) on the unit sphere (Wang and Isola, 2020); lower is more even."""
    return EmbeddingSpaceMetric(lambda rows, labels, world: embedding_space.uniformity(rows, world=world))


def alignment() -> EmbeddingSpaceMetric:
    """Mean of |x - y|^2 over positive pairs on the unit sphere (Wang and Isola, 2020); lower is tighter."""
    return EmbeddingSpaceMetric(lambda rows, labels, world: embedding_space.alignment(rows, labels))


def intra() -> EmbeddingSpaceMetric:
    """Mean over classes of the mean cosine distance within a class (Roth et al., 2020)."""
    return EmbeddingSpaceMetric(lambda rows, labels, world: embedding_space.intra(rows, labels))


def inter() -> EmbeddingSpaceMetric:
    """Mean cosine distance between the directions of class means (Roth et al., 2020)."""
    return EmbeddingSpaceMetric(lambda rows, labels, world: embedding_space.inter(rows, labels))


def density() -> EmbeddingSpaceMetric:
    """intra / inter, the ratio of Roth et al. (2020), in whose study larger values went with better generalization."""
    return EmbeddingSpaceMetric(lambda rows, labels, world: embedding_space.density(rows, labels))


def roc_auc() -> PairMetric:
    """Area under the ROC curve of all pairs: P(positive scores above negative) + P(equal) / 2 (Fawcett, 2006)."""
    return PairMetric(VerificationCurve.roc_auc)


def pr_auc() -> PairMetric:
    """Average precision over all pairs: sum over thresholds of (recall gained) x precision.

    Positive pairs are rare among all pairs, which this metric takes into account (Davis and Goadrich, 2006).
    """
    return PairMetric(VerificationCurve.pr_auc)


def eer() -> PairMetric:
    """Equal error rate over all pairs: the false-accept rate where it equals the false-reject rate."""
    return PairMetric(VerificationCurve.equal_error_rate)


def tar_at_far(far: float) -> PairMetric:
    """True-accept rate of positive pairs at the threshold where at most a share `far` of negative pairs is accepted.

    Args:
        far: The false-accept rate, from 0 to 1.
    """
    _check_rate(far)
    return PairMetric(lambda curve: curve.tar_at_far(far))


def threshold_at_far(far: float) -> PairMetric:
    """Threshold of `tar@far`: the lowest score of a positive pair with at most a share `far` of negatives above.

    It is a similarity, or a distance for "euclidean". It is measured on these classes. For classes never seen,
    `kinfold calibrate` chooses a threshold.

    Args:
        far: The false-accept rate, from 0 to 1.
    """
    _check_rate(far)
    return PairMetric(lambda curve: curve.threshold_at_far(far))


def opis() -> ClassRateMetric:
    """Operating-point inconsistency: variance over classes of F(t), averaged over thresholds (Zhang et al., 2024).

    F(t) = 2 TAR (1 - FAR) / (TAR + 1 - FAR) of the pairs of one class. The 33 thresholds are spaced evenly from
    threshold@far=0.1 to threshold@far=0.01 of all pairs. Zero: one threshold serves all classes alike.
    """
    return ClassRateMetric(ClassRates.inconsistency)


def dir_at_far(far: float) -> OpenSetMetric:
    """Detection and identification rate of an open set (Phillips et al., 2011).

    Share of queries of enrolled classes whose nearest item is of their class and above the threshold at which at most a
    share `far` of queries of other classes is accepted. Within one set each class is once left out of the gallery.

    Args:
        far: The false-positive identification rate, from 0 to 1.
    """
    _check_rate(far)
    return OpenSetMetric(lambda scores: scores.identification_rate(far))


def auroc_open() -> OpenSetMetric:
    """P(a query of an enrolled class is nearer to its nearest item than a query of another class) + P(equal) / 2.

    Within one set each class is once left out of the gallery.
    """
    return OpenSetMetric(OpenSetScores.roc_auc)


def _check_rate(far: float) -> None:
    if not 0.0 <= far <= 1.0:
        raise ValueError(f"the false-accept rate must be between 0 and 1, got {far}")
