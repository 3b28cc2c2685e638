#!/usr/bin/env bash
# The steps of the GitHub action (action.yml): `install` cellbed, `run` a scenario. Inputs are environment variables.
set -euo pipefail
cellbed=${CELLBED:-$RUNNER_TEMP/cellbed/bin/cellbed}

install() {
    "${PYTHON:-python3}" -m venv "$RUNNER_TEMP/cellbed"
    "$RUNNER_TEMP/cellbed/bin/pip" install --quiet "cellbed${VERSION:+==$VERSION}"
    "$cellbed" doctor || true  # the run itself names what it lacks
}

# Print an error that GitHub shows at the scenario.
annotate() {
    local text=${1//'%'/%25}
    text=${text//$'\r'/%0D}
    echo "::error file=$SCENARIO,title=cellbed::${text//$'\n'/%0A}"
}

run() {
    local out=$RUNNER_TEMP/cellbed-runs junit=$RUNNER_TEMP/cellbed-junit.xml log=$RUNNER_TEMP/cellbed.log
    local command=("$cellbed" run "$SCENARIO" --out "$out" --check --junit "$junit") status=0 arguments line token folder
    if [ "${VIRTUAL:-false}" = true ]; then
        command+=(--virtual)
    elif [ "$(id -u)" != 0 ] && sudo -n true 2>/dev/null; then
        command=(sudo --preserve-env "${command[@]}")  # namespaces and limits
    fi
    if [ "${STRICT:-false}" = true ]; then command+=(--strict); fi
    read -ra arguments <<< "${ARGUMENTS:-}"
    rm -rf "$out" "$junit"
    mkdir -p "$out"
    token=$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')
    echo "::stop-commands::$token"  # programs may print what GitHub takes for commands
    "${command[@]}" "${arguments[@]}" 2>&1 | tee "$log" || status=${PIPESTATUS[0]}
    echo "::$token::"
    if [ "${command[0]}" = sudo ]; then sudo chown -R "$(id -u)" "$out" "$junit" 2>/dev/null || true; fi
    while IFS= read -r line; do annotate "$line"; done < <(grep -a '^NOT MET: ' "$log" || true)
    if [ "$status" != 0 ] && [ "$status" != 5 ]; then annotate "$(grep -a '^error: ' "$log" || tail -n 1 "$log")"; fi
    folder=$(find "$out" -mindepth 1 -maxdepth 1 -type d | sort | tail -n 1)
    { echo "run=$folder"; [ ! -e "$junit" ] || echo "junit=$junit"; } >> "${GITHUB_OUTPUT:-/dev/null}"
    { echo "### cellbed: $SCENARIO"; echo '~~~~~~'; cat "$log"; echo '~~~~~~'; } >> "${GITHUB_STEP_SUMMARY:-/dev/null}"
    return "$status"
}

"$1"
