//! What the kernels say of rust-cuda, and what compiles for it, agree.

use default_kernels::launch::Backend;
use std::collections::BTreeSet;

#[test]
fn the_kernels_that_rust_cuda_builds_are_those_that_say_so() {
    let compiled: BTreeSet<_> = kernels::entries().iter().map(|entry| entry.name).collect();
    let declared: BTreeSet<_> = default_kernels::entries()
        .iter()
        .filter(|entry| entry.backends.contains(&Backend::RustCuda))
        .map(|entry| entry.name)
        .collect();
    assert_eq!(compiled, declared);
}
