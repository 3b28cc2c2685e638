"""MarianMT in CTranslate2's format with seeded weights: the compute of the real network, without its training.

Junczys-Dowmunt et al., "Marian: Fast Neural Machine Translation in C++", ACL 2018 (demonstrations), in the shape of the
OPUS-MT models (Tiedemann, Thottingal, "OPUS-MT", EAMT 2020): transformer base (Vaswani et al., NeurIPS 2017, Table 3)
with one embedding for both languages and the output. Weights are stored in 8 bits, as in the conversion that
CTranslate2's guide describes.
"""

import io
import itertools
import json
import string
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from cellbed.workloads.cache import Note, build_elsewhere, build_folder, silent
from cellbed.workloads.translation import sentences
from cellbed_node.offloading.translator import BYTES_PER_PIECE

NOTE = "seeded weights: compute is real, translations are not"
NOTE_DETAIL = (
    "The model’s weights come from a seed, not from training; it does the work of a trained one, but its replies mean "
    "nothing. Their length is set to the sentence's."
)

SEED = 1
_FORMAT = 1
_SPECIAL = ["</s>", "<unk>"]
_WORD_BEGINS = "\u2581"  # SentencePiece's mark; a space in the text


@dataclass(frozen=True, slots=True)
class Shape:
    """The size of the network: layers of encoder and of decoder, width, heads, width of the feed-forward layers, and
    number of vocabulary pieces."""

    layers: int = 6
    width: int = 512
    heads: int = 8
    feed_forward: int = 2048
    vocabulary: int = 58_101


BASE = Shape()
"""Shape of OPUS-MT's models, with the vocabulary of English to German."""


def seeded_model(cache: Path, runtime: str = "ctranslate2", *, seed: int = SEED, note: Note = silent) -> Path:
    """Return the model's folder for a runtime under ``cache``, built if missing. Raises CellbedError if it cannot be
    built."""
    folder = cache / f"marian-{_FORMAT}-{seed}{'-torch' * (runtime == 'torch')}"
    if not folder.is_dir():
        note(f"building MarianMT with seeded weights ({'300' if runtime == 'torch' else '80'} MB), once: {folder}")
        build_folder(folder, lambda temporary: build_elsewhere("MarianMT", __name__, temporary, seed, runtime))
    return folder


def write_for_torch(folder: Path, seed: int = SEED, shape: Shape = BASE) -> None:
    """Build the model in the format of transformers in a folder, with the beams of OPUS-MT's models."""
    import torch
    import transformers

    pieces, tokeniser = _source_pieces(seed)
    # The padding is the last piece, as in OPUS-MT's models.
    names = [*pieces, *(f"<{number}>" for number in range(len(pieces), shape.vocabulary - 1)), "<pad>"]
    torch.manual_seed(seed)
    sizes = {f"{side}_{name}": size for side in ("encoder", "decoder") for name, size in (
        ("layers", shape.layers), ("attention_heads", shape.heads), ("ffn_dim", shape.feed_forward))}  # fmt: skip
    last = shape.vocabulary - 1
    config = transformers.MarianConfig(
        vocab_size=shape.vocabulary, d_model=shape.width, num_beams=6, eos_token_id=0, pad_token_id=last,
        decoder_start_token_id=last, forced_eos_token_id=None, activation_function="swish", scale_embedding=True,
        **sizes,
    )  # fmt: skip
    transformers.MarianMTModel(config).save_pretrained(folder)
    (folder / "vocab.json").write_text(json.dumps({name: at for at, name in enumerate(names)}), encoding="utf-8")
    for name in ("source.spm", "target.spm"):
        (folder / name).write_bytes(tokeniser)
    (folder / "tokenizer_config.json").write_text('{"source_lang": "en", "target_lang": "de"}\n', encoding="utf-8")
    (folder / "seeded.json").write_text(json.dumps({"seed": seed, **asdict(shape)}) + "\n", encoding="utf-8")


