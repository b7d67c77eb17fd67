//! Matrix multiplication kernels for NVIDIA GPUs, written in Rust.
//!
//! Read [`vecadd`] first, then [`gemm::naive`], then [`gemm::tiled`], then the
//! steps after it in the order that `matmul list` shows. Each file under `gemm/`
//! holds one technique: its idea, how its threads map to the data, its kernels,
//! and the [`gemm::Variant`]s that put them in the table.
//!
//! The crate is compiled twice. For the GPU it becomes PTX that holds the
//! kernels and nothing else. For the host it is an ordinary library: the table
//! of variants that programs list, plan and launch from, and the same kernel
//! bodies, which a simulator can run on the CPU.
//!
//! Kernels touch the GPU only through [`gpu`], so their bodies do not depend on
//! which compiler makes them.

#![no_std]
#![cfg_attr(
    all(target_arch = "nvptx64", not(feature = "rust-cuda")),
    feature(abi_ptx, asm_experimental_arch, core_intrinsics, stdarch_nvptx),
    allow(internal_features)
)]

#[cfg(not(target_arch = "nvptx64"))]
extern crate std;

#[macro_use]
pub mod gpu;
#[cfg(not(target_arch = "nvptx64"))]
pub mod launch;

pub mod gemm;
#[cfg(not(register_tiles))]
pub mod reference;
#[cfg(not(register_tiles))]
pub mod vecadd;

/// Every kernel of the crate, in the order of the table of variants.
///
/// The builder inserts their launch bounds into the PTX, and tests compare the
/// list with the entries that the PTX holds. A kernel that several variants
/// launch is in it once.
#[cfg(not(target_arch = "nvptx64"))]
pub fn entries() -> std::vec::Vec<&'static launch::Entry> {
    let mut entries = std::vec![&vecadd::vecadd::ENTRY, &reference::reference_f64::ENTRY];
    for entry in gemm::all().flat_map(|variant| variant.entries) {
        if !entries.iter().any(|known| core::ptr::eq(*known, *entry)) {
            entries.push(entry);
        }
    }
    entries
}
