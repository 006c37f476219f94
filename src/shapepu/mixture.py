"""Mixture ratios (Eq. 1): the share of each class in the unlabelled pixels, from a network's posteriors.

A network trained on scribbles gives posteriors q under the labelled prior pi. Where the classes look alike
in labelled and unlabelled pixels, the unlabelled ones are a mixture of the same class densities, with ratios
alpha that maximise the concave log-likelihood

    l(alpha) = mean_i log sum_k alpha_k q_ik / pi_k        (alpha on the simplex).

Expectation-maximisation (Saerens et al. 2002) climbs it. :func:`e_step` and :func:`m_step` are one step as
the paper writes it; :func:`fit` takes the same steps, fast, over a pool of posteriors;
:class:`PosteriorHistogram` holds a pool of any size in a few megabytes. The estimate is as good as the
posteriors are calibrated and as the pool is large; symbols are in docs/equations.md.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from statistics import NormalDist

import torch
from torch import Tensor

NEGLIGIBLE = math.exp(-80.0)
"""A likelihood, relative to the pixel's largest, that can no longer move a ratio. Not much further down
float32 turns denormal, which is slow and not exact."""

PIXELS_PER_BLOCK = 2**15
"""Few enough that a block stays in the processor's cache and its float32 sums stay exact to about 1e-6."""

PIXELS_PER_CHUNK = 2**18
"""Counted into a histogram at a time: bounds the memory that :meth:`PosteriorHistogram.add` works in."""

RETURN_SHARE = 1e-3
"""Weight of the priors in a warm start: by products alone a ratio of 0 would stay there for ever."""

LONGEST_LEAP = 1e4
"""Of an extrapolation, in EM steps; where steps are down to rounding they point nowhere."""


@dataclass(frozen=True)
class MixtureState:
    """An estimate of the mixture ratios and how it was reached.

    Args:
        ratios: alpha, float64, shape (K,), on the simplex.
        iterations: EM steps taken.
        converged: whether the last step changed the ratios by no more than the tolerance.
        log_likelihood: of the pool under ``ratios``, per pixel; with pseudo-counts, their log-density
            included. NaN for an empty pool.
    """

    ratios: Tensor
    iterations: int
    converged: bool
    log_likelihood: float


def e_step(log_probs: Tensor, ratios: Tensor, priors: Tensor) -> Tensor:
    r"""The log responsibility of each class for each pixel under the present ratios.

    .. math:: r_{ij} = \frac{\alpha_j q_{ij} / \pi_j}{\sum_k \alpha_k q_{ik} / \pi_k}

    Args:
        log_probs: log q, shape (M, K).
        ratios: alpha, shape (K,).
        priors: pi, class shares among the labelled pixels, shape (K,). A class of prior 0 takes no
            responsibility: nothing is known of how it looks.

    Returns:
        log r, shape (M, K); a row of -inf for a pixel that no class explains.
    """
    log_weights = torch.where(priors > 0, ratios.log() - priors.log(), -torch.inf)
    joint = log_probs + log_weights
    total = joint.logsumexp(dim=1, keepdim=True)
    return joint - total.masked_fill(total == -torch.inf, 0.0)


def m_step(
    log_responsibilities: Tensor, *, weights: Tensor | None = None, pseudo_counts: Tensor | None = None
) -> Tensor:
    r"""The ratios that maximise the expected log-likelihood: the mean responsibility.

    .. math:: \alpha_j \leftarrow \frac{c_j + \sum_i v_i r_{ij}}{\sum_k c_k + \sum_i v_i}

    Args:
        log_responsibilities: log r, shape (M, K). Pixels that no class explains are left out.
        weights: v, how many pixels a row stands for, shape (M,); 1 each when None.
        pseudo_counts: c, pixels of each class assumed to have been seen beforehand (a Dirichlet prior with
            parameters c + 1, of which this is then the mode), shape (K,); 0 when None.
    """
    responsibilities = log_responsibilities.double().exp()
    if weights is not None:
        responsibilities = responsibilities * weights.double()[:, None]
    counts = responsibilities.sum(dim=0)
    if pseudo_counts is not None:
        counts = counts + pseudo_counts.to(counts)
    return counts / counts.sum().clamp(min=torch.finfo(counts.dtype).tiny)


