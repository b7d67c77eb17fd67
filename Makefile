# `make bench` and `make test` do all their set-up. `make help` lists the rest.

CARGO ?= cargo

.PHONY: help setup bench test lint docs ptx dist clean

help:
	@echo "make bench   compare the kernels with each other and with the CPU"
	@echo "make test    prove the kernels right"
	@echo "make lint    rustfmt, clippy and the documentation, without warnings"
	@echo "make ptx     registers and spills: KERNEL=gemm_tiled_16 ARCH=sm_90a SASS=1"
	@echo "make dist    a folder that runs on a GPU machine without Rust"
	@echo "make docs    the documentation, in target/doc"

setup:
	@tools/setup.sh

bench: setup
	$(CARGO) bench --package benches

test: setup
	tools/test.sh

lint: setup
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps --document-private-items
	tools/check_rust_cuda.sh

docs: setup
	$(CARGO) doc --workspace --no-deps

ptx: setup
	@KERNEL="$(KERNEL)" ARCH="$(ARCH)" SASS="$(SASS)" tools/ptx.sh

dist: setup
	tools/dist.sh

clean:
	$(CARGO) clean
