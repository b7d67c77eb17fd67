//! What the tests that need a GPU share.

use host::Gpu;
use std::io::Write;
use std::sync::Once;

/// The GPU, or nothing where the machine has none: then one line says that
/// tests are skipped. With REQUIRE_GPU=1 that is a failure.
pub fn gpu() -> Option<Gpu> {
    match Gpu::new(0) {
        Ok(gpu) => Some(gpu),
        Err(error) if error.is_no_gpu() => {
            assert!(
                std::env::var("REQUIRE_GPU").as_deref() != Ok("1"),
                "REQUIRE_GPU is 1, and there is {error}"
            );
            static SAY: Once = Once::new();
            // Past the test harness, which would swallow what a passing test
            // prints.
            SAY.call_once(|| {
                let _ = writeln!(
                    std::io::stderr(),
                    "skipped: the tests that need a GPU, since there is {error}"
                );
            });
            None
        }
        Err(error) => panic!("{error}"),
    }
}
