#!/usr/bin/env bash
# Makes sure that a Rust compiler with the source of `core` is here: the GPU kernels need one to
# become PTX. Says nothing where all is there. The order is that of host/builder, which see.
set -eu
cd "$(dirname "$0")/.."

readonly OLDEST_MINOR=95
readonly DEBIAN_RUSTC=/usr/bin/rustc
readonly PACKAGES=(rustc-web rust-web-src)

say() { printf 'setup: %s\n' "$*" >&2; }

# Whether the compiler $1 runs, is new enough, and has the source of `core`.
usable() {
    local sysroot minor
    sysroot=$("$1" --print sysroot 2>/dev/null) || return 1
    [ -f "$sysroot/lib/rustlib/src/rust/library/core/src/lib.rs" ] || return 1
    minor=$("$1" --version | sed -n 's/^rustc 1\.\([0-9]*\)\..*/\1/p')
    [ "${minor:-0}" -ge "$OLDEST_MINOR" ]
}

as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"; else sudo -n "$@"; fi
}

can_be_root() {
    [ "$(id -u)" = 0 ] || { command -v sudo >/dev/null && sudo -n true 2>/dev/null; }
}

may_fetch() { [ "${RUSTUP_AUTO_INSTALL:-1}" != 0 ]; }

# The version that apt-get would install is new enough. Debian's 1.85 is not.
apt_has_it() {
    local version
    version=$(apt-cache policy "${PACKAGES[0]}" 2>/dev/null | sed -n 's/^  Candidate: 1\.\([0-9]*\)\..*/\1/p')
    [ "${version:-0}" -ge "$OLDEST_MINOR" ]
}

if [ -n "${DEVICE_RUSTC:-}" ]; then
    usable "$DEVICE_RUSTC" && exit 0
    say "DEVICE_RUSTC is $DEVICE_RUSTC, which is no rustc 1.$OLDEST_MINOR or later with the source of core beside it."
    say "Name another, or unset it and run this again."
    exit 1
fi

# Without cargo, nothing here can be built, whatever the device compiler.
if ! command -v cargo >/dev/null; then
    say "cargo is not on the PATH. Install Rust from https://rustup.rs, then run this again."
    exit 1
fi

# rustup's proxies may download a missing toolchain when they run. So rustc is asked only after
# rustup itself, which lists without fetching, or where there is no rustup.
channel=$(sed -n 's/^channel *= *"\(.*\)".*/\1/p' rust-toolchain.toml 2>/dev/null || true)
have_rustup=false
command -v rustup >/dev/null && have_rustup=true
installed=true
if $have_rustup && [ -n "$channel" ] && [ -z "${RUSTUP_TOOLCHAIN:-}" ]; then
    rustup toolchain list 2>/dev/null | grep -q "^$channel" || installed=false
fi

if $installed && usable rustc; then exit 0; fi

if ! $installed && ! may_fetch; then
    say "Rust $channel is not installed, and RUSTUP_AUTO_INSTALL is 0, so nothing was fetched."
    say "Run: rustup toolchain install $channel --profile minimal -c clippy -c rustfmt"
    exit 1
fi

if $installed && usable "$DEBIAN_RUSTC"; then exit 0; fi

if $have_rustup && may_fetch; then
    say "adding rust-src to Rust ${RUSTUP_TOOLCHAIN:-$channel}"
    toolchain=${RUSTUP_TOOLCHAIN:-$channel}
    # The file's own components come with the toolchain; `install` does nothing twice.
    if rustup toolchain install "$toolchain" --profile minimal -c rust-src -c clippy -c rustfmt >&2 &&
        usable rustc; then
        exit 0
    fi
    say "rustup could not add it."
fi

if command -v apt-get >/dev/null && can_be_root; then
    say "installing ${PACKAGES[*]} with apt-get"
    # An apt-get that was interrupted leaves packages unconfigured; the next one must mend that.
    as_root dpkg --configure -a >&2 || true
    as_root apt-get update -qq >&2 || say "apt-get update failed; trying with the lists that are here"
    if apt_has_it &&
        as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${PACKAGES[@]}" >&2 &&
        usable "$DEBIAN_RUSTC"; then
        exit 0
    fi
    say "apt-get has no ${PACKAGES[0]} 1.$OLDEST_MINOR or later here, or could not install it."
fi

say "no Rust compiler with the source of core is here, and none could be installed. Run one of:"
say "  rustup component add rust-src${channel:+ --toolchain $channel}"
say "  sudo apt-get install --no-install-recommends ${PACKAGES[*]}   (Debian 12 with security updates, or later)"
say "or set DEVICE_RUSTC to a rustc 1.$OLDEST_MINOR or later that has lib/rustlib/src/rust/library in its sysroot."
if $have_rustup && ! may_fetch; then
    say "RUSTUP_AUTO_INSTALL is 0, so rustup was not asked to fetch anything."
fi
exit 1
