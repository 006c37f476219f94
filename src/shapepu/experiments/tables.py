"""Tables in the paper's form, as cells: what they say is decided here, how to write it in ``markup.py``."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean

from shapepu.evaluation.comparison import few_pairs_note
from shapepu.evaluation.metrics import DEFINITIONS
from shapepu.evaluation.statistics import Interval, Spread
from shapepu.experiments.definition import NOTHING, PREVIOUS, Experiment
from shapepu.experiments.differences import differing_lines
from shapepu.experiments.outcome import (
    NOT_YET,
    SIGNIFICANT,
    DataOutcome,
    Outcome,
    Question,
    RowOutcome,
    RowTest,
    questions,
)
from shapepu.experiments.plan import Plan
from shapepu.experiments.records import Hardware
from shapepu.methods import find_method

DECIMALS = {"dice": 3, "hd_mm": 1, "hd95_mm": 1, "assd_mm": 2, "volume_error_ml": 1}

HEADINGS = {"hd_mm": "HD (mm)", "hd95_mm": "HD95 (mm)"}

BETTER, WORSE, HOLDS = "†", "↓", "*"
"""Marks of a significant difference, and of one that holds after correction."""

BEST, SECOND = 1, 2

UNDERLINED_FROM = 3
"""Rows; of two, the second best is the worst."""

NONE = "–"


@dataclass(frozen=True)
class Column:
    """A column; neighbours of one group stand under one heading."""

    title: str
    group: str = ""
    left: bool = False


@dataclass(frozen=True)
class Cell:
    """What is printed; ``rank`` is :data:`BEST`, :data:`SECOND` or 0."""

    text: str
    rank: int = 0
    marks: str = ""


@dataclass(frozen=True)
class Line:
    """A row of a table.

    Args:
        cells: for the last columns; where they are fewer than the columns, ``instead`` fills the first.
        group: the heading it stands under.
        instead: said in place of numbers.
        footnotes: on this line.
    """

    title: str
    cells: tuple[Cell, ...]
    group: str = ""
    instead: str = ""
    footnotes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Table:
    """A table, and what to read it with.

    Args:
        name: for files and labels.
        columns: all but the first, which holds the titles of the lines.
        notes: below it, a paragraph each.
    """

    name: str
    caption: str
    columns: tuple[Column, ...]
    lines: tuple[Line, ...]
    notes: tuple[str, ...] = ()
    first: str = "row"

    @property
    def footnotes(self) -> dict[str, str]:
        """A letter for each footnote, in the order in which they come."""
        texts = dict.fromkeys(text for line in self.lines for text in line.footnotes)
        return {text: _letter(place) for place, text in enumerate(texts)}


def _letter(place: int) -> str:
    """a to z, then aa, ab, ..."""
    before, place = divmod(place, 26)
    return (_letter(before - 1) if before else "") + chr(ord("a") + place)


def scores_table(outcome: Outcome, table: DataOutcome) -> Table:
    """Dice of each structure and on average, its interval, distances; published figures apart."""
    asked = questions(table.structures)
    ranks = {question: _ranks(table, question) for question in asked}
    published = _published_columns(table)
    lines = []
    for row in table.rows:
        beside = tuple(Cell(_published(table, row, name)) for name in published)
        instead, why = _instead(row)
        notes = tuple(note for note in (row.row.note, why) if note)
        cells: tuple[Cell, ...] = ()
        if row.records:
            scores = [_score_cell(table, row, question, ranks[question]) for question in asked]
            interval = Cell(show_interval(table.interval(row, "dice"), DECIMALS["dice"]))
            where = asked.index(("dice", None)) + 1
            cells = (*scores[:where], interval, *scores[where:])
        lines.append(Line(row.row.label, cells + beside, row.row.group, instead, notes))
    columns = (
        *(Column(structure_title(name), "Dice") for name in table.structures),
        Column("average", "Dice"),
        Column("95 % interval of the average", "Dice"),
        *(Column(heading, "Average") for heading in HEADINGS.values()),
        *(Column("Dice" if name == "average" else HEADINGS[name], "Published") for name in published),
    )
    title = outcome.experiment.title or outcome.experiment.name
    return Table(
        name=table.data,
        caption=title if table.data in title else f"{title} ({table.data})",
        columns=columns,
        lines=tuple(lines),
        notes=tuple(_scores_notes(outcome, table, bool(published))),
    )


def published_table(outcome: Outcome, table: DataOutcome) -> Table | None:
    """The published Dice of each structure beside ours; None where nothing was published."""
    rows = [row for row in table.rows if row.row.published.get(table.data)]
    names = [name for name in (*_named_structures(table), "average") if any_published(table, rows, name)]
    if not names:
        return None
    lines = []
    for row in rows:
        cells = []
        for name in names:
            spread = row.spread("dice", None if name == "average" else name) if row.records else None
            ours = _number(spread.mean, DECIMALS["dice"]) if spread else NONE
            cells += [Cell(_published(table, row, name)), Cell(ours)]
        lines.append(Line(row.row.label, tuple(cells), row.row.group))
    columns = [
        Column(of, structure_title(name) if name != "average" else name)
        for name in names
        for of in ("published", "ours")
    ]
    source = outcome.experiment.published_source
    return Table(
        name=f"{table.data}-published",
        caption=f"Dice as published and as found here ({table.data})",
        columns=tuple(columns),
        lines=tuple(lines),
        notes=(f"Published: {source}, of other volumes and another budget than ours.",) if source else (),
    )


def fairness_table(outcome: Outcome, table: DataOutcome) -> Table:
    """What each row was given: supervision, cases, weights, time, hardware; and how much seeds matter."""
    machines = list(dict.fromkeys(record.hardware for record in table.records))
    lines = []
    for row in table.rows:
        instead, why = _instead(row)
        learns_from = Cell(", ".join(sorted(find_method(row.row.method).needs)))
        notes = (why,) if why else ()
        if not row.records:
            lines.append(Line(row.row.label, (), row.row.group, instead, notes))
            continue
        first = row.records[0]
        over_seeds = row.over_seeds("dice")
        cells = [
            Cell(first.method),
            Cell(", ".join(first.supervision) or learns_from.text),
            Cell(f"{first.training_cases}"),
            Cell("all" if "masks" in first.supervision else f"{100 * first.labelled_share:.2f}"),
            Cell(show_count(first.parameters.prediction)),
            Cell(show_count(first.parameters.method)),
            Cell(f"{fmean(record.minutes for record in row.records):.1f}"),
            Cell(f"{fmean(record.epochs for record in row.records):.0f}"),
            Cell(f"{fmean(record.steps for record in row.records):.0f}"),
            Cell(f"{fmean(record.images_per_second for record in row.records):.0f}"),
            Cell(", ".join(map(str, row.seeds))),
            Cell(_number(over_seeds.sd, DECIMALS["dice"])),
        ]
        if len(machines) > 1:
            own = dict.fromkeys(record.hardware for record in row.records)
            cells.append(Cell(", ".join(str(machines.index(machine) + 1) for machine in own)))
        lines.append(Line(row.row.label, tuple(cells), row.row.group))
    columns = [
        Column("method", left=True),
        Column("learns from", left=True),
        Column("training volumes"),
        Column("labelled pixels, %"),
        Column("to predict", "Weights"),
        Column("in all", "Weights"),
        Column("minutes"),
        Column("epochs"),
        Column("steps"),
        Column("images per second"),
        Column("seeds"),
        Column("sd of average Dice over seeds"),
        *([Column("hardware")] if len(machines) > 1 else []),
    ]
    return Table(
        name=f"{table.data}-fairness",
        caption=f"What each row was given ({table.data})",
        columns=tuple(columns),
        lines=tuple(lines),
        notes=tuple(_fairness_notes(outcome, table, machines)),
    )


def tests_table(outcome: Outcome, table: DataOutcome) -> Table | None:
    """The tests of average Dice; None where no row could be tested."""
    labels = {row.row.name: row.row.label for row in table.rows}
    groups = {row.row.name: row.row.group for row in table.rows}
    lines = []
    for test in (test for test in table.tests if test.question == ("dice", None)):
        score = test.score
        cells = (
            Cell(labels[test.against]),
            Cell(signed(score.difference, DECIMALS["dice"])),
            Cell(show_interval(score.interval, DECIMALS["dice"], sign=True)),
            Cell(f"{test.better_in} of {score.test.pairs}"),
            Cell(show_p(score.test.p_value)),
            Cell(show_p(score.p_holm)),
            Cell(show_p(test.patients.p_value)),
        )
        lines.append(Line(labels[test.row], cells, groups[test.row]))
    if not lines:
        return None
    columns = (
        Column("tested against", left=True),
        Column("difference"),
        Column("95 % interval"),
        Column("volumes better"),
        Column("p"),
        Column("p (Holm)"),
        Column("p over patients"),
    )
    notes = [
        "Difference of the average Dice, mean over volumes that both rows have, after averaging each volume "
        "over the seeds that both have; its interval draws patients. Volumes better: in how many pairs "
        "the row is ahead. p: two-sided Wilcoxon signed-rank test over volumes, of ranks and not of means. "
        f"p (Holm): adjusted for the {_tests_in(table)} tests of the table above. p over patients: the same "
        "test with the volumes of a patient averaged, since they are not independent; it is not adjusted.",
        few_pairs_note(len(table.cases)),
    ]
    return Table(
        name=f"{table.data}-tests",
        caption=f"Average Dice against the row that each is tested against ({table.data})",
        columns=columns,
        lines=tuple(lines),
        notes=tuple(note for note in notes if note),
    )


def differences_table(outcome: Outcome, table: DataOutcome) -> Table | None:
    """The settings in which each row differs from the one it is tested against; None where no row has one.

    Of two methods, an option that only one of them has tells nothing but that they are two.
    """
    settings, several = outcome.plan.settings or {}, False
    lines = []
    for row in table.rows:
        against = outcome.experiment.tested_against(row.row)
        if against is None or row.row.name not in settings or against.name not in settings:
            continue
        two = settings[against.name].get("method") != settings[row.row.name].get("method")
        several = several or two
        found = differing_lines(settings[against.name], settings[row.row.name], common_only=two)
        for place, (name, before, now) in enumerate(found):
            title = row.row.label if place == 0 else ""
            lines.append(Line(title, (Cell(against.label), Cell(name), Cell(before), Cell(now))))
    if not lines:
        return None
    return Table(
        name=f"{table.data}-differences",
        caption=f"Settings that differ ({table.data}); all others are the same",
        columns=tuple(Column(title, left=True) for title in ("from", "setting", "there", "here")),
        lines=tuple(lines),
        notes=("Where the method differs, options that only one of the two has are not listed.",) * several,
    )


@dataclass(frozen=True)
class DataTables:
    """The tables of one data set; None where there is nothing to say."""

    scores: Table
    tests: Table | None
    published: Table | None
    fairness: Table
    differences: Table | None

    @property
    def shown(self) -> list[Table]:
        """Those that are there, in the order in which they are read."""
        made = (self.scores, self.tests, self.published, self.fairness, self.differences)
        return [table for table in made if table is not None]


def data_tables(outcome: Outcome, table: DataOutcome) -> DataTables:
    """Everything that is said of one data set in numbers."""
    return DataTables(
        scores=scores_table(outcome, table),
        tests=tests_table(outcome, table),
        published=published_table(outcome, table),
        fairness=fairness_table(outcome, table),
        differences=differences_table(outcome, table),
    )


def budget_line(plan: Plan) -> str:
    """What every run was given, in words."""
    amounts = (
        ("steps", plan.steps),
        ("steps of pce, or as many as take as long,", plan.pce_steps),
        ("epochs", plan.epochs),
        ("minutes", plan.minutes),
    )
    told = [f"{amount:g} {unit}" for unit, amount in amounts if amount]
    budget = " or ".join(told) if told else f"the {plan.recipe} recipe's own end"
    seeds = ", ".join(map(str, plan.seeds))
    return (
        f"Recipe {plan.recipe}; {budget} for every run; {'seeds' if len(plan.seeds) > 1 else 'seed'} {seeds}."
    )


def command_line(outcome: Outcome) -> str:
    """The command that makes these results."""
    plan = outcome.plan
    words = ["shapepu compare", plan.experiment.name]
    words += [f"--data {table.data}=..." for table in outcome.tables]
    if plan.recipe != "fast":
        words.append(f"--recipe {plan.recipe}")
    for option, amount in (
        ("steps-per-run", plan.steps),
        ("pce-steps-per-run", plan.pce_steps),
        ("epochs-per-run", plan.epochs),
        ("minutes-per-run", plan.minutes),
    ):
        if amount:
            words.append(f"--{option} {amount:g}")
    words.append(f"--seeds {','.join(map(str, plan.seeds))}")
    return " ".join([*words, "-o RESULTS"])


def structure_title(name: str) -> str:
    """Short names are abbreviations."""
    return name.upper() if len(name) <= 3 else name


def signed(value: float, digits: int) -> str:
    return NONE if math.isnan(value) else _minus(f"{value:+.{digits}f}")


def show_p(p: float) -> str:
    if math.isnan(p):
        return NONE
    return "<0.0001" if p < 0.0001 else f"{p:.4f}"


def show_interval(interval: Interval, digits: int, *, sign: bool = False) -> str:
    if math.isnan(interval.low):
        return NONE
    one, other = (
        signed(end, digits) if sign else _number(end, digits) for end in (interval.low, interval.high)
    )
    return f"{one} to {other}"


def show_count(count: int) -> str:
    """1.08 M and the like: three digits tell networks apart."""
    for unit, name in ((1e6, " M"), (1e3, " k")):
        if count >= unit:
            return f"{count / unit:.3g}{name}"
    return str(count)


def any_published(table: DataOutcome, rows: Iterable[RowOutcome], name: str) -> bool:
    return any(table.published(row, name) is not None for row in rows)


def _named_structures(table: DataOutcome) -> tuple[str, ...]:
    """Those that were scored, or, before any run has ended, those that figures were published of."""
    if table.structures:
        return table.structures
    names = dict.fromkeys(name for row in table.rows for name in row.row.published.get(table.data, {}))
    return tuple(name for name in names if name not in ("average", "hd_mm"))


def _published_columns(table: DataOutcome) -> tuple[str, ...]:
    return tuple(name for name in ("average", "hd_mm") if any_published(table, table.rows, name))


def _published(table: DataOutcome, row: RowOutcome, name: str) -> str:
    figure = table.published(row, name)
    if figure is None:
        return NONE
    digits = DECIMALS["hd_mm" if name == "hd_mm" else "dice"]
    mean, sd = figure
    return _number(mean, digits) if sd is None else f"{_number(mean, digits)} ± {_number(sd, digits)}"


def _score_cell(table: DataOutcome, row: RowOutcome, question: Question, ranks: dict[str, int]) -> Cell:
    text = _spread(row.spread(*question), DECIMALS[question[0]])
    return Cell(text, ranks.get(row.row.name, 0), _marks(table.test(row, question)))


def _marks(test: RowTest | None) -> str:
    if test is None or not test.score.test.p_value < SIGNIFICANT:
        return ""
    return (BETTER if test.better else WORSE) + (HOLDS if test.score.p_holm < SIGNIFICANT else "")


def _ranks(table: DataOutcome, question: Question) -> dict[str, int]:
    """The rows with the best and the second best mean as printed: what looks equal ranks equally."""
    sign = -1 if question[0] == "dice" else 1
    means = {
        row.row.name: sign * round(mean, DECIMALS[question[0]])
        for row in table.finished
        if not math.isnan(mean := row.spread(*question).mean)
    }
    if len(means) < 2:
        return {}
    different = sorted(set(means.values()))
    ranks = {name: BEST for name, mean in means.items() if mean == different[0]}
    if len(ranks) == 1 and len(means) >= UNDERLINED_FROM and len(different) > 1:
        ranks |= {name: SECOND for name, mean in means.items() if mean == different[1]}
    return ranks


def _instead(row: RowOutcome) -> tuple[str, str]:
    """What stands in place of a missing row's numbers, and the footnote that says why."""
    if row.records:
        return "", ""
    if row.missing == NOT_YET:
        return NOT_YET, ""
    return ("failed" if row.failed else "not run"), row.missing


