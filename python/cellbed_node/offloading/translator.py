"""The task of translation: a sentence in UTF-8 becomes its translation, by CTranslate2 or PyTorch."""

import os
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
    folder = Path(model)
    translator: Task = TorchModel(folder) if is_of_torch(folder) else Model(folder)
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
            raise ModelError(
                f"{folder}: no model.bin of CTranslate2, nor model.safetensors of PyTorch: write a model's folder"
            )
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
            count = count_pieces(length)
            options = {"min_decoding_length": count, "max_decoding_length": count, "disable_unk": True}
        (result,) = self._translator.translate_batch([pieces], **options)
        words: list[str] = result.hypotheses[0]
        return " ".join(words) if self._pieces is None else "".join(words).replace("\u2581", " ").strip()


class TorchModel:
    """A MarianMT model in PyTorch by the package transformers, on one thread."""

    def __init__(self, folder: Path) -> None:
        """Load the model. Raises ModelError."""
        os.environ |= {"HF_HUB_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1", "TRANSFORMERS_VERBOSITY": "error"}
        import torch
        import transformers

        torch.set_num_threads(1)
        try:
            self._tokeniser = transformers.MarianTokenizer.from_pretrained(folder, local_files_only=True)
            self._model = transformers.MarianMTModel.from_pretrained(folder, local_files_only=True).eval()
        # The packages have no common exception.
        except Exception as error:
            reason = str(error).strip().partition("\n")[0]
            raise ModelError(f"{folder}: transformers cannot load this model: {reason}") from error
        self._no_gradients = torch.inference_mode
        self._seeded = (folder / "seeded.json").is_file()

    def decode(self, payload: bytes) -> tuple[Any, int]:
        """Return the numbers of the pieces and the length in bytes. Raises ValueError for text that is not UTF-8."""
        return self._tokeniser([_text(payload)], return_tensors="pt"), len(payload)

    def compute(self, decoded: tuple[Any, int]) -> str:
        """Return the translation; with seeded weights, of the sentence's length."""
        pieces, length = decoded
        count = {name: count_pieces(length) for name in ("min_new_tokens", "max_new_tokens")} if self._seeded else {}
        with self._no_gradients():
            (found,) = self._model.generate(**pieces, **count)
        translation: str = self._tokeniser.decode(found, skip_special_tokens=True)
        return translation


def count_pieces(length: int) -> int:
    """Return the number of pieces of the translation by seeded weights. length: of the sentence, bytes."""
    return min(max(round(length / BYTES_PER_PIECE), _FEWEST), _MOST)


def is_of_torch(folder: Path) -> bool:
    """Return whether a folder has a model of transformers."""
    return any((folder / name).is_file() for name in ("model.safetensors", "pytorch_model.bin"))


def _text(payload: bytes) -> str:
    try:
        return " ".join(payload.decode("utf-8").replace("\0", " ").split())
    except UnicodeDecodeError as error:
        raise ValueError(f"cannot be decoded: {error}") from error
