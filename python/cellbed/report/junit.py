"""Verdicts on expectations as JUnit XML, which CI services show."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree

from cellbed.measure.run_folder import replace
from cellbed.report import formats
from cellbed.support.errors import printable

if TYPE_CHECKING:
    from cellbed.measure.verdicts import Verdict


def write(path: Path, suite: str, verdicts: Sequence[Verdict]) -> None:
    """Write a test case for each verdict. suite: name of the run or sweep. Raises MeasureError for a file that cannot
    be written."""
    failures = sum(not each.met for each in verdicts)
    about = {"name": printable(suite), "tests": str(len(verdicts)), "failures": str(failures), "errors": "0"}
    root = ElementTree.Element("testsuite", about)
    for each in verdicts:
        place = ".".join(filter(None, (suite, each.point, each.app)))
        words = formats.verdict(asdict(each))
        case = ElementTree.SubElement(root, "testcase", classname=printable(place))
        case.set("name", printable(f"{each.name} {each.limit}"))  # XML excludes control characters
        if each.met:
            ElementTree.SubElement(case, "system-out").text = printable(words)
        else:
            ElementTree.SubElement(case, "failure", message=printable(words))
    replace(path, lambda place: ElementTree.ElementTree(root).write(place, encoding="utf-8", xml_declaration=True))
