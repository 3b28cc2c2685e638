"""Segmentation in a scenario."""

from typing import ClassVar, Literal

from pydantic import Field

from cellbed.workloads.offloading.table import Vision


class Segmentation(Vision):
    """Photographs go from the endpoints to a remote node over MQTT and come back as masks, which are displayed."""

    usual_load: ClassVar[str] = "0.5 /s"

    kind: Literal["segmentation"]
    images: int = Field(20, ge=1, le=1000, description="Number of photographs in the data bank, 2.4 MB each.")

    @property
    def packages(self) -> dict[str, str]:
        return {"ai-edge-litert": "vision", "mediapipe": "vision"} if self.model is None else super().packages
