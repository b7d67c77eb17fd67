//! Times a kernel, with buffers and a stream that are reused between launches.
//!
//! `cargo run --release --example time_a_kernel`

use host::cust::event::{Event, EventFlags};
use host::{Error, Gpu, Matrix};
use kernels::gemm::Shape;
use std::error::Error as StdError;

const LAUNCHES: u32 = 100;

/// Runs the example.
pub fn main() -> Result<(), Box<dyn StdError>> {
    let gpu = match Gpu::new(0) {
        Ok(gpu) => gpu,
        Err(error) if error.is_no_gpu() => {
            println!("nothing to time, since there is {error}");
            return Ok(());
        }
        Err(error) => return Err(error.into()),
    };
    println!("{}", gpu.info().name);

    // Once for all launches: the kernels are loaded with the GPU, and these
    // hold everything else.
    let shape = Shape::new(1024, 1024, 1024).map_err(Error::from)?;
    let prepared = gpu.prepare("tiled_32", shape)?;
    let a = gpu.upload(&Matrix::random(1024, 1024, 1))?;
    let b = gpu.upload(&Matrix::random(1024, 1024, 2))?;
    let mut c = gpu.poisoned(1024, 1024)?;
    let stream = gpu.new_stream()?;

    // The first launch pays for what happens once.
    prepared.launch(&stream, &a, &b, &mut c)?;
    let (start, stop) = (
        Event::new(EventFlags::DEFAULT)?,
        Event::new(EventFlags::DEFAULT)?,
    );
    start.record(&stream)?;
    for _ in 0..LAUNCHES {
        prepared.launch(&stream, &a, &b, &mut c)?;
    }
    stop.record(&stream)?;
    // Names the kernel, should one have failed.
    gpu.synchronize()?;

    let seconds = f64::from(stop.elapsed_time_f32(&start)?) / 1e3 / f64::from(LAUNCHES);
    println!("{:.1} GFLOP/s", shape.flops() / seconds / 1e9);
    Ok(())
}
