"""Two players: one tells predicted from drawn segmentations, the other makes them hard to tell apart."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional

DRAWN, PREDICTED = 1.0, -1.0
"""The scores a least-squares discriminator aims at."""

SMALLEST = 1e-8
"""A supervised loss below this counts as this: a batch without a scribble must not divide by 0."""


def minimax_discriminator(drawn: Tensor, predicted: Tensor) -> Tensor:
    r"""The discriminator's cross-entropy, whose optimum is the log-odds of drawn against predicted.

    .. math:: L_D = - \operatorname{mean} \log \sigma(d) - \operatorname{mean} \log (1 - \sigma(p))

    Args:
        drawn: d, logits of masks that people drew, any shape.
        predicted: p, logits of predicted segmentations, any shape.

    Reference: Goodfellow et al., Generative adversarial nets, NeurIPS 2014, Eq. (1).
    """
    return functional.softplus(-drawn).mean() + functional.softplus(predicted).mean()


def minimax_segmenter(predicted: Tensor) -> Tensor:
    r"""The other player's side of :func:`minimax_discriminator`.

    .. math:: L_{adv} = - \operatorname{mean} \log \sigma(p)

    Departs from the minimax value, log(1 - sigma(p)), as its authors advise in their section 3: the optimum
    is the same, but the gradient does not vanish while the discriminator is right with certainty.

    Args:
        predicted: p, logits of predicted segmentations, any shape.
    """
    return functional.softplus(-predicted).mean()


def least_squares_discriminator(drawn: Tensor, predicted: Tensor) -> Tensor:
    r"""The discriminator's squared distance from its targets, 1 for drawn and -1 for predicted.

    .. math:: L_D = \frac12 \operatorname{mean} (d - 1)^2 + \frac12 \operatorname{mean} (p + 1)^2

    Args:
        drawn: d, scores of masks that people drew, any shape.
        predicted: p, scores of predicted segmentations, any shape.

    Reference: Mao et al., Least squares generative adversarial networks, ICCV 2017, Eq. (2).
    """
    return ((drawn - DRAWN).square().mean() + (predicted - PREDICTED).square().mean()) / 2


def least_squares_segmenter(predicted: Tensor) -> Tensor:
    r"""The other player's side of :func:`least_squares_discriminator`.

    .. math:: L_{adv} = \frac12 \operatorname{mean} (p - 1)^2

    Args:
        predicted: p, scores of predicted segmentations, any shape.
    """
    return (predicted - DRAWN).square().mean() / 2


def dynamic_weight(adversarial: Tensor, supervised: Tensor) -> Tensor:
    r"""What makes the supervised loss as large as the adversarial one, without being learned from.

    .. math:: w = \left| \operatorname{stopgrad} \frac{L_{adv}}{L_{sup}} \right|

    The weight belongs on the supervised loss: w L_sup + a L_adv then keeps the two at 1 to a throughout
    training, however much faster the one is learned than the other.

    Args:
        adversarial: L_adv, a scalar.
        supervised: L_sup, a scalar; 0 gives a large weight that multiplies 0.

    Reference: Valvano et al., "Learning to segment from scribbles using multi-scale adversarial attention
    gates", IEEE Transactions on Medical Imaging, 2021.
    """
    return (adversarial.detach() / supervised.detach().abs().clamp(min=SMALLEST)).abs()
