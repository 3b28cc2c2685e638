#!/usr/bin/env bash
# Make a clone ready: Debian packages (with root or sudo), a virtual environment in the clone, what is compiled, and what
# an ordinary user needs to be allowed. Asks nothing; safe to run again.
#
#   scripts/setup.sh demo     the wheel of the core, installed in .venv, unless the next two have made it ready
#   scripts/setup.sh core     the core, whose edits apply at once, with the needs of its tests
#   scripts/setup.sh test     the same and the siblings of the core, with what their tests need
set -euo pipefail
cd "$(dirname "$0")/.."
purpose=${1:-demo} venv=.venv
if [ "$purpose" = demo ] && [ -e $venv/.editable ]; then purpose=core; fi
case $purpose in
    demo) parts=() pins=demo ;;
    core) parts=(.) pins=test ;;
    *) parts=(. datacentre papers) pins=test ;;
esac

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
if [ $pins = test ]; then
    # PACKAGE:COMMAND, or the package's name where the command has the same; Podman and mmdebstrap of an ordinary user
    # need newuidmap.
    for each in busybox-static:busybox caddy clang coturn:turnserver crun curl ffmpeg iperf3 iproute2:ip mitmproxy:mitmdump \
        mmdebstrap mosquitto nftables:nft nginx-light:nginx openssh-client:ssh openssh-server:sshd openssl passt:pasta \
        podman procps:ps qemu-system-x86:qemu-system-x86_64 redis-server redis-tools:redis-benchmark shellcheck sudo \
        uidmap:newuidmap; do
        need "${each%%:*}" "${each#*:}"
    done
    need chromium chromium chromium-browser google-chrome
    compgen -G "/usr/lib/postgresql/*/bin/postgres" >/dev/null || missing+=(postgresql)
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
    for server in mosquitto nginx caddy coturn redis-server openssh-server postgresql; do
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
# pip of older Pythons works for a minute on the pages of the index, uv for a few seconds.
add_packages() { # add_packages OPTION...: into the virtual environment, without dependencies
    "$venv/bin/uv" pip install --quiet --no-config --no-cache --system-certs --python "$venv/bin/python" --no-deps "$@"
}
# The files of requirements/ have the hashes of the packages' files.
wanted=$(cat pyproject.toml "requirements/$pins.txt" | sha256sum)
if [ "$(cat "$venv/.installed-$pins" 2>/dev/null)" != "$wanted" ]; then
    say "installing Python packages"
    "$venv/bin/pip" install --quiet --disable-pip-version-check --no-deps -r requirements/uv.txt
    add_packages -r "requirements/$pins.txt"
    printf '%s\n' "$wanted" > "$venv/.installed-$pins"
fi
say "compiling; this takes a few minutes the first time"
if [ "$purpose" = demo ]; then
    scripts/build.sh wheel .
    add_packages --reinstall build/dist/cellbed-*.whl
else
    touch "$venv/.editable"
    scripts/build.sh beside
    [ -e web/axe/axe.min.js ] || "$venv/bin/python" scripts/fetch_assets.py axe
    for part in "${parts[@]}"; do scripts/build.sh editable "$part"; done
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
    ! "$venv/bin/python" -c 'import gzip; from cellbed.testbed.nodes.vm_image import image
assert b"nf_tables" in gzip.decompress(image().initial.read_bytes()), "built before CRIU could run there"' \
        >/dev/null 2>&1; then
    say "building the image of virtual machines, once; this takes a minute"
    "$venv/bin/cellbed" vm build >/dev/null || say "tests with virtual machines will skip"
fi
