"""A device that is not the CPU, for machines that have no other: it computes there and refuses to be mixed.

Tensors on it say that they are elsewhere and hold a tensor of the CPU. What a GPU would refuse is refused:
arithmetic with a tensor that was left on the CPU, and a look at the memory as an array. The device is called
``meta``, since torch would look for the hardware behind any other name.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode, return_and_correct_aliasing
from torch.utils._pytree import tree_flatten, tree_map_only

OTHER = torch.device("meta")

COPIES = ("aten::_to_copy", "aten::copy_")
"""What takes a tensor from one device to the other."""

INDEXED = ("aten::index", "aten::index_put", "aten::index_put_", "aten::_index_put_impl_")
"""What takes positions from the CPU as well, as its second argument."""


class Elsewhere(torch.Tensor):
    """A tensor that is not on the CPU."""

    inner: torch.Tensor

    @staticmethod
    def __new__(cls, inner: torch.Tensor) -> Elsewhere:
        made = torch.Tensor._make_wrapper_subclass(
            cls,
            inner.shape,
            strides=inner.stride(),
            storage_offset=inner.storage_offset(),
            dtype=inner.dtype,
            device=OTHER,
            requires_grad=inner.requires_grad,
        )
        made.inner = inner.detach()
        return made

    @classmethod
    def __torch_dispatch__(
        cls, func: Any, types: Sequence[type], args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        return _run(func, args, kwargs or {})

    def tolist(self) -> Any:
        return self.inner.tolist()

    def __repr__(self) -> str:  # type: ignore[override]
        return f"Elsewhere({self.inner})"


class _Generator(torch.Generator):
    """Of random numbers, wherever they are wanted."""

    def __new__(cls, device: Any = "cpu") -> _Generator:
        return super().__new__(cls, "cpu")


class _Creation(TorchDispatchMode):
    """Makes what is asked for there."""

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        return _run(func, args, kwargs or {})


def _run(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """The operation on the CPU; its results are where it would have left them."""
    tensors = [leaf for leaf in tree_flatten((args, kwargs))[0] if isinstance(leaf, torch.Tensor)]
    name, wanted = func._schema.name, kwargs.get("device")
    stays = torch.device(wanted).type == OTHER.type if wanted else any(map(_is_elsewhere, tensors))
    if name == "aten::copy_":
        stays = _is_elsewhere(args[0])
    elif name not in COPIES:
        _refuse_two_devices(name, [args[0], *args[2:]] if name in INDEXED else tensors, tensors)
    plain_args, plain_kwargs = tree_map_only(Elsewhere, lambda t: t.inner, (args, kwargs))
    if wanted:
        plain_kwargs["device"] = torch.device("cpu")
    found = func(*plain_args, **plain_kwargs)
    if not stays:
        return found
    return return_and_correct_aliasing(func, args, kwargs, tree_map_only(torch.Tensor, Elsewhere, found))


def _is_elsewhere(value: Any) -> bool:
    return isinstance(value, Elsewhere)


def _refuse_two_devices(name: str, bound: Sequence[Any], tensors: Sequence[torch.Tensor]) -> None:
    """A single number may come from anywhere, everything else that is ``bound`` to one device may not."""
    left = [t for t in bound if isinstance(t, torch.Tensor) and t.ndim and not _is_elsewhere(t)]
    shapes = [(t.device.type, *t.shape) for t in tensors]
    assert not left or not any(map(_is_elsewhere, tensors)), f"{name} met tensors of two devices: {shapes}"


@contextmanager
def other_device(patch: pytest.MonkeyPatch) -> Iterator[torch.device]:
    """The device, while it exists."""
    from_list, autocast = torch.tensor, torch.autocast

    def autocast_on_cpu(kind: str, *args: Any, **kwargs: Any) -> Any:
        return autocast(kind, *args, **kwargs) if kind == "cpu" else nullcontext()

    # What torch decides from the name of the device before it asks the device.
    patch.setattr(torch, "Generator", _Generator)
    patch.setattr(torch, "autocast", autocast_on_cpu)
    patch.setattr(torch, "tensor", lambda *a, device="cpu", **k: from_list(*a, **k).to(device))
    patch.setattr(torch.Tensor, "new_tensor", lambda t, data: from_list(data, dtype=t.dtype).to(t.device))
    with _Creation():
        yield OTHER
