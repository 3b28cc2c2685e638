"""Policies of migrations: pure functions that decide where a service should be."""

from typing import Annotated

from pydantic import Field

from cellbed.scenario.policies.follow import Follow
from cellbed.scenario.policies.latency import Latency
from cellbed.scenario.policies.python import Python

AnyPolicy = Annotated[Latency | Follow | Python, Field(discriminator="kind")]
