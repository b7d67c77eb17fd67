#!/usr/bin/env bash
# Assembles every PTX file of a folder with ptxas: `check_ptx.sh PTXDIR`.
#
# Fails where a file does not assemble, or where a kernel spills or has a stack frame, since either
# means that what should be in registers is in memory. Without ptxas it says so and succeeds;
# REQUIRE_PTXAS=1 makes that a failure.
set -eu
here=$(cd "$(dirname "$0")" && pwd)

if [ $# != 1 ] || [ ! -d "$1" ]; then
    echo "usage: check_ptx.sh PTXDIR" >&2
    exit 2
fi
folder=$(cd "$1" && pwd)

code=0
ptxas=$("$here/ptxas.sh" 2>&1) || code=$?
if [ "$code" = 3 ] && [ "${REQUIRE_PTXAS:-0}" != 1 ]; then
    echo "skipped: PTX was not assembled; $ptxas"
    exit 0
elif [ "$code" != 0 ]; then
    echo "$ptxas" >&2
    exit 1
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0
found=0
for ptx in "$folder"/*.ptx; do
    [ -f "$ptx" ] || continue
    found=1
    name=${ptx##*/}
    arch=$(sed -n 's/^\.target \(sm_[0-9]*[a-z]*\).*/\1/p' "$ptx")
    if [ -z "$arch" ]; then
        echo "$name: names no target"
        failed=1
        continue
    fi
    if ! "$ptxas" -v "-arch=$arch" "$ptx" -o "$work/cubin" >"$work/log" 2>&1; then
        echo "$name: does not assemble"
        cat "$work/log"
        failed=1
        continue
    fi
    awk -f "$here/ptx_report.awk" "$work/log" >"$work/report"
    bad=$(awk -F '\t' '$4 + $5 + $6 > 0 {
        printf "  %s: %d bytes of stack, %d of spill stores, %d of spill loads\n", $1, $4, $5, $6 }' "$work/report")
    # A log that this script can't read must not pass for one without spills.
    kernels=$(grep -cE '\.entry ' "$ptx" || true)
    read_kernels=$(awk -F '\t' '$2 != "-"' "$work/report" | wc -l)
    most=$(awk -F '\t' '$2 != "-" && $2 + 0 > most { most = $2 } END { print most + 0 }' "$work/report")
    if [ "$kernels" -eq 0 ] || [ "$read_kernels" -ne "$kernels" ]; then
        echo "$name: $kernels kernels in the PTX, $read_kernels in what ptxas reports"
        failed=1
    elif [ -n "$bad" ]; then
        printf '%s: kernels use memory for what should be in registers\n%s\n' "$name" "$bad"
        failed=1
    else
        echo "$name: $kernels kernels assemble, no spills, no stack, at most $most registers"
    fi
done
if [ "$found" = 0 ]; then
    echo "no PTX in $folder" >&2
    exit 1
fi
exit "$failed"
