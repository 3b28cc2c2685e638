"""The task of translation: a sentence in UTF-8 becomes its translation, by a model in CTranslate2 or by Apertium."""

import re
import subprocess
from pathlib import Path
from typing import IO, Any

from cellbed.scenario.fields import APERTIUM
from cellbed.testbed.process import find
from cellbed.workloads.marian import BYTES_PER_PIECE
from cellbed.workloads.sentences import LONGEST, SHORTEST
from cellbed.workloads.task import ModelError, Task

_FEWEST, _MOST = SHORTEST // BYTES_PER_PIECE + 1, LONGEST // BYTES_PER_PIECE
_MODE = Path("/usr/share/apertium/modes/eng-spa.mode")
_PACKAGES = "sudo apt install apertium apertium-eng-spa"
_RESERVED = re.compile(r"([][\\^$/<>{}@])")
_SUPERBLANK = "[][\n]"
"""Ends a sentence in Apertium's stream format: what is in brackets passes unchanged."""


def load(model: str) -> Task:
    """The translator of a model's folder, or :data:`APERTIUM`, after a first sentence. Raises ModelError."""
    translator: Task = Apertium() if model == APERTIUM else Model(Path(model))
    try:
        translator.compute(translator.decode(b"The old engineer repaired the bridge near the station."))
    except (RuntimeError, ValueError, OSError) as error:
        raise ModelError(f"{model}: cannot translate a sentence: {str(error).strip().splitlines()[0]}") from error
    return translator


class Model:
    """A model in CTranslate2, on one thread. Without SentencePiece's `source.spm` its pieces are words."""

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
        """The pieces of the sentence, and its length in bytes. Raises ValueError for text that is not UTF-8."""
        text = _text(payload)
        pieces: list[str] = text.split() if self._pieces is None else self._pieces.encode(text, out_type=str)
        return pieces, len(payload)

    def compute(self, decoded: tuple[list[str], int]) -> str:
        """The translation. That of seeded weights would not end: it has the length of its sentence."""
        pieces, length = decoded
        options: dict[str, Any] = {}
        if self._seeded:
            count = min(max(round(length / BYTES_PER_PIECE), _FEWEST), _MOST)
            options = {"min_decoding_length": count, "max_decoding_length": count, "disable_unk": True}
        (result,) = self._translator.translate_batch([pieces], **options)
        words: list[str] = result.hypotheses[0]
        return " ".join(words) if self._pieces is None else "".join(words).replace("\u2581", " ").strip()


class Apertium:
    """Apertium's translator from English to Spanish: its programs in a pipeline that stays, one sentence at a time."""

    def __init__(self) -> None:
        """Start the pipeline. Raises ModelError where Apertium is not installed."""
        missing = find("apertium") is None or not _MODE.is_file()
        if missing:
            raise ModelError(f"Apertium or its pair eng-spa is not installed: {_PACKAGES}")
        # The mode is a shell pipeline; $1 and $2 are options of two of its programs: unknown words are not marked.
        mode = _MODE.read_text(encoding="utf-8").strip().replace("$1", "-n").replace("$2", "")
        # -z: each program passes on what it has at a null byte, and does not wait for the end.
        pipeline = " | ".join(f"{program.strip()} -z" for program in mode.split("|"))
        process = subprocess.Popen(["sh", "-c", pipeline], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
        assert process.stdin is not None
        assert process.stdout is not None
        self._process = process
        self._input: IO[bytes] = process.stdin
        self._output: IO[bytes] = process.stdout

    def decode(self, payload: bytes) -> bytes:
        """The sentence in Apertium's stream format. Raises ValueError for text that is not UTF-8."""
        return (_RESERVED.sub(r"\\\1", _text(payload)) + _SUPERBLANK).encode() + b"\0"

    def compute(self, stream: bytes) -> str:
        """The translation. Raises OSError when the pipeline has ended."""
        self._input.write(stream)
        translation = b""
        while not translation.endswith(b"\0"):
            chunk = self._output.read(1 << 16)
            if not chunk:
                raise OSError("Apertium's pipeline has ended")
            translation += chunk
        text = translation[:-1].decode("utf-8", "replace").replace(_SUPERBLANK, "")
        return re.sub(r"\\(.)", r"\1", text)


def _text(payload: bytes) -> str:
    try:
        return " ".join(payload.decode("utf-8").replace("\0", " ").split())
    except UnicodeDecodeError as error:
        raise ValueError(f"cannot be decoded: {error}") from error
