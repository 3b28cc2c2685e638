"""Licence plates in a scenario."""

from typing import ClassVar, Literal

from pydantic import Field

from cellbed.workloads.offloading.table import Vision


class Plates(Vision):
    """Frames of a camera go from the endpoints to a remote node over MQTT and come back as licence plates."""

    usual_load: ClassVar[str] = "2 /s"

    kind: Literal["plates"]
    images: int = Field(50, ge=1, le=1000, description="Number of frames in the data bank, 166 to 187 kB each.")

    @property
    def packages(self) -> dict[str, str]:
        return {"rapidocr-onnxruntime": "vision"} if self.model is None else super().packages
