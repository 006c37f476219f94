"""In which precision networks compute: what is asked for, and what the hardware gains by."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import torch

Precision = Literal["auto", "bf16", "fp32"]


def computes_in_bfloat16(precision: Precision, device: torch.device | str) -> bool:
    """Whether a network computes in bfloat16 on ``device``; ``auto`` does where the hardware can.

    Without instructions for it, bfloat16 is slower than float32 on a CPU, and emulated on a GPU.
    """
    import torch  # options are read before

    if precision != "auto":
        return precision == "bf16"
    kind = torch.device(device).type
    if kind == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    return kind == "cpu" and torch.cpu._is_avx512_bf16_supported()
