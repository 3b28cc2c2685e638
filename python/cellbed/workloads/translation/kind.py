"""Translation offloaded over MQTT: endpoints send English sentences, a remote node answers with their translations."""

from cellbed.runformat.description import Caution, Measure
from cellbed.workloads.offloading.kind import Kind
from cellbed.workloads.translation import marian, sentences

KIND = Kind(
    name="translation",
    client="cellbed_node.offloading.sentences",
    task="cellbed_node.offloading.translator",
    bank=lambda table, cache, note: sentences.data_bank(cache, count=table.sentences, note=note),
    model=lambda table, cache, note: marian.seeded_model(cache, table.runtime or "ctranslate2", note=note),
    seeded=Caution(marian.NOTE, marian.NOTE_DETAIL),
    data=Caution(sentences.NOTE),
    measures=(Measure("bytes_up", "sentence sent", "B"), Measure("bytes_down", "translation received", "B")),
    profile=("2 /s", 60),  # times depend on the sentence: a profile must contain most sentences
)
prepare, processes, describe = KIND.prepare, KIND.processes, KIND.describe
