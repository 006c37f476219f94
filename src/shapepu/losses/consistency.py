"""The shape term: what is cut out and turned must be segmented as before (Eq. 3)."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional


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
    similarity = functional.cosine_similarity(first_probs, second_probs, dim=1)
    return (1 - similarity).where(valid, 0.0).sum() / valid.sum().clamp(min=1)
