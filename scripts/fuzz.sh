#!/usr/bin/env bash
# Fuzz each parser in Rust for a time with new inputs; needs cargo-fuzz and a nightly toolchain.
#
#   scripts/fuzz.sh 60     seconds for each target
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-60}
for folder in crates/*/fuzz; do
    for target in "$folder"/fuzz_targets/*.rs; do
        name=$(basename "$target" .rs)
        echo "== $folder $name"
        (cd "$folder/.." && cargo +nightly fuzz run "$name" -- -max_total_time="$seconds")
    done
done
