"""Names that are similar to a misspelled name."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence

_MOST = 3
_FEW = 3
"""Minimum length of texts that are searched for inside names."""
_ALIKE = 0.7


def did_you_mean(text: str, names: Iterable[str]) -> str:
    """Return a hint with the name nearest to a text.

    Args:
        text: A word that is not a name.
        names: The names.

    Returns:
        ``did you mean 'NAME'? ``, with a trailing space; empty if no name is near. A name that begins with the word and
        a hyphen is nearest.
    """
    names = list(names)
    begun = [name for name in names if name.startswith(f"{text}-")]
    near = begun or difflib.get_close_matches(text[:100], names, n=1)
    return f"did you mean '{near[0]}'? " if near else ""


def near_names(text: str, names: Sequence[str]) -> list[str]:
    """Return the members of `names` near `text`, in the order of `names`; at most three.

    The first rule that finds a name applies: equal in lower case, beginning with `text`, differing in few letters (the
    nearest name only), containing `text`.
    """
    wanted = text.lower()[:100]
    if wanted in names:
        return [wanted]
    if len(wanted) >= _FEW and (begun := [name for name in names if name.startswith(wanted)]):
        return begun[:_MOST]
    if near := difflib.get_close_matches(wanted, names, n=1, cutoff=_ALIKE):
        return near
    return [name for name in names if wanted in name][:_MOST] if len(wanted) >= _FEW else []


def question(names: Sequence[str]) -> str:
    """Return a suggestion: ``did you mean 'a' or 'b'?``; empty if there is none."""
    return f"did you mean {' or '.join(repr(name) for name in names)}?" if names else ""
