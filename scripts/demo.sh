#!/usr/bin/env bash
# The main job: run the demo scenario and say where its report is.
set -euo pipefail
cd "$(dirname "$0")/.."
cellbed=.venv/bin/cellbed
options=(--example offload-lte)
[ -z "${SCENARIO:-}" ] || options=("$SCENARIO")
limits=$("$cellbed" doctor --json | .venv/bin/python -c '
import json, sys
print(next(check["status"] for check in json.load(sys.stdin) if check["name"] == "CPU and memory limits"))' || true)
if [ "$limits" != ok ]; then
    echo "CPU and memory limits cannot be enforced here (see: $cellbed doctor); running without them" >&2
    options+=(--no-limits)
elif [ "$(nproc)" -eq 1 ]; then
    options+=(--overcommit)  # the report states what the nodes lacked
fi
"$cellbed" run "${options[@]}"
