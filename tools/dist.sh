#!/usr/bin/env bash
# Makes dist/, a folder that runs on a GPU machine without Rust: the program, the benchmark, the
# tests that use a GPU, the PTX, and a `run` script.
set -eu
cd "$(dirname "$0")/.."

cargo=${CARGO:-cargo}
out=${DIST:-dist}

# The executables that cargo's JSON messages on stdin name, as `target-name path` lines.
executables() {
    sed -n 's/.*"target":{[^}]*"name":"\([^"]*\)".*"executable":"\([^"]*\)".*/\1 \2/p'
}

rm -rf "$out"
mkdir -p "$out/ptx" "$out/tests"

"$cargo" build --release --package host --message-format=json-render-diagnostics |
    executables | while read -r name path; do cp "$path" "$out/$name"; done
"$cargo" bench --package benches --no-run --message-format=json-render-diagnostics |
    executables | while read -r name path; do cp "$path" "$out/bench_$name"; done
"$cargo" test --release --package host --test '*' --no-run --message-format=json-render-diagnostics |
    executables | while read -r name path; do
        # The program itself is listed as well. The other tests look at the sources, or run the
        # program where cargo built it.
        case $path/$name in */deps/*/gpu | */deps/*/examples) cp "$path" "$out/tests/$name" ;; esac
    done
cp "${CARGO_TARGET_DIR:-target}"/ptx/*.ptx "$out/ptx/"
# Names are for debuggers, and would be a quarter of it.
strip "$out/matmul" "$out"/bench_* "$out"/tests/* 2>/dev/null || true

cat > "$out/run" <<'SCRIPT'
#!/usr/bin/env bash
# run test: the tests that use a GPU. run bench: the benchmarks. run COMMAND …: the matmul program.
set -eu
cd "$(dirname "$0")"
case ${1:-help} in
    test)
        shift
        for test in tests/*; do REQUIRE_GPU=1 "$test" "$@"; done
        ;;
    bench) shift; ./bench_gemm --bench "$@" ;;
    help) echo "usage: run test | run bench | run COMMAND …"; ./matmul --help ;;
    *) ./matmul "$@" ;;
esac
SCRIPT
chmod +x "$out/run"
du -sh "$out" | sed 's/\t.*/ in dist/'
