#!/usr/bin/env bash
# Unpack CRIU 4.2 or newer beside the system, into /opt/criu, where its package of this distribution is older: it and its
# libraries come from Debian's suite `sid`, from the mirror that this machine's apt uses anyway. Nothing is installed;
# apt's lists and settings stay as they are. Needs root, and Debian's keyring. Remove it with: rm -r /opt/criu
set -euo pipefail
target=/opt/criu
suite=${1:-sid}
keyring=/usr/share/keyrings/debian-archive-keyring.gpg
# shellcheck disable=SC2016 # apt expands it
mirror=$(apt-get indextargets --format '$(SITE) $(ORIGIN)' 'Identifier: Packages' | sed -n 's/ Debian$//p' | head -n 1)
if [ -z "$mirror" ] || [ ! -e "$keyring" ]; then
    echo "CRIU is unpacked from Debian's packages, which apt does not use here: install criu 4.2 or newer yourself" >&2
    exit 1
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
chmod 755 "$work" # apt downloads as another user
mkdir -p "$work"/{lists,archives,root}/partial
touch "$work/status"
echo "deb [signed-by=$keyring] $mirror $suite main" > "$work/sources.list"
cat > "$work/apt.conf" <<END
Dir::State "$work";
Dir::State::status "$work/status";
Dir::State::lists "$work/lists";
Dir::Cache "$work";
Dir::Cache::archives "$work/archives";
Dir::Etc::sourcelist "$work/sources.list";
Dir::Etc::sourceparts "-";
END
export APT_CONFIG=$work/apt.conf
apt-get update -qq
apt-get install -qq -y --no-install-recommends --download-only criu > /dev/null
for package in "$work"/archives/*.deb; do dpkg-deb -x "$package" "$work/root"; done
rm -rf "$work/root/partial" "$target"
mkdir -p "$target"
cp -a "$work/root/." "$target"
echo "criu is in $target"
