"""Measuring a run and judging its expectations."""

from dataclasses import replace
from pathlib import Path

from cellbed.measure import run_folder, summary
from cellbed.measure.summary import Summary
from cellbed.measure.verdicts import judge

_ENDS = {"interrupted": "the run was interrupted", "failed": "the run failed"}
"""The reason why a run meets no expectation, by its status."""


def collect(run: Path) -> Summary:
    """Compute the tables and the summary of a run (:func:`cellbed.measure.summary.collect`), with verdicts on its
    expectations: a run that is not complete meets none. Raises MeasureError."""
    found = summary.collect(run)
    described = run_folder.applications_of(run_folder.read_run(run))
    if not any(each.expectations for each in described):
        return found
    from cellbed.measure.rows import measure

    rows = {row["app"]: row for row in measure(run)[0]}
    failure = None
    if found.status != "complete":
        reasons = (each for each in found.warnings if each.startswith(_ENDS["failed"]))
        failure = next(reasons, _ENDS.get(found.status, "the run did not end"))
    verdicts = [judge(app.name, each, rows[app.name], failure) for app in described for each in app.expectations]
    judged = replace(found, expectations=verdicts)
    run_folder.replace(run / "summary.json", lambda path: path.write_bytes(judged.json()))
    return judged