def fit(
    log_probs: Tensor,
    priors: Tensor,
    *,
    weights: Tensor | None = None,
    start: Tensor | None = None,
    pseudo_counts: Tensor | None = None,
    tolerance: float,
    max_iterations: int,
) -> MixtureState:
    """Maximum-likelihood mixture ratios by accelerated EM; the likelihood never falls on the way.

    Plain EM creeps where the classes overlap, so every third point is an extrapolation of the last two steps
    (SQUAREM, Varadhan and Roland 2008), kept only when it is certain to raise the likelihood.

    Args:
        log_probs: log q, shape (M, K). Products are taken in its precision, sums always in float64.
        priors: pi, or counts in proportion to it, shape (K,). A class of prior 0 gets ratio 0.
        weights: how many pixels each row stands for, shape (M,).
        start: an earlier estimate to go on from; the priors, as in the paper, when None.
        pseudo_counts: see :func:`m_step`; in pixels, so it fades as the pool grows.
        tolerance: converged once the sum over classes of the absolute change in a step is no larger.
        max_iterations: EM steps at most.

    Returns:
        The final state. An empty pool says nothing: its state is the start, not converged.
    """
    priors = _shares(priors.detach().to(log_probs.device))
    ratios = _starting_point(priors, start)
    pool = _Pool.build(log_probs.detach(), priors, weights, pseudo_counts)
    if pool.total == 0:
        return MixtureState(ratios, 0, False, float("nan"))

    path, iterations, converged = [ratios], 0, False
    while iterations < max_iterations and not converged:
        path, slope = _leap_or_stay(pool, path)
        path.append(_shares(path[-1] * slope))
        iterations += 1
        converged = bool((path[-1] - path[-2]).abs().sum() <= tolerance)
    return MixtureState(path[-1], iterations, converged, pool.log_likelihood(path[-1]))


def standard_errors(
    log_probs: Tensor,
    priors: Tensor,
    ratios: Tensor,
    *,
    weights: Tensor | None = None,
    effective_count: float | None = None,
) -> Tensor:
    r"""Standard errors of fitted ratios, from the curvature of the log-likelihood.

    This is the observed Fisher information. With s_ik = (q_ik / pi_k) / sum_l alpha_l q_il / pi_l and
    I = sum_i s_i s_i^T over the classes present, the covariance is I^{-1} - alpha alpha^T / M; the second
    term is the constraint to the simplex. For perfectly separated classes it is the binomial one,
    alpha (1 - alpha) / M.

    It covers chance in the pool, not wrong posteriors: a miscalibrated network can be far off with a small
    error. Nor are neighbouring pixels independent; ``effective_count`` says how many independent ones the
    pool is worth (all of its weight when None, which is too optimistic for images).

    Returns:
        Shape (K,), float64; 0 where the ratio is 0, very large where the pool cannot tell classes apart.
    """
    priors = _shares(priors.detach().to(log_probs.device))
    pool = _Pool.build(log_probs.detach(), priors, weights, None)
    errors = torch.zeros_like(ratios, dtype=torch.float64)
    count = pool.total if effective_count is None else effective_count
    if count <= 0:
        return errors.masked_fill(ratios > 0, torch.inf)
    present = ratios > 0
    root = ratios[present].double().sqrt()
    # Scaled by the roots of the ratios, the information has its eigenvalues in [0, 1]: what "nearly singular"
    # means no longer depends on how rare a class is.
    information = pool.information(ratios)[present][:, present] * root[:, None] * root
    eigenvalues, vectors = torch.linalg.eigh(information)
    inverse_diagonal = (vectors.square() / eigenvalues.clamp(min=1e-12)).sum(dim=1)
    errors[present] = root * (inverse_diagonal - root.square()).clamp(min=0).sqrt() / count**0.5
    return errors


def confidence_lower_bound(ratios: Tensor, errors: Tensor, *, confidence: float) -> Tensor:
    """One-sided lower bounds of the ratios, each holding with the given confidence; never below 0.

    Args:
        ratios: alpha, shape (K,).
        errors: from :func:`standard_errors`, whose limits this inherits.
        confidence: for instance .95.
    """
    return (ratios - NormalDist().inv_cdf(confidence) * errors).clamp(min=0)


