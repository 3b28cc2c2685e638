#!/usr/bin/env bash
# Make a Debian package of a wheel and the Python packages that it requires, for this distribution's Python:
#
#   packaging/debian.sh build/dist/cellbed-*.whl OUT       writes OUT/cellbed_VERSION_ARCHITECTURE.deb
#
# cellbed is in a virtual environment, /opt/cellbed. Needs python3-venv and dpkg-deb.
set -euo pipefail
wheel=$(realpath "$1") out=$(realpath "$2")
python=/usr/bin/python3
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
chmod 755 "$stage"
home=$stage/opt/cellbed
"$python" -m venv "$home"
"$home/bin/pip" install --quiet --no-cache-dir --no-compile "$wheel"
"$home/bin/pip" uninstall --quiet --yes setuptools pip
# Programs name the interpreter by its path.
grep --recursive --files-with-matches --binary-files=without-match "$stage" "$home/bin" "$home/pyvenv.cfg" |
    xargs sed --in-place "s#$stage##g"
mkdir -p "$stage/usr/bin" "$stage/DEBIAN"
ln -s /opt/cellbed/bin/cellbed "$stage/usr/bin/cellbed"
for folder in man bash-completion zsh fish; do
    mkdir -p "$stage/usr/share/$folder"
    cp -r "$home/share/$folder/." "$stage/usr/share/$folder"
done
version=$(basename "$wheel" | cut -d- -f2)
minor=$("$python" -c 'import sys; print(sys.version_info.minor)')
architecture=$(dpkg --print-architecture)
cat > "$stage/DEBIAN/control" <<END
Package: cellbed
Version: $version
Architecture: $architecture
Maintainer: cellbed <cellbed@users.noreply.github.com>
Depends: python3 (>= 3.$minor), python3 (<< 3.$((minor + 1))), libc6 (>= 2.28)
Recommends: mosquitto, nftables
Section: net
Priority: optional
Description: software testbed for applications on cellular networks
 Runs unmodified programs on endpoint, edge and cloud nodes over a replayed 4G
 or 5G link, and reports where every millisecond of every request went.
END
dpkg-deb --root-owner-group -Zzstd --build "$stage" "$out/cellbed_${version}_$architecture.deb" >/dev/null
