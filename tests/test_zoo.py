"""Shipped models: found by name, made from a run, and each with a card that tells where it is from."""

from __future__ import annotations

import csv
import json
import re
import shlex
import shutil
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest
import safetensors.torch
import torch
import yaml

import shapepu
from shapepu import zoo
from shapepu.bundle import load_bundle, save_bundle
from shapepu.cli import main
from shapepu.cli.train import _first_look, _parse_with_recipe
from shapepu.errors import InputError
from shapepu.settings import TrainSettings, with_budget
from shapepu.zoo.export import About, FinishedRun, compare_precision, export
from small_runs import arguments, train, write_hearts
from tiny_models import random_method, tiny_spec
from zoos import add_model

ROOT = Path(__file__).parents[1]
LARGEST_MB = 6
MACHINE_PATH = re.compile(r"(?<![\w.:/])(/\w+){2,}|[A-Z]:\\")
"""Two folders from a root: what a path on somebody's machine looks like, and a web address does not."""

ABOUT = About(
    title="synthetic hearts",
    segments="synthetic hearts",
    scribbles="a program",
    licence="CC BY-NC-SA 4.0, non-commercial",
    data_name="Hearts",
    folder="HEARTS",
    data="Drawn by a program.",
    terms="Use is non-commercial.",
    references=("A. Author, A title, 2022.", "B. Author, Another title, 2023."),
    limits=("Never saw a heart.",),
)


