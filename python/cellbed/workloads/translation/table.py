"""Translation in a scenario."""

import pathlib
from collections.abc import Iterator
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from cellbed.scenario.applications import Groups, Key
from cellbed.scenario.fields import TRANSLATOR
from cellbed.workloads.offloading.table import Offloading
from cellbed_node.offloading.translator import is_of_torch


class Translation(Offloading):
    """Sentences go from the endpoints to a remote node over MQTT and come back translated."""

    usual_load: ClassVar[str] = "1 /s"

    kind: Literal["translation"]
    model: Annotated[pathlib.Path, TRANSLATOR] | None = Field(
        None,
        description="Folder of a MarianMT model, converted for CTranslate2, or of transformers. Default: the MarianMT "
        "architecture with seeded weights.",
    )
    runtime: Literal["ctranslate2", "torch"] | None = Field(
        None, description="Runtime of the seeded weights, without 'model'. Default: ctranslate2."
    )
    sentences: int = Field(100, ge=1, le=10000, description="Number of sentences in the data bank.")

    @property
    def packages(self) -> dict[str, str]:
        if self.runtime == "torch" or (self.model is not None and is_of_torch(self.model)):
            return dict.fromkeys(("torch", "transformers", "sentencepiece"), "torch")
        return dict.fromkeys(("ctranslate2", "sentencepiece"), "translation")

    def misfits(self, groups: Groups, duration: int) -> Iterator[tuple[Key, str]]:
        yield from super().misfits(groups, duration)
        if self.runtime is not None and self.model is not None:
            yield "runtime", "the files of 'model' name its runtime: remove one of the two"
