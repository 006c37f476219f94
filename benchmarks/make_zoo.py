"""Make the model of a finished run one of those that come with the package, with its card.

    shapepu train DATA -o RUN ...
    python benchmarks/make_zoo.py RUN mscmr-lge

What the card says about the training is read from the run; what no run knows (licence, where data is from,
limits) is in ``benchmarks/zoo/NAME.yaml``. The validation cases are predicted twice, to measure what half
precision changes; where their files are gone the card says that it was not measured.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from shapepu import zoo
from shapepu.zoo.export import About, export

MEGABYTE = 10**6


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", type=Path, help="folder of a finished run that was scored")
    parser.add_argument("name", help="of the model, as users will give it")
    parser.add_argument("--about", type=Path, help="YAML file (default: benchmarks/zoo/NAME.yaml)")
    parser.add_argument("--hardware", help="what the run was computed on, as in 'two cores of ...'")
    parser.add_argument("--into", type=Path, default=zoo.ZOO, help="folder of all shipped models")
    chosen = parser.parse_args()
    about = About.read(chosen.about or Path(__file__).parent / "zoo" / f"{chosen.name}.yaml")
    folder = export(chosen.run, chosen.name, about, into=chosen.into, hardware=chosen.hardware)
    print((folder / zoo.CARD).read_text(encoding="utf-8"))
    own, all_together = (
        sum(path.stat().st_size for path in place.rglob("*.safetensors")) / MEGABYTE
        for place in (folder, chosen.into)
    )
    print(f"{folder}: {own:.2f} MB of weights, {all_together:.2f} MB in all shipped models")


if __name__ == "__main__":
    main()
