"""Translation in a scenario."""

import pathlib
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from cellbed.scenario.fields import TRANSLATOR
from cellbed.workloads.offloading.table import Offloading


class Translation(Offloading):
    """Sentences go from the endpoints to a remote node over MQTT and come back translated."""

    usual_load: ClassVar[str] = "1 /s"

    kind: Literal["translation"]
    model: Annotated[pathlib.Path, TRANSLATOR] | None = Field(
        None,
        description="Folder of a MarianMT model, converted for CTranslate2. Default: the MarianMT architecture with "
        "seeded weights.",
    )
    sentences: int = Field(100, ge=1, le=10000, description="Number of sentences in the data bank.")

    @property
    def packages(self) -> dict[str, str]:
        return dict.fromkeys(("ctranslate2", "sentencepiece"), "translation")
