#!/usr/bin/env bash
# apt-get that waits, for ten minutes at most, while another program holds a lock of the package manager.
# DPkg::Lock::Timeout covers the lock of dpkg alone: not the locks of the package lists and the downloaded packages.
set -uo pipefail
deadline=$((SECONDS + 600))
while ! output=$(LC_ALL=C apt-get -o DPkg::Lock::Timeout=600 "$@" 2>&1); do
    if [ "$SECONDS" -ge "$deadline" ] || [[ "$output" != *"Could not get lock"* ]]; then
        printf '%s\n' "$output" >&2
        exit 1
    fi
    if [ -z "${waiting:-}" ]; then
        echo "another program holds a lock of the package manager; waiting for it" >&2
        waiting=yes
    fi
    sleep 1
done
