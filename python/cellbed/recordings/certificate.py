"""`certificate.json`: how closely each method replays the parts of a recording that were held back from its fit.

:mod:`cellbed.experiments.certification` makes it. It is bound to the recording's files by their hash.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, ValidationError

from cellbed.recordings.derived import Method, fingerprint
from cellbed.recordings.description import Part
from cellbed.support.ways import Way
from cellbed.support.whole_files import write_whole
from cellbed_node import inputs

FILE = "certificate.json"
LIMIT = 0.1
"""Maximum error of a replay without a warning."""
_LARGEST = 1 << 20

Text = Annotated[str, Field(max_length=1000, pattern=r"^[^\x00-\x1f\x7f-\x9f]*$")]


class Deviation(Part):
    """The error of a measure with its 95 % interval; ``None`` where the sample cannot support one.

    unit: ``relative``, 0.1 is 10 % too high; or ``share``, the difference of two shares.
    """

    measure: Text
    unit: Literal["relative", "share"] = "relative"
    error: float
    low: float | None = None
    high: float | None = None

    def describe(self) -> str:
        """Return the error with its interval: ``+8.1 % [+2.8, +14.4]``."""
        unit = "%" if self.unit == "relative" else "points"
        interval = "" if self.low is None or self.high is None else f" [{100 * self.low:+.1f}, {100 * self.high:+.1f}]"
        return f"{100 * self.error:+.1f} {unit}{interval}".replace("-", "−")


class Checked(Part):
    """The result of a method.

    largest: the largest error of a group of measures, as in :func:`cellbed.experiments.certification.certify`; ``None``
    if the method cannot replay the recording for a `reason`. group: this group.
    """

    largest: Deviation | None = None
    group: Text = ""
    deviations: Annotated[tuple[Deviation, ...], Field(max_length=1000)] = ()
    reason: Text | None = None

    @property
    def error(self) -> float | None:
        """The largest error of a group; ``None`` if the method cannot replay the recording."""
        return None if self.largest is None else self.largest.error


class Certificate(Part):
    """The content of the file.

    files: hash of the recording's files. rule: how parts were held back. shares: where the shares of several endpoints
    come from, for each direction.
    """

    format: Literal["cellbed-certificate"] = "cellbed-certificate"
    version: Literal[1] = 1
    tool: Text
    files: Text
    rule: Text
    methods: dict[Method, Checked]
    shares: dict[Way, Text] = Field(default_factory=dict)

    @property
    def errors(self) -> dict[Method, float]:
        """The error of each method that can replay the recording."""
        return {name: each.error for name, each in self.methods.items() if each.error is not None}

    @property
    def best(self) -> Method | None:
        """The method with the smallest error; ``None`` if no method can replay the recording."""
        return min(self.errors, key=self.errors.__getitem__, default=None)

    def table(self) -> tuple[list[str], list[list[str]]]:
        """Return headings and rows of a table: the error of each measure by each method that was checked."""
        checked = {name: self.methods[name] for name in self.errors}
        cells = {
            (deviation.measure, name): deviation.describe()
            for name, each in checked.items()
            for deviation in (*each.deviations, *filter(None, [each.largest]))
        }
        measures = dict.fromkeys(measure for measure, _ in cells)
        return ["error of", *checked], [
            [each, *(cells.get((each, name), "–") for name in checked)] for each in measures
        ]

    def sentences(self) -> list[str]:
        """Return the result in sentences: best method, warnings about it, methods that cannot replay the recording,
        shares of several endpoints."""
        found = [f"{name}: not checked: {each.reason}" for name, each in self.methods.items() if each.reason]
        if (best := self.best) is None:
            return found
        found += [f"endpoints that share its {way}: {shares}" for way, shares in self.shares.items()]
        return [f"replayed by {best} unless another method is named", *self.warnings(best), *found]

    def warnings(self, method: Method) -> list[str]:
        """Return a sentence if the error of a method is above :data:`LIMIT`."""
        error = self.errors.get(method, 0)
        if error <= LIMIT:
            return []
        return [f"its replay by {method} errs by {100 * error:.0f} % in {self.methods[method].group}"]


def write_certificate(certificate: Certificate, folder: Path) -> None:
    """Write the certificate into the recording's folder, atomically. Raises OSError."""
    text = json.dumps(certificate.model_dump(mode="json", exclude_none=True), indent=1)
    write_whole(folder / FILE, f"{text}\n")


def read_certificate(folder: Path) -> tuple[Certificate | None, str]:
    """Return the certificate of the recording in a folder, or ``None`` and the reason why none applies."""
    try:
        found = Certificate.model_validate_json(inputs.content(folder / FILE, _LARGEST))
    except FileNotFoundError:
        return None, "its replay was not checked"
    except (OSError, ValidationError):
        return None, f"its replay counts as not checked, because {FILE} cannot be read"
    if found.files != fingerprint(folder):
        return None, f"its replay counts as not checked, because {FILE} belongs to other files"
    return found, ""


def describe_certificate(folder: Path) -> list[str]:
    """Return the certificate of the recording in a folder in sentences, or the reason why none applies."""
    found, reason = read_certificate(folder)
    if found is None:
        return [f"{reason}: run `cellbed recordings check`"]
    errors = [f"{name} {100 * error:.1f} %" for name, error in found.errors.items()]
    return [f"largest error of its replay by {', by '.join(errors)}", *found.sentences()]
