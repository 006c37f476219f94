"""What a user can do something about; everything else is a defect and keeps its traceback."""

from __future__ import annotations


class InputError(ValueError):
    """Something given by the user cannot be used.

    The message is one line: what was given, what was expected, what to do. The command line prints it and
    exits with code 2.
    """


def unknown_name(kind: str, name: str, known: list[str] | tuple[str, ...]) -> InputError:
    """The error for a name that is not registered; it lists those that are, the closest first."""
    import difflib

    close = difflib.get_close_matches(name, known, n=1)
    hint = f"; did you mean {close[0]!r}?" if close else "."
    return InputError(f"unknown {kind} {name!r}{hint} Known: {', '.join(sorted(known))}.")