def write(folder: Path, seed: int = SEED, shape: Shape = BASE) -> None:
    """Build the model and write it into an existing folder; the same seed gives the same bytes."""
    from ctranslate2.converters import marian
    from ctranslate2.specs import common_spec, transformer_spec

    pieces, tokeniser = _source_pieces(seed)
    if len(pieces) > shape.vocabulary:
        raise ValueError(f"a vocabulary of {shape.vocabulary} pieces is too small: write at least {len(pieces)}")
    spec: Any = transformer_spec.TransformerSpec.from_config(
        shape.layers, shape.heads, pre_norm=False, activation=common_spec.Activation.SWISH
    )
    marian.set_transformer_spec(spec, _weights(seed, shape))
    # Unused pieces fill the vocabulary.
    spec.register_source_vocabulary([*pieces, *(f"<{number}>" for number in range(len(pieces), shape.vocabulary))])
    spec.register_target_vocabulary(_target_pieces(shape.vocabulary))
    spec.config.add_source_eos = True
    spec.validate()
    spec.optimize(quantization="int8")
    spec.save(str(folder))
    (folder / "source.spm").write_bytes(tokeniser)
    (folder / "seeded.json").write_text(json.dumps({"seed": seed, **asdict(shape)}) + "\n", encoding="utf-8")


def _source_pieces(seed: int) -> tuple[list[str], bytes]:
    """Return the vocabulary of the data bank's sentences, and the SentencePiece model for it."""
    import sentencepiece

    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=(sentences.sentence(seed, number) for number in range(1000)),
        model_writer=model,
        model_type="bpe",
        vocab_size=300,
        hard_vocab_limit=False,
        bos_id=-1,
        eos_id=0,
        unk_id=1,
        num_threads=1,
        minloglevel=2,
    )
    processor = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    return [processor.id_to_piece(number) for number in range(processor.get_piece_size())], model.getvalue()


def _target_pieces(count: int) -> list[str]:
    """Return pieces of BYTES_PER_PIECE letters; a third of the pieces begin a word."""
    letters = string.ascii_lowercase
    words = (_WORD_BEGINS + "".join(word) for word in itertools.product(letters, repeat=BYTES_PER_PIECE - 1))
    rest = ("".join(piece) for piece in itertools.product(letters, repeat=BYTES_PER_PIECE))
    pieces = [*_SPECIAL, *itertools.islice(words, count // 3)]
    return [*pieces, *itertools.islice(rest, count - len(pieces))]


def _weights(seed: int, shape: Shape) -> dict[str, Any]:
    """Return the network's arrays by Marian's names, with variances that keep activations in their range."""
    import numpy

    generator = numpy.random.Generator(numpy.random.PCG64(seed))
    weights: dict[str, Any] = {}

    def linear(name: str, number: str, inputs: int, outputs: int) -> None:
        normal = generator.standard_normal((inputs, outputs), numpy.float32)
        weights[f"{name}_W{number}"] = normal * numpy.float32(inputs**-0.5)
        weights[f"{name}_b{number}"] = numpy.zeros((1, outputs), numpy.float32)

    def normalisation(name: str) -> None:
        weights[f"{name}_ln_scale"] = numpy.ones((1, shape.width), numpy.float32)
        weights[f"{name}_ln_bias"] = numpy.zeros((1, shape.width), numpy.float32)

    embedding = generator.standard_normal((shape.vocabulary, shape.width), numpy.float32)
    weights["Wemb"] = embedding * numpy.float32(shape.width**-0.5)
    weights["decoder_ff_logit_out_b"] = numpy.zeros((1, shape.vocabulary), numpy.float32)
    for side, attentions in (("encoder", ("self",)), ("decoder", ("self", "context"))):
        for layer in range(1, shape.layers + 1):
            for attention in attentions:
                for matrix in "qkvo":
                    linear(f"{side}_l{layer}_{attention}", matrix, shape.width, shape.width)
                normalisation(f"{side}_l{layer}_{attention}_Wo")
            linear(f"{side}_l{layer}_ffn", "1", shape.width, shape.feed_forward)
            linear(f"{side}_l{layer}_ffn", "2", shape.feed_forward, shape.width)
            normalisation(f"{side}_l{layer}_ffn_ffn")
    return weights


if __name__ == "__main__":
    (write_for_torch if sys.argv[3] == "torch" else write)(Path(sys.argv[1]), int(sys.argv[2]))
