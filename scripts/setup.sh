#!/usr/bin/env bash
# Make a clone ready: Debian packages (with root or sudo), a virtual environment in the clone, the compiled module,
# libraries in JavaScript, and what an ordinary user needs to be allowed. Asks nothing; safe to run again.
#
#   scripts/setup.sh demo     what `make demo` needs
#   scripts/setup.sh core     the same and the needs of the core's tests
#   scripts/setup.sh test     the same and the siblings of the core, with what their tests need
set -euo pipefail
cd "$(dirname "$0")/.."
purpose=${1:-demo}
case $purpose in
    demo) compiled=(.) pure=() pins=demo ;;
    core) compiled=(.) pure=() pins=test ;;
    *) compiled=(. datacentre) pure=(papers) pins=test ;;
esac
parts=("${compiled[@]}" "${pure[@]}")
root=$PWD venv=.venv

say() { printf '%s\n' "$*" >&2; }

# Debian package for each thing that is missing.
missing=()
need() { # need PACKAGE COMMAND...: any of the commands will do
    local package=$1 command
    shift
    for command in "$@"; do
        if command -v "$command" >/dev/null || [ -x "/usr/sbin/$command" ]; then return; fi
    done
    missing+=("$package")
}

python=${PYTHON:-python3}
if ! command -v "$python" >/dev/null; then missing+=(python3 python3-venv)
elif ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then missing+=(python3-venv)
fi
need gcc cc gcc
[ -e /usr/include/stdio.h ] || missing+=(libc6-dev)
need mosquitto mosquitto
need nftables nft
if [ $pins = test ]; then
    need clang clang # congestion control laws for the kernel
    need chromium chromium chromium-browser google-chrome
    need iperf3 iperf3
    need passt pasta
    need iproute2 ip
    need mmdebstrap mmdebstrap
    need openssh-client ssh
    need openssh-server sshd
    need qemu-system-x86 qemu-system-x86_64
    need shellcheck shellcheck
    need sudo sudo
    need curl curl
    need ffmpeg ffmpeg
    need nginx-light nginx
    need caddy caddy
    need coturn turnserver
    need mitmproxy mitmdump
    need redis-server redis-server
    need redis-tools redis-benchmark
    compgen -G "/usr/lib/postgresql/*/bin/postgres" >/dev/null || missing+=(postgresql)
    [ -x /usr/games/teeworlds-server ] || missing+=(teeworlds-server)
    need openssl openssl
    need procps ps
    need tshark tshark
    need podman podman
    need crun crun
    need uidmap newuidmap # Podman and mmdebstrap of an ordinary user
    need busybox-static busybox
fi