def _scores_notes(outcome: Outcome, table: DataOutcome, published: bool) -> list[str]:
    notes = [outcome.experiment.note]
    if published and outcome.experiment.published_source:
        notes.append(
            f"Published: {outcome.experiment.published_source}. Those figures are of other volumes and "
            "another budget; they take no part in ranks and tests."
        )
    if not table.finished:
        return [note for note in notes if note]
    seeds = max(len(row.seeds) for row in table.finished)
    averaged = " A volume's score is its mean over seeds; the sd is over volumes." if seeds > 1 else ""
    notes.append(
        f"Mean ± sample sd over {len(table.cases)} volumes of {table.patients} patients.{averaged} Bold: "
        "best; underlined: second best. Interval: percentile bootstrap of the mean, drawing patients with "
        "all their volumes 10000 times; what another seed would give is not in it."
    )
    if table.tests:
        notes.append(
            f"{BETTER} better, {WORSE} worse than {_against(outcome.experiment, table)} by the ranks: "
            f"two-sided Wilcoxon signed-rank test paired by volume{_of_common_seeds(seeds)}, "
            f"p < {SIGNIFICANT}; {HOLDS} also after Holm's correction for the {_tests_in(table)} tests of "
            "this table."
        )
        notes.append(_outweighed(table))
        notes.append(few_pairs_note(len(table.cases)))
    notes.append(_untested(outcome.experiment, table))
    notes.append(_uneven(outcome, table))
    notes.append(_empty(table))
    notes.append(DEFINITIONS)
    return [note for note in notes if note]


