#!/usr/bin/env bash
# Assembles the PTX, runs all tests, and ends with one line that adds up what cargo's many say.
set -eu -o pipefail
cd "$(dirname "$0")/.."
cargo=${CARGO:-cargo}

"$cargo" test --workspace --no-run
tools/check_ptx.sh "${CARGO_TARGET_DIR:-target}/ptx"

"$cargo" test --workspace "$@" 2>&1 | awk '
    { print; fflush() }
    /^test result: / {
        for (i = 1; i < NF; i++) {
            if ($(i + 1) == "passed;") passed += $i
            if ($(i + 1) == "failed;") failed += $i
            if ($(i + 1) == "ignored;") ignored += $i
        }
    }
    END { printf "%d passed, %d failed, %d skipped\n", passed, failed, ignored }'
