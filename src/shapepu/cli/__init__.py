"""The command line: one file a verb, imported only when that verb is asked for.

``shapepu --help`` answers before torch could be imported; a verb's own ``--help`` imports what its options
need.
Exit codes: 0 done, 1 done but something deserves attention (``check``), 2 the input cannot be used,
130 interrupted.
"""

from __future__ import annotations

import importlib
import sys

from shapepu._version import __version__
from shapepu.errors import InputError, unknown_name

VERBS = {
    "demo": "make synthetic hearts, train on their scribbles, predict, score: three minutes",
    "check": "look at every case of a data set before any training",
    "train": "train a model from images and scribbles",
    "predict": "segment images with a trained model",
    "evaluate": "score predictions against reference masks",
    "report": "one HTML file about a run, to open offline",
    "compare": "train many methods on the same data, and tabulate them with tests",
    "scribble": "make scribbles from dense masks",
    "methods": "list the training methods",
    "models": "list the trained models that come with the package, or show the card of one",
}

USAGE = """usage: shapepu VERB ... | shapepu VERB --help | shapepu --version

Train a medical image segmentation model from scribbles alone, on the machine you have,
and know how good it is.

verbs:
{verbs}

A first look:    shapepu demo
Your own data:   shapepu check DATA && shapepu train DATA -o RUN && shapepu predict RUN IMAGES OUT
"""


def main(argv: list[str] | None = None) -> int:
    """Run one verb and return its exit code."""
    argv = sys.argv[1:] if argv is None else argv
    if not argv or argv[0] in ("-h", "--help", "help"):
        lines = (f"  {verb:<9} {summary}" for verb, summary in VERBS.items())
        print(USAGE.format(verbs="\n".join(lines)), end="")
        return 0
    if argv[0] in ("-V", "--version"):
        print(f"shapepu {__version__}")
        return 0
    try:
        if argv[0] not in VERBS:
            raise unknown_name("verb", argv[0], tuple(VERBS))
        return _run_verb(argv[0], argv[1:])
    except InputError as error:
        print(f"shapepu {argv[0]}: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"shapepu {argv[0]}: interrupted.", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # The reader of a pipe (head, less) has seen enough. Point stdout at nothing, or the interpreter
        # complains once more at exit.
        sys.stdout = None
        return 0


def _run_verb(verb: str, argv: list[str]) -> int:
    run = importlib.import_module(f"shapepu.cli.{verb}").run
    return int(run(argv))
