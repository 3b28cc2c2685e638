"""The task of translation: a sentence in UTF-8 becomes its translation, by a model in CTranslate2."""

from pathlib import Path
from typing import Any

from cellbed_node.offloading.task import ModelError, Task

SHORTEST, LONGEST = 100, 200
"""Minimum and maximum bytes of a sentence."""
BYTES_PER_PIECE = 4
"""Bytes of each piece that the model can write: the number of pieces determines the length of the reply."""
_FEWEST, _MOST = SHORTEST // BYTES_PER_PIECE + 1, LONGEST // BYTES_PER_PIECE


def load(model: str) -> Task:
    """Load the translator in a model's folder and translate a first sentence. Raises ModelError."""
    translator: Task = Model(Path(model))
    try:
        translator.compute(translator.decode(b"The old engineer repaired the bridge near the station."))
    except (RuntimeError, ValueError, OSError) as error:
        raise ModelError(f"{model}: cannot translate a sentence: {str(error).strip().splitlines()[0]}") from error
    return translator


class Model:
    """A model in CTranslate2, on one thread. Without SentencePiece's `source.spm`, pieces are words."""

    def __init__(self, folder: Path) -> None:
        """Load the model. Raises ModelError."""
        import ctranslate2
        import sentencepiece

        if not (folder / "model.bin").is_file():
            raise ModelError(f"{folder}: no model.bin; write the folder of a model that was converted for CTranslate2")
        tokeniser = folder / "source.spm"
        self._pieces: Any = None
        try:
            self._translator = ctranslate2.Translator(str(folder), device="cpu", inter_threads=1, intra_threads=1)
            if tokeniser.is_file():
                self._pieces = sentencepiece.SentencePieceProcessor(model_file=str(tokeniser))
        except (RuntimeError, ValueError, OSError) as error:
            reason = str(error).strip().splitlines()[0]
            raise ModelError(f"{folder}: CTranslate2 cannot load this model: {reason}") from error
        self._seeded = (folder / "seeded.json").is_file()

    def decode(self, payload: bytes) -> tuple[list[str], int]:
        """Return the pieces of the sentence and its length in bytes. Raises ValueError for text that is not UTF-8."""
        text = _text(payload)
        pieces: list[str] = text.split() if self._pieces is None else self._pieces.encode(text, out_type=str)
        return pieces, len(payload)

    def compute(self, decoded: tuple[list[str], int]) -> str:
        """Return the translation. With seeded weights it would not end, and therefore gets the sentence's length."""
        pieces, length = decoded
        options: dict[str, Any] = {}
        if self._seeded:
            count = min(max(round(length / BYTES_PER_PIECE), _FEWEST), _MOST)
            options = {"min_decoding_length": count, "max_decoding_length": count, "disable_unk": True}
        (result,) = self._translator.translate_batch([pieces], **options)
        words: list[str] = result.hypotheses[0]
        return " ".join(words) if self._pieces is None else "".join(words).replace("\u2581", " ").strip()


def _text(payload: bytes) -> str:
    try:
        return " ".join(payload.decode("utf-8").replace("\0", " ").split())
    except UnicodeDecodeError as error:
        raise ValueError(f"cannot be decoded: {error}") from error