def _of_common_seeds(seeds: int) -> str:
    return " after averaging the seeds that both rows have" if seeds > 1 else ""


def _outweighed(table: DataOutcome) -> str:
    """Marks that point the other way than the means beside them."""
    found: dict[str, list[str]] = {}
    labels = {row.row.name: row.row.label for row in table.rows}
    for test in table.tests:
        if test.score.test.p_value < SIGNIFICANT and test.mean_disagrees:
            metric, structure = test.question
            name = HEADINGS.get(metric) or f"Dice {structure_title(structure or 'average')}"
            found.setdefault(labels[test.row], []).append(
                f"{name} ({'better' if test.better else 'worse'} in "
                f"{test.better_in if test.better else test.worse_in} of {test.score.test.pairs})"
            )
    if not found:
        return ""
    told = "; ".join(f"{label}: {', '.join(names)}" for label, names in found.items())
    return f"Marks against the direction of the means, which a few volumes turn around: {told}."


def _tests_in(table: DataOutcome) -> int:
    return sum(not math.isnan(test.score.test.p_value) for test in table.tests)


def _against(experiment: Experiment, table: DataOutcome) -> str:
    meant = {row.row.against or experiment.against for row in table.rows} - {NOTHING}
    if meant == {PREVIOUS}:
        return "the row above"
    if len(meant) == 1:
        return experiment.row(meant.pop()).label
    return "the row it is tested against (see the tests)"


