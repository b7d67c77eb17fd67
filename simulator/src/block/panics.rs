//! Panics in kernels: noted instead of printed.

use crate::sites::Place;
use std::cell::Cell;
use std::panic;
use std::sync::{Mutex, Once, PoisonError};

/// What a kernel's panic said, and where.
#[derive(Default)]
pub(super) struct KernelPanic {
    pub(super) message: String,
    pub(super) place: Option<Place>,
}

thread_local! {
    static IN_KERNEL: Cell<bool> = const { Cell::new(false) };
    pub(super) static LAST_PANIC: Cell<Option<KernelPanic>> = const { Cell::new(None) };
}

/// Runs `body`, in which a panic is noted instead of printed.
pub(super) fn in_kernel<R>(body: impl FnOnce() -> R) -> R {
    struct Restore(bool);
    impl Drop for Restore {
        fn drop(&mut self) {
            IN_KERNEL.set(self.0);
        }
    }
    let _restore = Restore(IN_KERNEL.replace(true));
    body()
}

/// Has panics in kernels noted, with their place, instead of printed.
///
/// The place is known to the panic hook alone. The hook is the process's, so
/// this one hands every other panic on to the one before it.
pub(crate) fn note_kernel_panics() {
    static INSTALL: Once = Once::new();
    INSTALL.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if !IN_KERNEL.get() {
                return before(info);
            }
            let message = info.payload_as_str().unwrap_or("a panic without a message");
            LAST_PANIC.set(Some(KernelPanic {
                message: message.to_owned(),
                place: info.location().map(|location| Place {
                    // The hook lends the name for its own duration. Panics are
                    // few, and each distinct place is kept once.
                    file: leak(location.file()),
                    line: location.line(),
                    column: location.column(),
                }),
            }));
        }));
    });
}

/// A name that lives as long as the program, stored once.
fn leak(name: &str) -> &'static str {
    static NAMES: Mutex<Vec<&'static str>> = Mutex::new(Vec::new());
    let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = names.iter().find(|known| **known == name) {
        return known;
    }
    let name: &'static str = Box::leak(name.into());
    names.push(name);
    name
}
