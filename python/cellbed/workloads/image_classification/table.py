"""Image classification in a scenario."""

import pathlib
from collections.abc import Iterator
from typing import Annotated, Literal, Self

from pydantic import ConfigDict, Field

from cellbed.scenario.applications import RATE_IF_NEEDED, Groups, Key, group_misfits
from cellbed.scenario.fields import FILE
from cellbed.scenario.loads import AnyPolicy
from cellbed.scenario.nodes import Name
from cellbed.scenario.roles import Role
from cellbed.workloads.offloading.table import Offloading


class ImageClassification(Offloading):
    """Photographs go from the endpoints to a remote node over MQTT and come back as classes."""

    model_config = ConfigDict(
        json_schema_extra={**RATE_IF_NEEDED, "anyOf": [{"required": ["server"]}, {"required": ["on"]}]}
    )

    kind: Literal["image-classification"]
    on: Name | None = Field(None, description="The same as 'server'.", examples=["edge"])
    model: Annotated[pathlib.Path, FILE] | None = Field(
        None, description="Model to run, in ONNX format. Default: MobileNetV2 with seeded weights."
    )
    images: int = Field(100, ge=1, le=10000, description="Number of photographs in the data bank.")
    policy: AnyPolicy | None = Field(  # type: ignore[assignment]
        None, description="Reaction of an endpoint to slow replies. Default: none."
    )

    @property
    def served_by(self) -> Role | None:
        """The servers."""
        return self.server or (Role.of_group(self.on) if self.on is not None else None)

    def complete(self, groups: Groups) -> Self:
        return super().complete(groups).model_copy(update={"on": None})

    def misfits(self, groups: Groups, duration: int) -> Iterator[tuple[Key, str]]:
        yield from super().misfits(groups, duration)
        if self.on is not None:
            yield from group_misfits("on", self.on, groups)
            if self.server is not None:
                yield "on", "the same as 'server': remove one of the two"
