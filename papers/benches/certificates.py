"""Agreement of the certificates of recordings with the errors of replays, over the results of an evaluation.

    cellbed evaluate replay --zoo --recordings 1 --results evaluation
    python papers/benches/certificates.py evaluation

Each recording is checked. The true error is the evaluation's: an application on a network against its replay, mean and
largest over groups of measures: median and 95th percentile of round trips, trains, downloads, pages, player. Prints
certificates and errors, Spearman's rank correlation, and networks with a certificate below 5 % and a mean error above
12 %.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from cellbed.experiments.certification import check_recording
from cellbed.recordings.certificate import read_certificate
from cellbed.recordings.derived import METHODS, Method
from cellbed_papers.evaluation.applications import ROUND_TRIP

PROMISED, BROKEN = 0.05, 0.12


def main() -> None:
    """Print the table of an evaluation."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path)
    results: Path = parser.parse_args().results
    true = true_errors(json.loads((results / "table.json").read_text()))
    rows = []
    for name in dict.fromkeys(name for name, _ in true):
        folders = sorted((results / "recordings").glob(f"{name}-[0-9]*"))
        checked = [certificate(folder) for folder in folders]
        # The last one has the trains of all methods.
        best = min(checked[-1], key=checked[-1].__getitem__, default="") if checked else ""
        for method in METHODS:
            # The first recording of a number has the trains of the paper; all that a method can use count.
            found = [each[method] for each in checked if method in each]
            if found and (name, method) in true:
                rows.append((name, method, method == best, found[0], *true[name, method]))
    table = pl.DataFrame(rows, schema=["network", "method", "best", "certificate", "mean", "largest"], orient="row")
    with pl.Config(tbl_rows=-1, float_precision=3):
        print(table)
    for what, part in [(each, table.filter(pl.col("method") == each)) for each in METHODS] + [
        ("all", table),
        ("best", table.filter("best")),
    ]:
        mean, largest = (
            part.select(pl.corr("certificate", of, method="spearman")).item() for of in ("mean", "largest")
        )
        broken = part.filter((pl.col("certificate") < PROMISED) & (pl.col("mean") > BROKEN))
        words = f"rank correlation with the mean error {mean:.2f}, with the largest {largest:.2f}"
        print(f"{what}: {part.height} replays, {words}, promise broken: {broken.rows() or 'never'}")


def certificate(folder: Path) -> dict[Method, float]:
    """Return the error of each method by the certificate of a recording, which is checked first if needed."""
    found = read_certificate(folder)[0] or check_recording(folder)[0]
    return dict(found.errors)


def true_errors(table: dict[str, list[dict[str, Any]]]) -> dict[tuple[str, str], tuple[float, float]]:
    """Return the mean and the largest true error of each network and method of an evaluation's table."""
    groups: dict[tuple[str, str], dict[str, list[float]]] = {}
    for row in table["rows"]:
        name, method, application, measure = (str(row[key]) for key in ("profile", "method", "application", "measure"))
        if measure.startswith("every "):
            continue
        of_network = groups.setdefault((name, method), {})
        for statistic in ("median", "p95") if measure == ROUND_TRIP else ("mean",):
            group = statistic if measure == ROUND_TRIP else application
            of_network.setdefault(group, []).append(abs(row[statistic]["value"]))
    means = {key: [float(np.mean(each)) for each in found.values()] for key, found in groups.items()}
    return {key: (float(np.mean(each)), max(each)) for key, each in means.items()}


if __name__ == "__main__":
    main()
