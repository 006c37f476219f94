"""The registry: every method, what it learns from, and where it was published."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from shapepu.errors import unknown_name
from shapepu.methods import crf, cvir, dmpls, entropy, gatedcrf, mumford_shah, shapepu, tedn, tv
from shapepu.methods.accl import ACCL
from shapepu.methods.base import Batch, EpochStart, Method, NetworkBuilder, Supervision, Task
from shapepu.methods.crf import CRF
from shapepu.methods.cvir import CVIR
from shapepu.methods.dmpls import DMPLS
from shapepu.methods.ema_teacher import EMATeacher
from shapepu.methods.entropy import Entropy
from shapepu.methods.full import Full
from shapepu.methods.gatedcrf import GatedCRF
from shapepu.methods.maag import MAAG
from shapepu.methods.mumford_shah import MumfordShah
from shapepu.methods.nnpu import NNPU
from shapepu.methods.pce import PCE
from shapepu.methods.postdae import PostDAE
from shapepu.methods.shapepu import ShapePU
from shapepu.methods.tedn import TEDN
from shapepu.methods.tv import TV
from shapepu.methods.wpce import WPCE

__all__ = ["METHODS", "Batch", "EpochStart", "Method", "MethodEntry", "Task", "find_method"]


@dataclass(frozen=True)
class MethodEntry:
    """One row of the registry.

    Args:
        method: the class; its ``Config`` holds the options, its ``needs`` the supervision.
        title: a few words for tables and for ``shapepu methods``.
        paper: where it was published.
        recipes: options that a recipe sets away from the paper's defaults, by the recipe's name.
        switches: settings of the class that make it this method, whatever the recipe.
    """

    method: type[Method]
    title: str
    paper: str
    recipes: Mapping[str, Any] = field(default_factory=dict)
    switches: Mapping[str, Any] = field(default_factory=dict)

    @property
    def config(self) -> type[Any]:
        return self.method.Config

    def options(self, recipe: str | None = None) -> Any:
        """The method's options under ``recipe``, or its defaults."""
        return replace(self.recipes.get(recipe or "", self.config()), **self.switches)

    @property
    def needs(self) -> frozenset[Supervision]:
        return self.method.needs


def _shapepu(title: str, **switches: bool) -> MethodEntry:
    return MethodEntry(ShapePU, title, "Zhang & Zhuang, MICCAI 2022", {"fast": shapepu.FAST}, switches)


METHODS: dict[str, MethodEntry] = {
    "pce": MethodEntry(PCE, "partial cross-entropy", "Tang et al., CVPR 2018"),
    "wpce": MethodEntry(WPCE, "partial cross-entropy, classes balanced", "Valvano et al., IEEE TMI 2021"),
    "crf": MethodEntry(
        CRF, "dense CRF trained with the network", "Zheng et al., ICCV 2015", {"fast": crf.FAST}
    ),
    "gatedcrf": MethodEntry(
        GatedCRF, "CRF energy of local windows as a loss", "Obukhov et al., 2019", {"fast": gatedcrf.FAST}
    ),
    "entropy": MethodEntry(
        Entropy, "entropy minimisation", "Grandvalet & Bengio, NeurIPS 2004", {"fast": entropy.FAST}
    ),
    "tv": MethodEntry(TV, "total variation", "Javanmardi et al., 2016", {"fast": tv.FAST}),
    "mumford-shah": MethodEntry(
        MumfordShah, "Mumford-Shah functional", "Kim & Ye, IEEE TIP 2020", {"fast": mumford_shah.FAST}
    ),
    "shapepu": _shapepu("mixture ratios, negative loss, global consistency"),
    "pu": _shapepu("ShapePU without shape", cutout=False, consistency=False),
    "shapepu-1": _shapepu(
        "ablation #1: partial cross-entropy", cutout=False, negative=False, consistency=False
    ),
    "shapepu-2": _shapepu("ablation #2: and cutout", negative=False, consistency=False),
    "shapepu-3": _shapepu("ablation #3: #1 and the negative loss", cutout=False, consistency=False),
    "shapepu-4": _shapepu("ablation #4: cutout and the negative loss", consistency=False),
    "nnpu": MethodEntry(NNPU, "non-negative PU risk, given ratios", "Kiryo et al., NeurIPS 2017"),
    "cvir": MethodEntry(
        CVIR, "value-ignoring risk, given ratios", "Garg et al., NeurIPS 2021", {"fast": cvir.FAST}
    ),
    "tedn": MethodEntry(
        TEDN, "value-ignoring risk, ratios by best bins", "Garg et al., NeurIPS 2021", {"fast": tedn.FAST}
    ),
    "postdae": MethodEntry(
        PostDAE, "predictions mended by a denoising autoencoder", "Larrazabal et al., IEEE TMI 2020"
    ),
    "accl": MethodEntry(ACCL, "adversarial loss on patches", "Zhang et al., 2020, arXiv:2005.00328"),
    "maag": MethodEntry(MAAG, "multi-scale adversarial attention gates", "Valvano et al., IEEE TMI 2021"),
    "dmpls": MethodEntry(
        DMPLS, "two decoders, mixed pseudo labels", "Luo et al., MICCAI 2022", {"fast": dmpls.FAST}
    ),
    "ema-teacher": MethodEntry(
        EMATeacher, "pseudo labels of the averaged network", "Tarvainen & Valpola, NeurIPS 2017"
    ),
    "full": MethodEntry(Full, "full supervision by dense masks", "Baumgartner et al., STACOM 2017"),
}


def find_method(name: str) -> MethodEntry:
    """The registered method called ``name``; an unknown name lists the known ones."""
    if name not in METHODS:
        raise unknown_name("method", name, tuple(METHODS))
    return METHODS[name]


def build_method(name: str, options: Any, task: Task, build_network: NetworkBuilder) -> Method:
    """An instance of the method called ``name``; ``options`` None means its defaults."""
    entry = find_method(name)
    return entry.method(entry.options() if options is None else options, task, build_network)