def _untested(experiment: Experiment, table: DataOutcome) -> str:
    """Rows that have no mark only because there is nothing to test them against."""
    finished = {row.row.name for row in table.finished}
    labels = [
        row.row.label
        for row in table.finished
        if (against := experiment.tested_against(row.row)) and against.name not in finished
    ]
    if not labels:
        return ""
    return f"Not tested, for want of a result of the row to test against: {', '.join(labels)}."


def _uneven(outcome: Outcome, table: DataOutcome) -> str:
    """Rows that have fewer seeds or volumes than they should: their numbers are not yet what they will be."""
    parts = []
    failed = {(run.data, run.row, run.seed) for run in outcome.failed}
    for row in table.finished:
        lacking = [seed for seed in outcome.plan.seeds if seed not in row.seeds]
        ended = [seed for seed in lacking if (table.data, row.row.name, seed) in failed]
        volumes = {case.case for record in row.records for case in record.cases}
        if ended:
            parts.append(f"of {row.row.label} seed {', '.join(map(str, ended))} failed")
        if waiting := [str(seed) for seed in lacking if seed not in ended]:
            parts.append(f"{row.row.label} has no run yet of seed {', '.join(waiting)}")
        if len(volumes) < len(table.cases):
            parts.append(f"{row.row.label} was scored on {len(volumes)} volumes")
    return f"Not all is there: {'; '.join(parts)}." if parts else ""


