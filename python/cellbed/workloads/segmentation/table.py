"""The table of the kind in a scenario."""

from collections.abc import Iterator
from typing import Literal

from pydantic import ConfigDict, Field

from cellbed.scenario.applications import RATE_IF_NEEDED, Groups, Key
from cellbed.workloads.vision.table import Vision


class Segmentation(Vision):
    """Photographs go from the endpoints to a remote node over MQTT and come back as masks, which are displayed."""

    model_config = ConfigDict(json_schema_extra={**RATE_IF_NEEDED, "required": ["kind", "server"]})

    kind: Literal["segmentation"]
    network: Literal["person", "pspnet"] = Field(
        "person",
        description="person: MediaPipe's trained network for persons. pspnet: PSPNet-50 with seeded weights.",
    )
    images: int = Field(20, ge=1, le=1000, description="Number of photographs in the data bank, 2.4 MB each.")

    @property
    def packages(self) -> dict[str, str]:
        """As of :class:`Application`."""
        trained = self.model is None and self.network == "person"
        return {"ai-edge-litert": "vision", "mediapipe": "vision"} if trained else super().packages

    def misfits(self, groups: Groups, duration: int) -> Iterator[tuple[Key, str]]:
        """As of :class:`Application`."""
        yield from super().misfits(groups, duration)
        if self.model is not None and "network" in self.model_fields_set:
            yield "network", "'model' is given, too: remove one of the two"
