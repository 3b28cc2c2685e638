#!/usr/bin/env bash
# The main job: run the demo scenario and say where its report is.
set -euo pipefail
cd "$(dirname "$0")/.."
cellbed=.venv/bin/cellbed
scenario=${SCENARIO:-scenarios/offload-lte.toml}
options=()
if ! "$cellbed" doctor --check limits >/dev/null 2>&1; then
    echo "CPU and memory limits cannot be enforced here (see: $cellbed doctor); running without them" >&2
    options+=(--no-limits)
fi
"$cellbed" run "$scenario" "${options[@]}"