def _empty(table: DataOutcome) -> str:
    """How often a structure was missed altogether, where a distance is a diagonal and not a distance."""
    found = [(row.row.label, *row.count("one_empty")) for row in table.finished]
    missed = [f"{label} {count} of {whole}" for label, count, whole in found if count]
    nowhere = sum(row.count("both_empty")[0] for row in table.finished)
    texts = []
    if missed:
        texts.append(f"Structures found by only one of prediction and reference: {', '.join(missed)}.")
    if nowhere:
        texts.append(f"Structures that neither has: {nowhere}.")
    return " ".join(texts)


def _fairness_notes(outcome: Outcome, table: DataOutcome, machines: Sequence[Hardware]) -> list[str]:
    notes = [budget_line(outcome.plan), f"Made by: {command_line(outcome)}"]
    several = any(len(row.seeds) > 1 for row in table.finished)
    if several:
        notes.append("Minutes, epochs, steps and images per second are means over seeds.")
    if len(machines) == 1:
        notes.append(f"Hardware: {_told(machines[0])}.")
    elif machines:
        listed = "; ".join(f"({place}) {_told(machine)}" for place, machine in enumerate(machines, 1))
        notes.append(f"Hardware: {listed}.")
    versions = list(dict.fromkeys(tuple(sorted(record.versions.items())) for record in table.records))
    if versions:
        listed = "; ".join(", ".join(f"{name} {version}" for name, version in each) for each in versions)
        notes.append(f"Versions: {listed}.")
    return notes


def _told(machine: Hardware) -> str:
    beside = f", {machine.workers} runs at a time" if machine.workers > 1 else ""
    threads = "one thread" if machine.threads == 1 else f"{machine.threads} threads"
    device = machine.gpu if machine.gpu and machine.device != "cpu" else ""
    return f"{f'{device}; ' if device else ''}{machine.cpu}, {threads} a run{beside}"


def _spread(spread: Spread, digits: int) -> str:
    if math.isnan(spread.sd):
        return _number(spread.mean, digits)
    return f"{_number(spread.mean, digits)} ± {_number(spread.sd, digits)}"


def _number(value: float, digits: int) -> str:
    return NONE if math.isnan(value) else _minus(f"{value:.{digits}f}")


def _minus(text: str) -> str:
    return text.replace("-", "−")
