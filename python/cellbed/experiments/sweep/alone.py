"""The sweep that a scenario makes: its applications together, and each alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import tomli_w

from cellbed.scenario import Scenario, ScenarioError, load
from cellbed.scenario.reader import read, tables

FACTOR, TOGETHER = "applications", "together"


def text_of(file: Path) -> str:
    """Return the text of the sweep over the applications of a scenario file, beside which it is read.

    An application alone has the services with it that its programs need: applications that only serve others.
    Raises ScenarioError with the problems of the scenario, also where fewer than two applications have a load.
    """
    scenario, data = load(file), tables(read(file), str(file))
    loads = [name for name, application in scenario.applications.items() if application.client is not None]
    if len(loads) < 2:
        raise ScenarioError(f"{file}: one application alone: --alone needs two with a client, [apps.NAME]")
    levels = {TOGETHER: _level(data, set(data["apps"]))}
    levels |= {f"{name} alone": _level(data, _find_needs(scenario, name)) for name in loads}
    factor = {"keys": ["apps", "expect"], "levels": levels}
    return tomli_w.dumps({"name": f"{file.stem}-alone", "scenario": file.name, "factors": {FACTOR: factor}})


def _level(data: dict[str, Any], names: set[str]) -> list[dict[str, Any]]:
    """Return the tables of these applications, and what is expected of them."""
    return [{key: value for key, value in data.get(table, {}).items() if key in names} for table in ("apps", "expect")]


def _find_needs(scenario: Scenario, name: str) -> set[str]:
    """Return an application with those whose servers it waits for or names, and those that only serve, as clients of
    the user's own may name these anywhere."""
    services = {each for each, application in scenario.applications.items() if application.client is None}
    found, ahead = services, [name]
    while ahead:
        found = found | {name := ahead.pop()}
        application = scenario.applications[name]
        texts = [text for _, text in application.templates()]
        named = [each for each in scenario.applications if any(f"{{{each}.address}}" in text for text in texts)]
        ahead += {*application.after, *named} - found
    return found