@pytest.fixture
def shipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The zoo of this test, with two models."""
    monkeypatch.setattr(zoo, "ZOO", tmp_path / "zoo")
    for name in ("heart-a", "heart-b"):
        add_model(tmp_path / "zoo", name)
    monkeypatch.chdir(tmp_path)
    return tmp_path / "zoo"


@pytest.fixture(scope="module")
def hearts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_hearts(tmp_path_factory.mktemp("zoo") / "hearts", val=2)


@pytest.fixture(scope="module")
def run(hearts: Path) -> Path:
    """A finished run that was scored."""
    return train(hearts, hearts.parent / "run", "--quiet", "--seed", "3", epochs=6)


@pytest.fixture(scope="module")
def exported(run: Path) -> Path:
    return export(run, "hearts", ABOUT, into=run.parent / "zoo", hardware="one abacus")


def refusal(name: str) -> str:
    with pytest.raises(InputError) as error:
        load_bundle(name)
    return str(error.value)


def test_a_shipped_model_is_found_by_its_name(shipped: Path) -> None:
    assert load_bundle("heart-a").path == shipped / "heart-a"
    assert shapepu.load("heart-b").labels.foreground == ("rv", "myo", "lv")


def test_an_unknown_name_lists_the_known_ones(shipped: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = "heart-c: no such run, bundle or shipped model; known: heart-a, heart-b."
    assert refusal("heart-c") == expected
    monkeypatch.setattr(zoo, "ZOO", shipped / "empty")
    assert refusal("heart-a").endswith("shipped model; give the folder of a run or of a bundle.")


def test_a_local_path_of_the_same_name_wins(shipped: Path) -> None:
    spec = tiny_spec()
    save_bundle("heart-a", method=random_method(spec, seed=1), spec=spec)
    assert load_bundle("heart-a").path == Path("heart-a")
    Path("heart-b").mkdir()
    assert refusal("heart-b") == (
        "heart-b: no model.json in it; give a run folder or a model bundle. To have the shipped model of "
        "that name, run this in another folder."
    )
    Path("other").mkdir()
    assert "shipped" not in refusal("other")


def test_predict_and_train_know_the_names(
    shipped: Path, hearts: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    images = hearts / "test" / "images"
    assert main(["predict", "heart-a", str(images), "out", "--quiet"]) == 0
    assert {path.name for path in Path("out").glob("*.nii.gz")} == {path.name for path in images.iterdir()}
    start = arguments(hearts, Path("run"), "--from", "heart-b", "--quiet", epochs=1)
    del start[start.index("--net.widths") : start.index("--net.widths") + 3]
    assert main(start) == 0
    config = yaml.safe_load(Path("run/config.yaml").read_text())
    assert config["started_from"]["model"] == "heart-b"
    assert config["settings"]["start"] == "heart-b", "a name, and no path into this installation"


def test_exporting_a_run_makes_a_model_of_half_the_size_that_says_almost_the_same(
    run: Path, exported: Path
) -> None:
    assert exported == run.parent / "zoo" / "hearts"
    sizes = [(place / "weights.safetensors").stat().st_size for place in (exported, run / "model")]
    assert sizes[0] < 0.7 * sizes[1], "much of so small a network are biases, statistics and names"
    full, halved = load_bundle(run), load_bundle(exported)
    assert halved.spec.preprocessing == full.spec.preprocessing
    images = torch.randn(2, 1, 32, 40, generator=torch.Generator().manual_seed(0))
    difference = (full.method.predict(images) - halved.method.predict(images)).abs().max()
    assert 0 < difference < 0.01


def test_what_is_listed_of_an_exported_model_is_from_its_run(run: Path, exported: Path) -> None:
    listed = zoo.ShippedModel.read(exported)
    summary = json.loads((run / "validation/summary.json").read_text())
    assert listed.dice == pytest.approx(summary["foreground_mean"]["Dice"], abs=1e-6)
    assert listed.volumes == 2
    assert (listed.model, listed.segments, listed.scribbles, listed.licence) == (
        *("hearts", "synthetic hearts", "a program"),
        "CC BY-NC-SA 4.0, non-commercial",
    )
    assert load_bundle(exported).spec.provenance["data"] == "Hearts"


def test_the_card_is_made_of_the_facts_of_the_run(run: Path, exported: Path) -> None:
    card = (exported / zoo.CARD).read_text()
    text = " ".join(card.split())
    bundle, summary = load_bundle(run), json.loads((run / "validation/summary.json").read_text())
    origin = bundle.spec.provenance
    assert "# hearts: synthetic hearts" in card
    assert "no dense mask was used to train" in text
    assert "not a medical device. Licence of the weights: CC BY-NC-SA 4.0, non-commercial." in text
    assert "Trained on 3 volumes of 3 patients" in text
    assert "Scored on 2 volumes of 2 other patients: " in text
    assert f"{origin['minutes']:g} minutes, 6 epochs, " in text
    assert "on one abacus; seed 3, bf16, " in text
    for value, structure in summary["labels"].items():
        mean, sd = summary["mean"][value], summary["sd"][value]
        assert f"| {structure} | {mean['Dice']:.3f} ± {sd['Dice']:.3f} |" in card
    assert f"| average | {summary['foreground_mean']['Dice']:.3f} ± " in card
    assert "Never saw a heart." in card
    assert "B. Author, Another title, 2023." in card
    assert all(len(line) <= 110 for line in card.splitlines() if not line.startswith(("shapepu", "|")))


def test_the_command_in_the_card_is_the_one_that_made_the_run(run: Path, exported: Path) -> None:
    card = (exported / zoo.CARD).read_text()
    (command,) = re.findall(r"^shapepu train HEARTS -o hearts .*$", card, flags=re.MULTILINE)
    config = yaml.safe_load((run / "config.yaml").read_text())
    argv = shlex.split(command)[2:]
    given, settings = _parse_with_recipe(argv, _first_look(argv))
    settings = with_budget(settings, given.epochs, given.minutes, given.steps)
    assert settings == TrainSettings.from_plain(config["settings"])


def test_the_worst_volume_is_named(run: Path, exported: Path) -> None:
    with open(run / "validation/cases.csv", newline="") as stream:
        rows = list(csv.DictReader(stream))
    dice = {
        case: sum(float(row["dice"]) for row in rows if row["case"] == case) / 3
        for case in {row["case"] for row in rows}
    }
    worst = min(dice, key=lambda case: dice[case])
    card = (exported / zoo.CARD).read_text()
    assert f"The worst volume is {worst}, average Dice {dice[worst]:.3f}." in " ".join(card.split())


def test_half_precision_is_measured_on_the_validation_cases(run: Path, exported: Path) -> None:
    finished = FinishedRun.read(run)
    assert len(finished.validation) == 2
    same = compare_precision(finished.bundle, finished.bundle, finished.validation)
    assert same is not None
    assert same.largest_difference == 0
    assert same.half_dice == same.full_dice > 0
    other = replace(finished.bundle, method=random_method(finished.bundle.spec, seed=9))
    differs = compare_precision(finished.bundle, other, finished.validation)
    assert differs is not None
    assert differs.largest_difference > 0.05
    assert differs.full_dice == same.full_dice != differs.half_dice
    assert compare_precision(finished.bundle, finished.bundle, ()) is None
    halved = compare_precision(finished.bundle, load_bundle(exported), finished.validation)
    assert halved is not None
    said = f"no probability differs by more than {halved.largest_difference:.1g} from those of the full"
    assert said in " ".join((exported / zoo.CARD).read_text().split())


def test_without_the_images_the_card_says_what_was_not_measured(run: Path, tmp_path: Path) -> None:
    moved = shutil.copytree(run, tmp_path / "moved")
    listing = json.loads((moved / "validation/cases.json").read_text())
    listing["cases"][0]["images"] = [str(tmp_path / "gone.nii.gz")]
    (moved / "validation/cases.json").write_text(json.dumps(listing))
    card = (export(moved, "hearts", ABOUT, into=tmp_path) / zoo.CARD).read_text()
    assert "half precision; what that changes was not measured" in card


def test_nothing_that_is_shipped_names_a_folder_of_this_machine(exported: Path) -> None:
    reject_unfit(exported)


def test_a_run_that_cannot_be_shipped_is_refused(run: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="not a run folder"):
        export(tmp_path, "hearts", ABOUT, into=tmp_path / "zoo")
    unscored = shutil.copytree(run, tmp_path / "unscored")
    shutil.rmtree(unscored / "validation")
    with pytest.raises(InputError, match="no validation scores in it"):
        export(unscored, "hearts", ABOUT, into=tmp_path / "zoo")
    unfinished = shutil.copytree(run, tmp_path / "unfinished")
    bundle = load_bundle(run)
    spec = replace(bundle.spec, provenance={})
    save_bundle(unfinished / "model", method=bundle.method, spec=spec)
    with pytest.raises(InputError, match="the run is not finished"):
        export(unfinished, "hearts", ABOUT, into=tmp_path / "zoo")
    assert not (tmp_path / "zoo").exists()


@pytest.mark.parametrize("text", sorted((ROOT / "benchmarks/zoo").glob("*.yaml")), ids=lambda path: path.stem)
def test_the_texts_of_our_own_models_are_complete(text: Path) -> None:
    about = About.read(text)
    assert "non-commercial" in about.licence
    assert "non-commercial" in about.terms
    assert about.references
    assert about.limits


def test_texts_with_a_mistake_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("title: [")
    with pytest.raises(InputError, match=r"a\.yaml: cannot be read"):
        About.read(tmp_path / "a.yaml")
    (tmp_path / "b.yaml").write_text("title: a\nlicense: b\n")
    with pytest.raises(InputError, match="unknown setting 'license'"):
        About.read(tmp_path / "b.yaml")


def test_every_shipped_model_is_fit_to_be_shipped() -> None:
    for folder in zoo.shipped_models().values():
        reject_unfit(folder)
    size = sum(path.stat().st_size for folder in zoo.shipped_models().values() for path in folder.iterdir())
    assert size < LARGEST_MB * 1e6


def test_an_unfit_model_would_be_noticed(tmp_path: Path) -> None:
    for name, text in [(zoo.CARD, "Trained in /home/me/data on it."), (zoo.LICENCE, None)]:
        folder = add_model(tmp_path, "heart")
        if text is None:
            (folder / name).unlink()
        else:
            (folder / name).write_text(text)
        with pytest.raises(AssertionError):
            reject_unfit(folder)


def test_a_wheel_holds_the_models() -> None:
    build = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert build == {"packages": ["src/shapepu"]}, "the folder of the package goes in whole"
    assert Path(zoo.__file__).parent == ROOT / "src/shapepu/zoo" == zoo.ZOO
    ignored = (ROOT / ".gitignore").read_text().split()
    assert not {"*.safetensors", "*.json", "*.md", "model/", "zoo/"} & set(ignored)


def reject_unfit(folder: Path) -> None:
    """What holds of a folder of the zoo."""
    assert {path.name for path in folder.iterdir()} == {
        *("model.json", "weights.safetensors", zoo.CARD, zoo.LICENCE)
    }
    for name in ("model.json", zoo.CARD, zoo.LICENCE):
        found = MACHINE_PATH.search((folder / name).read_text(encoding="utf-8"))
        assert found is None, f"{folder.name}/{name}: {found}"
    load_bundle(folder)
    stored = safetensors.torch.load_file(folder / "weights.safetensors").values()
    assert all(tensor.dtype == torch.float16 for tensor in stored if tensor.ndim > 1)
    assert zoo.ShippedModel.read(folder).licence
