//! GPUs that plans can be made for without having one.
//!
//! Figures are those of NVIDIA's datasheets and, for limits, of the table of
//! technical specifications in the CUDA C++ Programming Guide.

use kernels::launch::{Backend, ComputeCapability, DeviceLimits, Target};

/// What a plan and its floor time depend on.
#[derive(Clone, Debug)]
pub struct KnownDevice {
    /// Its name on the command line.
    pub name: &'static str,
    /// What plans depend on.
    pub limits: DeviceLimits,
    /// Its boost clock, in MHz.
    pub clock_mhz: u32,
    /// Memory bandwidth, in bytes per second.
    pub bandwidth: f64,
    /// Memory, in bytes.
    pub memory_bytes: u64,
}

impl KnownDevice {
    /// The rate of float32 fused multiply-adds at the boost clock, in FLOP/s.
    pub fn peak_f32_flops(&self) -> f64 {
        peak_f32_flops(&self.limits, f64::from(self.clock_mhz) * 1e6)
    }
}

/// Float32 FLOP/s of a device at a clock in Hz: two for each of a
/// multiprocessor's lanes and cycles.
///
/// Lanes per multiprocessor are those of NVIDIA's CUDA C++ Programming Guide,
/// "Arithmetic Instructions".
pub fn peak_f32_flops(limits: &DeviceLimits, clock: f64) -> f64 {
    let lanes = match (
        limits.compute_capability.major,
        limits.compute_capability.minor,
    ) {
        (7, _) | (8, 0) => 64.0,
        _ => 128.0,
    };
    2.0 * lanes * f64::from(limits.multiprocessors) * clock
}

/// The devices, oldest first.
pub fn known() -> Vec<KnownDevice> {
    // Name, compute capability, multiprocessors, MHz, GB/s, GB, KiB of shared
    // memory that a block may have.
    let device =
        |name, (major, minor), multiprocessors, clock_mhz, gb_s: f64, gb: u64, shared_kib: u32| {
            KnownDevice {
                name,
                limits: DeviceLimits {
                    compute_capability: ComputeCapability::new(major, minor),
                    code: crate::ptx::best_for(
                        ComputeCapability::new(major, minor),
                        Backend::Nvptx,
                    )
                    .map_or(Target::BASELINE, |ptx| ptx.target()),
                    multiprocessors,
                    max_threads_per_block: 1024,
                    max_shared_bytes_per_block: shared_kib * 1024,
                    active_clusters: Vec::new(),
                },
                clock_mhz,
                bandwidth: gb_s * 1e9,
                memory_bytes: gb * 1_000_000_000,
            }
        };
    vec![
        device("t4", (7, 5), 40, 1590, 320.0, 16, 64),
        device("a100", (8, 0), 108, 1410, 2039.0, 80, 163),
        device("rtx3090", (8, 6), 82, 1695, 936.0, 24, 99),
        device("rtx4090", (8, 9), 128, 2520, 1008.0, 24, 99),
        device("l4", (8, 9), 58, 2040, 300.0, 24, 99),
        device("h100", (9, 0), 132, 1980, 3350.0, 80, 227),
        device("h200", (9, 0), 132, 1980, 4800.0, 141, 227),
        device("rtx5090", (12, 0), 170, 2407, 1792.0, 32, 99),
    ]
}

/// The device of that name, in any case.
pub fn find(name: &str) -> Option<KnownDevice> {
    known()
        .into_iter()
        .find(|device| device.name.eq_ignore_ascii_case(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peaks_are_those_of_the_datasheets() {
        let tflops = |name| find(name).unwrap().peak_f32_flops() / 1e12;
        for (name, datasheet) in [
            ("t4", 8.1),
            ("a100", 19.5),
            ("rtx3090", 35.6),
            ("rtx4090", 82.6),
            ("l4", 30.3),
            ("h200", 67.0),
            ("rtx5090", 104.8),
        ] {
            let ratio = tflops(name) / datasheet;
            assert!((0.98..1.02).contains(&ratio), "{name}: {}", tflops(name));
        }
        assert!(find("H200").is_some());
        assert!(find("no such device").is_none());
    }
}
