#!/usr/bin/env bash
# What ptxas makes of the kernels: registers, static shared memory, stack frame, spills.
#
#   tools/ptx.sh                                      all kernels, as a table
#   KERNEL=gemm_tiled_16 tools/ptx.sh                 one kernel
#   KERNEL=gemm_tiled_16 SASS=1 tools/ptx.sh          and its machine code
#   ARCH=sm_80 tools/ptx.sh                           for another architecture (sm_90a if not said)
#
# PTX_DIR names a folder of PTX to take as it is, without a build.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
cd "$here/.."

arch=${ARCH:-sm_90a}
kernel=${KERNEL:-}

ptxas=$("$here/ptxas.sh")

folder=${PTX_DIR:-}
if [ -z "$folder" ]; then
    # Checking `host` runs its build script, which alone knows the kernels' launch bounds, and
    # generates no code of the host's own. Other messages than errors would hide the table.
    cargo check --quiet --package host --lib >&2
    # Build scripts run in the build folder, which is the target folder unless someone set another.
    metadata=$(cargo metadata --no-deps --format-version 1)
    for key in build_directory target_directory; do
        folder=$(sed -n "s/.*\"$key\":\"\([^\"]*\)\".*/\1/p" <<<"$metadata")/ptx
        [ -d "$folder" ] && break
    done
    if [ ! -d "$folder" ]; then
        echo "$folder is gone, and cargo takes the build for done. Run: touch host/build.rs" >&2
        exit 1
    fi
fi

ptx=$folder/$arch.ptx
if [ ! -f "$ptx" ]; then
    echo "no PTX for $arch in $folder; there is: $(cd "$folder" 2>/dev/null && echo *.ptx)" >&2
    exit 2
fi

names=$(sed -n 's/^.*\.entry \([A-Za-z0-9_$]*\).*/\1/p' "$ptx")
if [ -n "$kernel" ] && ! grep -qxF -- "$kernel" <<<"$names"; then
    echo "no kernel $kernel for $arch; there are:" >&2
    printf '%s\n' "$names" | sed 's/^/  /' >&2
    exit 2
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# Only the kernel asked for is assembled: a large one elsewhere would cost seconds.
if ! "$ptxas" -v "-arch=$arch" ${kernel:+--entry "$kernel"} "$ptx" -o "$work/cubin" >"$work/log" 2>&1; then
    cat "$work/log" >&2
    exit 1
fi
# Remarks beyond the statistics, such as a serialised wgmma, matter as much.
grep -E 'warning|\(C[0-9]+\)' "$work/log" >&2 || true

awk -f "$here/ptx_report.awk" "$work/log" | sort |
    awk -F '\t' -v arch="$arch" '
        BEGIN { printf "%-32s %9s %9s %9s %12s %11s\n", arch, "registers", "shared B", "stack B", "spill st. B", "spill ld. B" }
        { printf "%-32s %9s %9s %9s %12s %11s\n", $1, $2, $3, $4, $5, $6 }'

if [ -n "${SASS:-}" ] && [ "${SASS:-}" != 0 ]; then
    nvdisasm=$("$here/ptxas.sh" --sass)
    echo
    # The encodings and the ELF directives around the code only hide it.
    "$nvdisasm" --print-code --no-dataflow "$work/cubin" |
        awk '
            /^[ \t]*\.section/ { text = ($2 ~ /^\.text\./) }
            text && !/^[ \t]*\./ && !/^[ \t]*$/ && !/^\/\/-+/'
fi
