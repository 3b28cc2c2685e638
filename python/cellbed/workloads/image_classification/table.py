"""Image classification in a scenario."""

from collections.abc import Iterator
from typing import Literal, Self

from pydantic import ConfigDict, Field

from cellbed.scenario.applications import RATE_IF_NEEDED, Groups, Key, group_misfits
from cellbed.scenario.loads import AnyPolicy
from cellbed.scenario.nodes import Name
from cellbed.scenario.roles import Role
from cellbed.workloads.offloading.table import Vision
from cellbed_node.offloading.runtimes import RUNTIMES


class ImageClassification(Vision):
    """Photographs go from the endpoints to a remote node over MQTT and come back as classes."""

    model_config = ConfigDict(
        json_schema_extra={**RATE_IF_NEEDED, "anyOf": [{"required": ["server"]}, {"required": ["on"]}]}
    )

    kind: Literal["image-classification"]
    on: Name | None = Field(None, description="The same as 'server'.", examples=["edge"])
    runtime: Literal["onnx", "tensorflow"] | None = Field(
        None, description="Runtime of MobileNetV2 with seeded weights, without 'model'. Default: onnx."
    )
    images: int = Field(100, ge=1, le=10000, description="Number of photographs in the data bank.")
    policy: AnyPolicy | None = Field(  # type: ignore[assignment]
        None, description="Reaction of an endpoint to slow replies. Default: none."
    )

    @property
    def served_by(self) -> Role | None:
        """The servers."""
        return self.server or (Role.of_group(self.on) if self.on is not None else None)

    @property
    def needs_code(self) -> bool:
        """Networks in ONNX with one image have a processing here."""
        return self.model is not None and self.model.suffix != ".onnx"

    @property
    def packages(self) -> dict[str, str]:
        tensorflow = RUNTIMES["tensorflow"]
        return {tensorflow.package: tensorflow.extra} if self.runtime == "tensorflow" else super().packages

    def complete(self, groups: Groups) -> Self:
        return super().complete(groups).model_copy(update={"on": None})

    def misfits(self, groups: Groups, duration: int) -> Iterator[tuple[Key, str]]:
        yield from super().misfits(groups, duration)
        if self.runtime is not None and self.model is not None:
            yield "runtime", "the ending of 'model' names its runtime: remove one of the two"
        if self.on is not None:
            yield from group_misfits("on", self.on, groups)
            if self.server is not None:
                yield "on", "the same as 'server': remove one of the two"
