"""Examples of the page about the library, as doctests."""

import doctest
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "library.md"


def examples(text: str) -> tuple[int, int]:
    """Numbers of examples of a page that failed and were tried."""
    example = doctest.DocTestParser().get_doctest(text, {}, PAGE.name, str(PAGE), 0)
    return tuple(doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE).run(example))  # type: ignore[return-value]
