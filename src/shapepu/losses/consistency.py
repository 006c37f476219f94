"""The shape term: what is cut out and turned must be segmented as before (Eq. 3)."""

from __future__ import annotations

from torch import Tensor

SMALLEST_SQUARE = 1e-16
"""Of the product of squared norms: a map of zeros, which is never valid, must not divide by zero."""


def global_consistency(first_probs: Tensor, second_probs: Tensor, valid: Tensor) -> Tensor:
    r"""Cosine distance over the class axis between two predictions of the same pixels.

    .. math:: L_{global} = \frac{1}{|V|} \sum_{i \in V} \left(1 - \frac{a_i \cdot b_i}{\|a_i\| \|b_i\|}\right)

    Both sides receive a gradient.

    Args:
        first_probs: a, the prediction carried along with the view, T(f(X)), shape (N, K, H, W).
        second_probs: b, the prediction for the view, f(T(z X)), shape (N, K, H, W).
        valid: V, the pixels of the view that show the image and are not cut out, bool, shape (N, H, W).
            None True gives 0 with a gradient of 0.

    Departs from Eq. (3): one term where the paper averages two that are equal, the cosine being symmetric;
    and 1 - cos in place of -cos, so that agreement costs nothing. The gradient is the same.

    Reference: Eq. (3) of the paper; symbols in docs/equations.md.
    """
    # Written out: torch's cosine_similarity takes its norms over this axis ten times slower. Probabilities
    # sum to one, so no norm is below 1 / sqrt(K).
    squares = first_probs.square().sum(dim=1) * second_probs.square().sum(dim=1)
    similarity = (first_probs * second_probs).sum(dim=1) * squares.clamp(min=SMALLEST_SQUARE).rsqrt()
    return (1 - similarity).where(valid, 0.0).sum() / valid.sum().clamp(min=1)
