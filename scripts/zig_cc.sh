#!/bin/sh
# The linker of what is shipped: Zig's, for glibc 2.28, whichever this machine has. Needs maturin and ziglang on the PATH.
exec maturin zig cc -- -g -fno-sanitize=all -target "${ZIG_TARGET:-x86_64-linux-gnu.2.28}" "$@"
