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

# The manifests for rust-cuda itself, with stand-ins for its git, which only a network has: that
# they resolve, with the version of glam that cuda_std compiles with, and that what surrounds
# cuda_builder works. In a copy, because cargo completes the lock file.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/kernels"
cp -r rust-cuda "$work/"
rm "$work/rust-cuda/rust-toolchain.toml"
cp -r kernels/src "$work/kernels/"
patched=()
for crate in cuda_std cuda_builder; do
    patched+=(--config "patch.crates-io.$crate.path='$work/rust-cuda/check/stand_in/$crate'")
done
rust_cuda() {
    # After the subcommand: cargo-clippy would not see it before.
    (cd "$work/rust-cuda" && "$cargo" "$1" "${patched[@]}" "${@:2}")
}
# cargo fmt would resolve the manifests.
rustfmt --check --edition 2024 rust-cuda/ptx/{build,src/main}.rs rust-cuda/check/stand_in/*/src/lib.rs
rust_cuda tree --quiet --package kernels --edges normal >"$work/tree"
if ! grep -q 'glam v0\.30\.10' "$work/tree" || [ "$(grep -c ' glam v' "$work/tree")" != 1 ]; then
    echo "rust-cuda/Cargo.lock no longer gives cuda_std the glam that it compiles with:" >&2
    cat "$work/tree" >&2
    exit 1
fi
echo '// what a compiler made' >"$work/made.ptx"
STAND_IN_PTX=$work/made.ptx rust_cuda clippy --quiet --package rust_cuda_ptx --target-dir "$target" -- -D warnings
STAND_IN_PTX=$work/made.ptx rust_cuda run --quiet --package rust_cuda_ptx --target-dir "$target" -- "$work/written.ptx"
cmp "$work/made.ptx" "$work/written.ptx"
echo "rust-cuda's manifests resolve, and what surrounds cuda_builder works, with stand-ins for its git"
