#!/usr/bin/env bash
# Type-checks the rust-cuda backend of the kernels with the compiler of the default build: no
# rust-cuda, no CUDA, no nightly. See rust-cuda/check/Cargo.toml.
#
# It finds what no longer fits cuda_std or the device API. It can't find what only rust-cuda's own
# code generator refuses.
set -eu
# From here, and not from rust-cuda/, which names a toolchain of its own.
cd "$(dirname "$0")/.."

cargo=${CARGO:-cargo}
manifest=rust-cuda/check/Cargo.toml
target=${CARGO_TARGET_DIR:-target}/rust-cuda-check

"$cargo" fmt --manifest-path "$manifest" --check
"$cargo" clippy --quiet --locked --manifest-path "$manifest" --target-dir "$target" --all-targets -- -D warnings
"$cargo" test --quiet --locked --manifest-path "$manifest" --target-dir "$target"
echo "rust-cuda's backend fits cuda_std $(sed -n 's/^cuda_std = "=\(.*\)"/\1/p' "$manifest")"
