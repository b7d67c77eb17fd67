//! The machine's memory, asked before it is taken.
//!
//! Linux grants far more than there is and ends a process that uses it, and Rust
//! aborts where an allocation fails. Neither says what was too large.

use crate::Error;
use kernels::gemm::Shape;
use std::fs;

/// Memory for a product of a shape, in bytes: A and B; C, its copy from the
/// device or from the run before; the reference A·B and |A|·|B| in float64, and
/// one of them twice while they are taken apart.
pub fn needed(shape: Shape) -> u64 {
    let factors = shape.a_elements().saturating_add(shape.b_elements());
    let single = size_of::<f32>() as u64;
    let double = size_of::<f64>() as u64;
    factors
        .saturating_mul(single)
        .saturating_add(shape.c_elements().saturating_mul(2 * single + 3 * double))
}

/// Memory that the machine can give this process without swapping, in bytes:
/// `MemAvailable` of `/proc/meminfo`, or the limit of the control group (v2)
/// that holds the process, if that is less. `None` where neither is known.
pub fn available() -> Option<u64> {
    let machine = fs::read_to_string("/proc/meminfo")
        .ok()
        .and_then(|text| mem_available(&text));
    // Inside a container its own group is mounted here. "max" means no limit.
    let group = fs::read_to_string("/sys/fs/cgroup/memory.max")
        .ok()
        .and_then(|text| text.trim().parse().ok());
    machine.into_iter().chain(group).min()
}

/// Checks that the machine has memory for a product.
///
/// # Errors
///
/// [`Error::HostMemory`] where it has too little.
pub fn check(shape: Shape) -> Result<(), Error> {
    let needed = needed(shape);
    // Where nothing is known, only what no address space holds is refused.
    let available = available().unwrap_or(isize::MAX as u64);
    if needed > available {
        return Err(Error::HostMemory {
            shape,
            needed,
            available,
        });
    }
    Ok(())
}

fn mem_available(meminfo: &str) -> Option<u64> {
    let rest = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kibibytes: u64 = rest.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes.saturating_mul(1024))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn meminfo_is_read() {
        let text = "MemTotal:       16 kB\nMemAvailable:       12 kB\nBuffers: 1 kB\n";
        assert_eq!(mem_available(text), Some(12 * 1024));
        assert_eq!(mem_available("MemTotal: 16 kB\n"), None);
        assert_eq!(mem_available("MemAvailable: many\n"), None);
    }

    #[test]
    fn a_product_beyond_the_machine_is_refused() {
        let largest = kernels::gemm::MAX_DIMENSION.into();
        for (m, n, k) in [(largest, largest, 1), (largest, 1, largest)] {
            let error = check(Shape::new(m, n, k).unwrap()).unwrap_err();
            assert!(matches!(error, Error::HostMemory { .. }), "{error}");
        }
        check(Shape::new(64, 64, 64).unwrap()).unwrap();
        assert_eq!(needed(Shape::new(2, 3, 5).unwrap()), (10 + 15) * 4 + 6 * 32);
    }
}
