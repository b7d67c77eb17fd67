//! Launches, verifies and times the matrix multiplication kernels of
//! [`kernels`] on NVIDIA GPUs.
//!
//! ```no_run
//! use host::{Gpu, Matrix};
//!
//! fn main() -> Result<(), host::Error> {
//!     let a = Matrix::random(320, 320, 1);
//!     let b = Matrix::random(320, 640, 2);
//!     let gpu = Gpu::new(0)?;
//!     let c = gpu.multiply("tiled_32", &a, &b)?;
//!     println!("{}×{}, first element {}", c.rows(), c.columns(), c.get(0, 0));
//!     Ok(())
//! }
//! ```
//!
//! # Shape
//!
//! | module | holds |
//! |---|---|
//! | [`matrix`] | matrices on the host |
//! | [`device`] | a GPU: its properties, its memory, its kernels |
//! | [`devices`] | GPUs that plans can be made for without having one |
//! | [`launch`] | a variant made ready for one shape; the one place that launches |
//! | [`timing`] | CUDA events around batches of launches |
//! | [`graph`] | short products in CUDA graphs, so that no launch is waited for |
//! | [`tune`] | what kernels cost, from which `auto` chooses |
//! | [`transfer`] | whole products, with their copies |
//! | [`cublas`] | cuBLAS, to compare with |
//! | [`nvml`] | clocks, power and throttling while the GPU works |
//! | [`sweep`] | many kernels over many shapes, and what is kept of them |
//! | [`compare`] | two sweeps: what got faster or slower |
//! | [`plot`] | pictures of a sweep |
//! | [`profile`] | the commands of Nsight Compute and Nsight Systems |
//! | [`nvtx`] | named ranges for profilers |
//! | [`cpu`] | the triple loop, and a fast CPU product |
//! | [`verify`] | the float64 reference and the error bound |
//! | [`cases`] | the shapes that every variant is tried on |
//! | [`memory`] | the machine's memory, asked before it is taken |
//! | [`measure`] | verify, then time: what programs and benchmarks share |
//! | [`ptx`] | the PTX that the build embedded |
//! | [`doctor`] | what a machine has and lacks |
//! | [`report`] | tables for people |
//! | [`registers`] | what ptxas says of each kernel |
//! | [`resources`] | what the driver says of each kernel: registers, shared memory, occupancy |
//! | [`error`] | what can go wrong |
//!
//! Everything but [`device`] and [`launch`] works without a GPU. Programs that
//! link this crate start on machines without a CUDA driver; the first call that
//! needs one returns [`Error::NoDriver`].

// The driver's symbols, which cust refers to but nothing else would link.
use find_cuda_helper as _;

pub mod cases;
pub mod compare;
pub mod cpu;
pub mod cublas;
pub mod device;
pub mod devices;
pub mod doctor;
pub mod error;
pub mod graph;
pub mod launch;
mod launch_ex;
pub mod matrix;
pub mod measure;
pub mod memory;
pub mod nvml;
pub mod nvtx;
pub mod plot;
pub mod profile;
pub mod ptx;
pub mod registers;
pub mod report;
pub mod resources;
pub mod sweep;
mod tensor_map;
pub mod timing;
pub mod transfer;
pub mod tune;
pub mod verify;

/// The driver's interface that this crate is built on, for callers who bring
/// their own streams, events and buffers.
pub use cust;

pub use device::{DeviceMatrix, Gpu};
pub use error::Error;
pub use launch::Prepared;
pub use matrix::Matrix;
