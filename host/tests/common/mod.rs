//! What the tests that need a GPU share.

use host::Gpu;
use std::io::Write;
use std::ops::Deref;
use std::sync::{Mutex, MutexGuard, Once, PoisonError};

/// The GPU, while no other test of this process has it. All would share one
/// context, in which nothing may synchronise while a graph is captured.
pub struct Alone {
    // Dropped in this order.
    gpu: Gpu,
    _turn: MutexGuard<'static, ()>,
}

impl Deref for Alone {
    type Target = Gpu;

    fn deref(&self) -> &Gpu {
        &self.gpu
    }
}

/// The GPU, or nothing where the machine has none: then one line says that
/// tests are skipped. With REQUIRE_GPU=1 that is a failure.
pub fn gpu() -> Option<Alone> {
    static TURN: Mutex<()> = Mutex::new(());
    // A test that failed has left nothing behind.
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    match Gpu::new(0) {
        Ok(gpu) => Some(Alone { gpu, _turn: turn }),
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