class PosteriorHistogram:
    """A pool of posteriors of any size in bounded memory: a weight and a mean posterior for each bin.

    Bins are cells of the logs of the probabilities relative to the pixel's largest. So they resolve a rare
    class at 1e-6 as finely as at 1/2, and all sure pixels of a class share one bin. Since a bin is stood for
    by its mean posterior, and the likelihood is linear in the posterior before its logarithm, the error of a
    fit is of second order in the bin width.

    Args:
        classes: K.
        bin_width: of the log relative probabilities; doubled as often as needed to stay within ``max_bins``.
        log_range: relative probabilities below exp(-log_range) fall into one bin.
        max_bins: occupied bins kept at most; each takes 8 (K + 2) bytes.
    """

    def __init__(
        self,
        classes: int,
        *,
        bin_width: float = 0.125,
        log_range: float = 14.0,
        max_bins: int = 2**16,
        device: torch.device | str = "cpu",
    ) -> None:
        self.classes = classes
        self.bin_width = bin_width
        self.log_range = log_range
        self.max_bins = max_bins
        self._keys = torch.zeros(0, dtype=torch.int64, device=device)
        # Row 0 is the weight of each bin, the others its weighted sum of posteriors.
        self._sums = torch.zeros(classes + 1, 0, dtype=torch.float64, device=device)

    def __len__(self) -> int:
        """Occupied bins."""
        return len(self._keys)

    @property
    def total(self) -> float:
        """Pixels in the pool, after forgetting."""
        return float(self.weights.sum())

    @property
    def weights(self) -> Tensor:
        """Pixels in each bin, shape (B,)."""
        return self._sums[0]

    @property
    def log_probs(self) -> Tensor:
        """Log of the mean posterior in each bin, shape (B, K): with ``weights`` a pool for :func:`fit`."""
        return (self._sums[1:] / self.weights).log().T

    def add(self, log_probs: Tensor, weights: Tensor | None = None) -> None:
        """Count pixels in: log q of shape (M, K), and optionally how many pixels each row stands for.

        Rows that are -inf throughout say nothing and are left out.
        """
        for first in range(0, len(log_probs), PIXELS_PER_CHUNK):
            chunk = slice(first, first + PIXELS_PER_CHUNK)
            # Class-major, as every pass below runs over one class at a time.
            logs = log_probs.detach()[chunk].T.to(torch.promote_types(log_probs.dtype, torch.float32))
            logs = logs.to(self._keys.device).contiguous()
            values = torch.ones(len(logs) + 1, logs.shape[1], dtype=torch.float64, device=logs.device)
            values[1:] = logs.exp()
            if weights is not None:
                values *= weights[chunk].to(values)
            counted = (logs.amax(dim=0) > -torch.inf) & (values[0] > 0)
            if not counted.all():
                logs, values = logs[:, counted], values[:, counted]
            self._accumulate(self._bins_of(logs), values)

    def merge(self, other: PosteriorHistogram) -> None:
        """Count in the pool of another process or epoch."""
        values = other._sums.to(self._sums)
        self._accumulate(self._bins_of(other.log_probs.T.to(values)), values)

    def decay(self, factor: float) -> None:
        """Forget: multiply every weight by ``factor``. Bins that have faded to nothing are dropped."""
        self._sums = self._sums * factor
        kept = self.weights > 1e-10 * self.weights.sum()
        self._keys, self._sums = self._keys[kept], self._sums[:, kept]

    def thresholds(self, ratios: Tensor) -> Tensor:
        """For each class the log probability above which its share of the pool lies, shape (K,).

        For :func:`shapepu.losses.rule_out_below`. A bin that straddles the share is kept whole, so sure
        pixels of a class are never told apart by chance; +inf for a ratio of 0, -inf for 1.
        """
        log_probs, weights = self.log_probs, self.weights
        limits = torch.full((self.classes,), torch.inf, dtype=torch.float64, device=weights.device)
        for label in range(self.classes):
            if ratios[label] <= 0:
                continue
            scores, order = log_probs[:, label].sort(descending=True)
            covered = weights[order].cumsum(dim=0)
            last = int(torch.searchsorted(covered, float(ratios[label]) * self.total * (1 - 1e-12)))
            limits[label] = -torch.inf if last + 1 >= len(scores) else scores[last : last + 2].mean()
        return limits

    def state_dict(self) -> dict[str, Tensor]:
        """Everything a checkpoint needs to go on exactly; later pixels leave it as it is."""
        width = torch.tensor(self.bin_width, dtype=torch.float64)
        return {"keys": self._keys, "sums": self._sums, "bin_width": width}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Take over what :meth:`state_dict` gave, on this histogram's device."""
        saved = len(state["sums"]) - 1
        if saved != self.classes:
            raise ValueError(f"state of a histogram of {saved} classes, expected {self.classes}")
        self._keys = state["keys"].to(self._keys)
        self._sums = state["sums"].to(self._sums)
        self.bin_width = float(state["bin_width"])

    def _bins_of(self, logs: Tensor) -> Tensor:
        """The number of the bin of each column of log q, shape (K, M)."""
        depth = (logs.amax(dim=0) - logs).clamp_(max=self.log_range).div_(self.bin_width).round_()
        cells = depth.to(torch.int64)
        # Digits of one number. From about ten classes on it wraps around and could confuse two bins; among
        # the few that are occupied this practically does not happen.
        base = int(self.log_range / self.bin_width) + 2
        keys = cells[0]
        for digit in cells[1:]:
            keys = keys * base + digit
        return keys

    def _accumulate(self, keys: Tensor, values: Tensor) -> None:
        # First among themselves: a chunk occupies few bins, and the pool is then merged with those only.
        keys, values = _sum_by_key(keys, values)
        self._keys, self._sums = _sum_by_key(
            torch.cat([self._keys, keys]), torch.cat([self._sums, values], dim=1)
        )
        while len(self) > self.max_bins:
            self.bin_width *= 2
            self._keys, self._sums = _sum_by_key(self._bins_of(self.log_probs.T), self._sums)