if [ ${#missing[@]} -gt 0 ]; then
    install=(apt-get install -y --no-install-recommends "${missing[@]}")
    if [ "$(id -u)" -eq 0 ]; then as_root=(env DEBIAN_FRONTEND=noninteractive)
    elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then as_root=(sudo -n env DEBIAN_FRONTEND=noninteractive)
    else as_root=()
    fi
    if [ ${#as_root[@]} -eq 0 ] || ! command -v apt-get >/dev/null; then
        say "These Debian packages are missing: ${missing[*]}"
        say "Install them with:  sudo ${install[*]}"
        exit 1
    fi
    say "installing Debian packages: ${missing[*]}"
    "${as_root[@]}" scripts/apt_get.sh update -qq
    # Distributions differ: Ubuntu, for one, has Chromium as a snap only.
    available=()
    for package in "${missing[@]}"; do
        if apt-cache show "$package" >/dev/null 2>&1; then available+=("$package")
        else say "this distribution has no package $package; tests that need it will skip"
        fi
    done
    [ ${#available[@]} -eq 0 ] ||
        "${as_root[@]}" scripts/apt_get.sh install -y --no-install-recommends "${available[@]}"
    # Servers of the system would hold nothing of ours up, but nobody asked for them.
    for server in mosquitto nginx caddy coturn redis-server openssh-server postgresql teeworlds-server; do
        if [[ " ${missing[*]} " == *" $server"* ]] && [ -d /run/systemd/system ]; then
            "${as_root[@]}" systemctl disable --now "${server/openssh-server/ssh}" >/dev/null 2>&1 || true
        fi
    done
fi

# Strategies of migration: what post-copy needs of an account that may not exceed the kernel's limits.
if [ $pins = test ] && [ "$(id -u)" -eq 0 ]; then
    [ -e /opt/criu ] || scripts/criu.sh >&2 || say "no CRIU; tests of migrations by it will skip"
    [ "$(cat /proc/sys/fs/pipe-max-size)" -ge 4194304 ] || echo 4194304 > /proc/sys/fs/pipe-max-size || true
fi

if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
    say "cellbed needs Python 3.11 or newer; $python is $("$python" --version). Name another with PYTHON=/path/to/python3."
    exit 1
fi
if ! command -v cargo >/dev/null; then
    say "cellbed needs Rust 1.88 or newer, and no cargo is on the PATH. Install it from https://rustup.rs"
    exit 1
fi
rust=$(rustc --version | cut -d' ' -f2)
if [ "$(printf '1.88.0\n%s\n' "$rust" | sort -V | head -n 1)" != 1.88.0 ]; then
    say "cellbed needs Rust 1.88 or newer; $(command -v rustc) is $rust. Renew it with: rustup update"
    exit 1
fi

if [ ! -x "$venv/bin/python" ]; then
    say "making the virtual environment"
    rm -rf "$venv"
    "$python" -m venv "$venv"
fi
# pip finds the build back end's program `maturin` here.
export PATH="$PWD/$venv/bin:$PATH"
# pip of older Pythons works for a minute on the pages of the index, uv for a few seconds.
add_packages() { # add_packages OPTION...: into the virtual environment, without dependencies
    "$venv/bin/uv" pip install --quiet --no-config --no-cache --system-certs --python "$venv/bin/python" --no-deps "$@"
}
install_pinned() { # install_pinned NAME: the packages of requirements/NAME.txt, which has the hashes of their files
    add_packages -r "requirements/$1.txt"
}
# What is edited while this compiles is compiled by the next run: stamps have the state of the begin.
touch "$venv/.compiling"
wanted=$(cat "${parts[@]/%//pyproject.toml}" "requirements/$pins.txt" | sha256sum)
if [ "$(cat "$venv/.installed-$purpose" 2>/dev/null)" != "$wanted" ]; then
    say "installing Python packages and compiling; this takes a few minutes the first time"
    "$venv/bin/pip" install --quiet --disable-pip-version-check --no-deps -r requirements/uv.txt
    install_pinned $pins
    for part in "${parts[@]}"; do add_packages --no-build-isolation -e "$part"; done
    printf '%s\n' "$wanted" > "$venv/.installed-$purpose"
else
    newest=$(find "${compiled[@]/%//crates}" Cargo.toml Cargo.lock \( -name target -prune \) -o \
        \( -name '*.rs' -o -name 'Cargo.*' \) -newer "$venv/.compiled-$purpose" -print -quit 2>/dev/null || echo none)
    for part in ${newest:+"${compiled[@]}"}; do
        say "compiling"
        output=$(cd "$part" && VIRTUAL_ENV="$root/$venv" "$root/$venv/bin/maturin" develop --release --skip-install 2>&1) ||
            { say "$output"; exit 1; }
    done
fi
helper() { # helper NAME "CRATES" VERB OPTION...: compile the program NAME beside the Python code that starts it
    local path=python/cellbed/testbed/$1 name=$1 crates=$2 verb=$3
    shift 3
    # shellcheck disable=SC2086 # several crates
    if [ -x "$path" ] && [ -z "$(find $crates Cargo.lock -newer "$path" -print -quit)" ]; then return; fi
    output=$(cargo "$verb" --quiet --release --bin "$name" "$@" 2>&1) ||
        { say "$output"; exit 1; }
    install -m 755 "target/release/$name" "$path"
    touch -r "$venv/.compiling" "$path"
}
# The network helper, which `cellbed grant USER --network` installs from here.
# Both packages: so that its libraries have the same features as for the module.
helper cellbed-net "crates/nethelper crates/netdev" build -p cellbed-bindings -p cellbed-nethelper
if [ $pins = test ]; then
    helper cellbed-recorder "crates/recorder crates/calibration crates/netdev crates/link" build -p cellbed-recorder
fi
# The first process of containers, which have no libraries that it could rely on.
helper cellbed-init crates/init rustc -p cellbed-init -- -C target-feature=+crt-static
mv "$venv/.compiling" "$venv/.compiled-$purpose"

fetch() { # fetch SET FILE: libraries in JavaScript, unless FILE is there
    if [ -e "$2" ]; then return; fi
    say "fetching libraries in JavaScript: $1"
    # Debian's npm brings hundreds of packages; the wheel with Node.js is one and stays in the virtual environment.
    command -v npm >/dev/null || install_pinned npm
    "$venv/bin/python" scripts/fetch_assets.py "$1"
}
fetch report python/cellbed/report/assets/uPlot.iife.min.js
if [ $pins = test ]; then
    fetch players python/cellbed/workloads/video/players/hls.min.js
    fetch axe web/axe/axe.min.js
fi

# An ordinary user may not open the TUN device or divide control groups everywhere; with sudo at hand, allow it now.
if [ "$(id -u)" -ne 0 ] && ! "$venv/bin/cellbed" doctor >/dev/null 2>&1; then
    if command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
        sudo -n "$PWD/$venv/bin/cellbed" grant "$(id -un)" >&2
    else
        "$venv/bin/cellbed" doctor >&2 || true
        say "Some of this needs root once:  sudo $PWD/$venv/bin/cellbed grant $(id -un)"
    fi
fi

if [ $pins = test ] &&
    ! "$venv/bin/python" -c 'from cellbed.testbed.nodes.vm_image import image; image()' >/dev/null 2>&1; then
    say "building the image of virtual machines, once; this takes a minute"
    "$venv/bin/cellbed" vm build >/dev/null || say "tests with virtual machines will skip"
fi
