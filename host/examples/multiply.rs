//! Multiplies two matrices, on the GPU where there is one.
//!
//! `cargo run --release --example multiply`

use host::{Error, Gpu, Matrix, cpu};

/// Runs the example.
pub fn main() -> Result<(), Error> {
    let a = Matrix::random(200, 300, 1);
    let b = Matrix::random(300, 400, 2);

    let c = match Gpu::new(0) {
        Ok(gpu) => gpu.multiply("tiled_32", &a, &b)?,
        Err(error) if error.is_no_gpu() => {
            println!("on the CPU, since there is {error}");
            cpu::gemm(&a, &b)?
        }
        Err(error) => return Err(error),
    };

    println!("C is {}×{}", c.rows(), c.columns());
    println!("C[0, 0] = {}", c.get(0, 0));
    Ok(())
}