def _sum_by_key(keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
    unique, position = torch.unique(keys, return_inverse=True)
    sums = torch.zeros(len(values), len(unique), dtype=values.dtype, device=values.device)
    return unique, sums.index_add_(1, position, values)


def _shares(values: Tensor) -> Tensor:
    values = values.double()
    total = values.sum()
    assert total > 0, f"class shares need a positive sum, got {values.tolist()}"
    return values / total


def _starting_point(priors: Tensor, start: Tensor | None) -> Tensor:
    if start is None:
        return priors
    known = _shares(start.detach().to(priors)).masked_fill(priors == 0, 0.0)
    return _shares((1 - RETURN_SHARE) * known + RETURN_SHARE * priors)


def _leap_or_stay(pool: _Pool, path: list[Tensor]) -> tuple[list[Tensor], Tensor]:
    """The path up to the point to step from, and the slope there; after two steps a leap, if it is uphill."""
    if len(path) == 3:
        leap = _extrapolate(*path)
        slope = pool.slope(leap)
        # A concave function is no lower at b than at a when it still rises at b in the direction b - a. So
        # the slope, wanted at the leap anyway, decides without a logarithm a pixel.
        if slope @ (leap - path[-1]) >= 0:
            return [leap], slope
        path = path[-1:]
    return path, pool.slope(path[-1])


def _extrapolate(first: Tensor, second: Tensor, third: Tensor) -> Tensor:
    """Where three EM points in a row are heading; the third itself when they say nothing."""
    step = second - first
    bend = (third - second) - step
    reach = min(float(step.norm() / bend.norm().clamp(min=1e-300)), LONGEST_LEAP)
    if reach <= 1:
        return third
    # Floored, since a ratio at 0 would stay there.
    return _shares(torch.maximum(first + 2 * reach * step + reach**2 * bend, 0.01 * third))


@dataclass(frozen=True)
class _Pool:
    """What EM needs of the pixels, computed once.

    The E and M steps together are alpha_j <- alpha_j * mean_i(p_ij / sum_k alpha_k p_ik) with p = q / pi: two
    matrix-vector products, no logarithm or exponential in the loop. Responsibilities do not change when a
    pixel's likelihoods are all multiplied by one number, so each row is scaled to a largest value of 1 while
    still in log space. From there on nothing that matters can overflow or underflow.
    """

    likelihoods: Tensor
    """p, shape (K, M): class-major, so that both products run along contiguous memory."""
    weights: Tensor | None
    pseudo_counts: Tensor
    total: float
    log_scale: float
    """Mean log of what the rows were divided by."""

    @classmethod
    def build(
        cls, log_probs: Tensor, priors: Tensor, weights: Tensor | None, pseudo_counts: Tensor | None
    ) -> _Pool:
        dtype = torch.float64 if log_probs.dtype == torch.float64 else torch.float32
        classes, pixels = len(priors), len(log_probs)
        likelihoods = torch.empty(classes, pixels, dtype=dtype, device=log_probs.device)
        peaks = torch.empty(pixels, dtype=dtype, device=log_probs.device)
        # A class of prior 0 gets log-likelihood -inf: it takes part in nothing.
        log_weights = torch.where(priors > 0, -priors.log(), -torch.inf).to(dtype)[:, None]
        for first in range(0, pixels, PIXELS_PER_BLOCK):
            block = slice(first, first + PIXELS_PER_BLOCK)
            rows = likelihoods[:, block].copy_(log_probs[block].T).add_(log_weights)
            peaks[block] = rows.amax(dim=0)
            torch.threshold_(rows.sub_(peaks[block]).exp_(), NEGLIGIBLE, 0.0)
        assert not peaks.isnan().any(), "NaN among the log probabilities"

        unknown = peaks == -torch.inf
        if unknown.any():
            # Nothing explains these pixels: weight 0, and a likelihood that keeps the division finite.
            likelihoods[:, unknown], peaks[unknown] = 1.0, 0.0
            weights = (~unknown).double() if weights is None else weights.detach().masked_fill(unknown, 0.0)
        weights = None if weights is None else weights.detach().to(likelihoods)
        total = float(pixels) if weights is None else float(weights.sum(dtype=torch.float64))
        scaled = peaks if weights is None else peaks * weights
        counts = torch.zeros_like(priors) if pseudo_counts is None else pseudo_counts.to(priors)
        counts = counts.masked_fill(priors == 0, 0.0)
        return cls(
            likelihoods, weights, counts, total, float(scaled.sum(dtype=torch.float64)) / max(total, 1e-300)
        )

    def slope(self, ratios: Tensor) -> Tensor:
        """Gradient of the log-likelihood; times the ratios it is one EM step."""
        gradient = self.pseudo_counts / ratios.clamp(min=1e-300)
        for likelihoods, weights, mixture in self._mixtures(ratios):
            share = mixture.reciprocal_() if weights is None else weights / mixture
            gradient = gradient + likelihoods @ share
        return gradient / (self.total + self.pseudo_counts.sum())

    def information(self, ratios: Tensor) -> Tensor:
        """Mean outer product of the scores, shape (K, K)."""
        outer = torch.zeros(len(ratios), len(ratios), dtype=torch.float64, device=self.likelihoods.device)
        for likelihoods, weights, mixture in self._mixtures(ratios):
            scores = likelihoods / mixture
            outer += scores @ (scores if weights is None else scores * weights).T
        return outer / self.total

    def log_likelihood(self, ratios: Tensor) -> float:
        value = torch.xlogy(self.pseudo_counts, ratios).sum()
        for _, weights, mixture in self._mixtures(ratios):
            logs = mixture.log_() if weights is None else mixture.log_().mul_(weights)
            value = value + logs.sum(dtype=torch.float64)
        return float(value) / self.total + self.log_scale

    def _mixtures(self, ratios: Tensor) -> Iterator[tuple[Tensor, Tensor | None, Tensor]]:
        """Block by block: the likelihoods, the weights, and sum_k alpha_k p_k."""
        narrow = ratios.to(self.likelihoods)
        for first in range(0, self.likelihoods.shape[1], PIXELS_PER_BLOCK):
            block = slice(first, first + PIXELS_PER_BLOCK)
            likelihoods = self.likelihoods[:, block]
            yield likelihoods, None if self.weights is None else self.weights[block], narrow @ likelihoods
