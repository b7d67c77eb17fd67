//! The examples run. Where there is no GPU they say so and succeed.

#[path = "../examples/multiply.rs"]
mod multiply;
#[path = "../examples/own_kernel.rs"]
mod own_kernel;
#[path = "../examples/time_a_kernel.rs"]
mod time_a_kernel;

#[test]
fn multiply_runs() {
    multiply::main().unwrap();
}

#[test]
fn own_kernel_runs() {
    own_kernel::main().unwrap();
}

#[test]
fn time_a_kernel_runs() {
    time_a_kernel::main().unwrap();
}
