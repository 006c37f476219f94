"""``shapepu predict``: from a trained model and images to label files."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from shapepu.cli.arguments import parse, remove_markup
from shapepu.console import say
from shapepu.predict_options import PredictOptions
from shapepu.sharding import gpu_of_process, shard_of_process

if TYPE_CHECKING:
    import torch

    from shapepu.folder_prediction import Outcome


@dataclass(frozen=True)
class PredictArguments:
    """Segment images with a trained model.

    Labels are written on the voxels of the image, with its header and orientation, in its format. What is
    there already is skipped, so that an interrupted run goes on where it stopped. Several processes divide a
    folder by --shard, or by the ranks that torchrun, mpirun or srun gave them; no two then write one file.
    """

    model: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="MODEL")]
    """Run folder, model bundle, or the name of a model that comes with the package."""
    images: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="IMAGES")]
    """Folder of images (CASE.nii.gz, or CASE_0000.nii.gz, CASE_0001.nii.gz, ... for several channels) or of
    DICOM series folders; or one image."""
    out: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="OUT")]
    """Folder to write to; for one image also the name of the label file."""
    prediction: tyro.conf.OmitArgPrefixes[PredictOptions] = field(default_factory=PredictOptions)
    overwrite: bool = False
    """Predict again what is there already."""
    shard: Annotated[str, tyro.conf.arg(metavar="I/N")] = ""
    """Take the I-th of N parts of the cases, I from 1."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """auto takes a GPU when there is one."""
    quiet: bool = False
    """Say nothing but errors."""


def run(argv: list[str]) -> int:
    remove_markup(PredictOptions)
    arguments = parse(PredictArguments, argv, "predict")
    shard = shard_of_process(arguments.shard)
    # torch takes seconds to import, and a person should not wonder.
    say(f"shapepu predict: loading {arguments.model}", quiet=arguments.quiet)
    from shapepu.bundle import load_bundle
    from shapepu.folder_prediction import predict_files

    bundle = load_bundle(arguments.model, _device(arguments.device))
    say(f"model: {bundle}", quiet=arguments.quiet)
    outcome = predict_files(
        bundle,
        arguments.images,
        arguments.out,
        options=arguments.prediction,
        shard=shard,
        overwrite=arguments.overwrite,
        quiet=arguments.quiet,
    )
    return _report(outcome, arguments)


def _report(outcome: Outcome, arguments: PredictArguments) -> int:
    """What was done and what to do next; the exit code."""
    done, failed = len(outcome.predicted), len(outcome.failures)
    if not arguments.quiet:
        each = f", {outcome.seconds / done:.1f} s each" if done else ""
        skipped = f"; {len(outcome.skipped)} were there already" if outcome.skipped else ""
        print(f"{done} case{'s' * (done != 1)} predicted{each}{skipped}: {arguments.out}")
        print(f"next: shapepu evaluate {arguments.out} REFERENCES")
    for name, reason in outcome.failures.items():
        print(f"shapepu predict: {name}: {reason}", file=sys.stderr)
    if failed:
        total = failed + done + len(outcome.skipped)
        print(f"shapepu predict: {failed} of {total} cases could not be predicted.", file=sys.stderr)
    return 2 if failed else 0


def _device(name: str) -> torch.device:
    import torch

    from shapepu.errors import InputError

    usable = torch.cuda.is_available()
    if name == "cuda" and not usable:
        raise InputError("--device cuda: there is no usable GPU; take cpu or auto.")
    if not usable or name == "cpu":
        return torch.device("cpu")
    return torch.device("cuda", gpu_of_process(torch.cuda.device_count()))
