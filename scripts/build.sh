#!/usr/bin/env bash
# Compile and pack what is shipped, with the tools of .venv or of BUILD_PYTHON: the same bytes in any folder and at any
# time.
#
#   scripts/build.sh beside          programs, objects of laws and libraries in JavaScript, beside the Python code
#   scripts/build.sh editable PART   install PART into .venv so that edits of its Python code apply at once
#   scripts/build.sh wheel PART      the same and the wheel of PART (., datacentre or papers), in build/dist
#   scripts/build.sh release         wheels and source distributions of all parts, in build/dist
#   scripts/build.sh test            the Rust tests of all crates, optimised, with what was compiled for the wheels
#
# CARGO_BUILD_TARGET=aarch64-unknown-linux-gnu builds for another architecture; needs its cross compiler and Rust's library.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD dist=$PWD/build/dist
export PATH="$root/.venv/bin:$PATH" VIRTUAL_ENV=$root/.venv
python=${BUILD_PYTHON:-$root/.venv/bin/python}
export CARGO_ZIGBUILD_PYTHON_PATH=$python MATURIN_NO_MISSING_BUILD_BACKEND_WARNING=1  # the backend calls this script
host=$(rustc -vV | sed -n 's/^host: //p')
export CARGO_BUILD_TARGET=${CARGO_BUILD_TARGET:-$host} CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$root/target}
export ZIG_TARGET=${CARGO_BUILD_TARGET%%-*}-linux-gnu.2.28
linker=CARGO_TARGET_$(tr a-z- A-Z_ <<< "$CARGO_BUILD_TARGET")_LINKER
export "$linker=$root/scripts/zig_cc.sh"
export RUSTFLAGS="--remap-path-prefix=$root=cellbed --remap-path-prefix=${CARGO_HOME:-$HOME/.cargo}=cargo"
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || echo 1750000000)}
export SOURCE_DATE_EPOCH
options=(--release --compatibility manylinux_2_28 --target "$CARGO_BUILD_TARGET" --interpreter "$python")

programs() {
    local from=$CARGO_TARGET_DIR/$CARGO_BUILD_TARGET/release cc=cc name
    [ "$CARGO_BUILD_TARGET" = "$host" ] || cc=${CARGO_BUILD_TARGET%%-*}-linux-gnu-gcc
    # With the features of the module's crates, so that both share what is compiled.
    cargo build --quiet --locked --release --bin cellbed-recorder --bin cellbed-net \
        -p cellbed-recorder -p cellbed-nethelper -p cellbed-bindings
    # The first process of containers, which have no libraries that it could rely on. Another linker in the same folder
    # would have the rest compiled again.
    env "$linker=$cc" CARGO_TARGET_DIR="$CARGO_TARGET_DIR/init" cargo rustc --quiet --locked --release -p cellbed-init \
        --bin cellbed-init -- -C target-feature=+crt-static
    install -m 755 "$from"/cellbed-{recorder,net} "${from/target/target\/init}/cellbed-init" python/cellbed/testbed
}

# The folder of the objects has the hash of their sources in its name: objects of older sources are never used.
laws() {
    local laws=python/cellbed/laws law to name argument
    to=$laws/objects/$(export LC_ALL=C; cat $laws/*.[ch] | sha256sum | cut -c -16)
    [ ! -e "$to" ] || return 0
    rm -rf $laws/objects
    mkdir -p "$to.part"
    for law in "$laws"/*.h; do
        name=$(basename "$law" .h)
        case $name in law | kernel | shown) continue ;; esac
        zig_cc -target "$ZIG_TARGET" -shared -fPIC -s -include "$law" $laws/host.c -o "$to.part/$name.so"
        for argument in 1 3; do
            zig_cc -target bpfel-freestanding -g -c -include "$law" -DLAW_CONTROL_ARGUMENT=$argument $laws/kernel.c \
                -o "$to.part/$name.$argument.o"
        done
    done
    for name in flows program; do zig_cc -target bpfel-freestanding -g -c $laws/$name.c -o "$to.part/$name.o"; done
    mv "$to.part" "$to"
}
zig_cc() {
    "$python" -m ziglang cc -O2 -fno-sanitize=all -ffile-prefix-map="$root=." -I python/cellbed/laws "$@"
}

assets() { # assets SET FILE: libraries in JavaScript, unless FILE is there
    [ ! -e "$2" ] || return 0
    # Debian's npm brings hundreds of packages; the wheel with Node.js is one and stays in the virtual environment.
    command -v npm >/dev/null || uv pip install --quiet --no-deps -r requirements/npm.txt
    "$python" scripts/fetch_assets.py "$1"
}

beside() {
    programs
    laws
    [ -e PKG-INFO ] || "$python" scripts/man.py "$root/packaging/data/data/share/man/man1"
    assets report python/cellbed/report/assets/uPlot.iife.min.js
    assets players python/cellbed/workloads/video/players/hls.min.js
}

pack() { # pack PART KIND: its wheel or sdist
    local bom=$root/build/sbom/${1/./core}.cdx.json crates=(cellbed-bindings cellbed-recorder cellbed-nethelper cellbed-init)
    local licences=python/cellbed/LICENCES.txt
    if [ "$1" = papers ]; then
        (cd papers && "$python" -c "from poetry.core.masonry import api; api.build_$2('$dist')")
        return
    fi
    if [ "$1" = datacentre ]; then crates=(cellbed-datacentre) licences=datacentre/python/cellbed_datacentre/LICENCES.txt; fi
    "$python" scripts/sbom.py "$bom" "$licences" "${crates[@]}"
    if [ "$2" = sdist ]; then (cd "$1" && maturin sdist --out "$dist")
    else (cd "$1" && maturin build --quiet --locked "${options[@]}" --sbom-include "$bom" --out "$dist"); fi
}

case ${1:-} in
    beside) beside ;;
    editable)
        MATURIN_PEP517_ARGS="--locked ${options[*]:1:4}" uv pip install --quiet --no-config --no-cache --no-deps \
            --no-build-isolation -e "$2"
        ;;
    wheel)
        if [ "$2" = . ]; then beside; fi
        rm -rf "$dist"
        pack "$2" wheel
        ;;
    release)
        beside
        rm -rf "$dist"
        for part in . datacentre papers; do
            pack $part wheel
            pack $part sdist
        done
        ;;
    test) cargo test --workspace --release --quiet ;;
    *)
        sed -n '2,/^set/s/^# \{0,1\}//p' "$0" >&2
        exit 2
        ;;
esac
