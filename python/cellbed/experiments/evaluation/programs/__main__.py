"""Start a server or a client; see :mod:`cellbed.experiments.evaluation.programs`."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from cellbed.experiments.evaluation.applications import Downloads, Measured, Pages, Player, RoundTrips, Trains, told
from cellbed.experiments.evaluation.programs import priority


def _client(address: str, task: dict[str, Any]) -> Callable[[], Iterator[Measured]]:
    application, seed = told(task["application"]), task["seed"]
    match application:
        case RoundTrips():
            from cellbed.experiments.evaluation.programs import round_trips

            return lambda: round_trips.run(address, application)
        case Trains():
            from cellbed.experiments.evaluation.programs import trains

            return lambda: trains.run(address, application, seed)
        case Downloads():
            from cellbed.experiments.evaluation.programs import downloads

            return lambda: downloads.run(address, application, seed)
        case Player():
            from cellbed.experiments.evaluation.programs import downloads

            return lambda: downloads.watch(address, application, seed)
        case Pages():
            from cellbed.experiments.evaluation.programs import browser

            return browser.prepare(address, application, seed, task["browser"], task["certificate_hash"])


def _serve(address: str, task: dict[str, Any]) -> None:
    if task["application"] == Pages.name:
        from cellbed.experiments.evaluation.programs import web

        web.serve(address, task["certificate"], task["key"], Path(task["folder"]))
    from cellbed.experiments.evaluation.programs import downloads, round_trips, trains

    downloads.serve(address)
    round_trips.serve(address)
    trains.serve(address)
    sys.stdin.read()


def _say(line: dict[str, Any]) -> None:
    print(json.dumps(line), flush=True)


def main() -> None:
    """``serve`` or ``run``, an address, and the task as JSON."""
    what, address, text = sys.argv[1:4]
    task = json.loads(text)
    if what == "serve":
        priority.run_first()
        _serve(address, task)
        return
    if isinstance(told(task["application"]), Pages):
        priority.prefer_session()  # a browser computes, too
    else:
        priority.run_first()
    run = _client(address, task)
    _say({"ready": True})
    sys.stdin.readline()
    for measure, value in run():
        _say({"measure": measure, "value": value})
    _say({"done": True})


main()
