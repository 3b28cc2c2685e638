"""The reproduction of CellReplay: its plan, its verdicts, and a very small trial that is simulated."""

from pathlib import Path

import polars as pl
import pytest

from cellbed import CellbedError
from cellbed_papers.evaluation.applications import RoundTrips
from cellbed_papers.publication import VERDICTS, Data, Trials, evaluate
from cellbed_papers.publications.cellreplay import MODEL, OPERATORS, PUBLICATION, describe, given, measure
from cellbed_papers.reproduce.simulated import Simulations

SHORT = {"seconds": 20, "trials": 4}


def test_every_group_of_claims_has_settings_that_are_run_once(tmp_path: Path) -> None:
    simulations = Simulations(PUBLICATION, [], tmp_path, short=True)
    assert {claim.experiment for claim in PUBLICATION.claims} == set(simulations.runs)
    assert len({claim.key for claim in PUBLICATION.claims}) == len(PUBLICATION.claims)
    assert len(simulations.missing) == sum(len(group) for group in simulations.runs.values())
    with pytest.raises(CellbedError, match="--sizes: cellreplay has no such input"):
        Simulations(PUBLICATION, [], tmp_path, short=True, given={"sizes": [tmp_path]})


@pytest.fixture(scope="module")
def data() -> Data:
    """Two recordings of each operator, for round trips and probes."""
    found = {}
    for experiment in PUBLICATION.experiments:
        if experiment.name not in ("round-trips", "probes"):
            continue
        rows = [
            {"repetition": seed, "status": "complete", **labels, **measure(describe(labels, SHORT, {}), seed)}
            for labels in experiment.settings
            for seed in (1, 2)
        ]
        found[experiment.name] = Trials(pl.DataFrame(rows), PUBLICATION.usual)
    return found


def test_effects_that_the_model_is_fitted_to_are_not_confirmed(data: Data) -> None:
    findings = evaluate(PUBLICATION, data, [given([])[1]])
    for short in OPERATORS.values():
        trips = findings[f"2-{short}"]
        assert VERDICTS[trips.verdict] in ("follows from its inputs", "undecided"), "two seeds decide little"
        assert MODEL in trips.why
        assert trips.interval.value is not None
        assert trips.interval.value > 0, "Mahimahi's round trips are too short"
    assert findings["5-lengths-lowband"].interval.value > 1.5  # type: ignore[operator]
    assert findings["size"].interval.value > 0.003  # type: ignore[operator]


def test_a_replay_is_judged_and_what_was_not_tried_is_said(data: Data) -> None:
    trips = data["round-trips"]
    at = {"operator": next(iter(OPERATORS)), "application": RoundTrips.name}
    (live, replayed) = (trips.values(f"{each} round trip", **at) for each in ("reference", "cellreplay"))
    assert live.keys() == replayed.keys() == {1, 2}
    claim = next(each for each in PUBLICATION.claims if each.key == "beside")
    assert claim.measure(data) == {}
