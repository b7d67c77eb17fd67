//! What a kernel takes of a multiprocessor, as the driver tells it of the loaded
//! code.
//!
//! [`registers`](crate::registers) reads the registers from ptxas, on machines
//! without a GPU. These are those of the machine code that runs, which the driver
//! compiled for the device at hand.

use crate::error::{During, Error};
use crate::{Gpu, Prepared};
use cust::device::{Device, DeviceAttribute};
use cust::function::{BlockSize, FunctionAttribute};
use serde::{Deserialize, Serialize};
use std::fmt;

/// What one launch of a kernel takes of a multiprocessor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resources {
    /// The kernel.
    pub kernel: String,
    /// Threads of a block.
    pub threads: u32,
    /// Registers of a thread, of 32 bits each.
    pub registers: u32,
    /// Shared memory of a block that the launch gives it, static and dynamic, in
    /// bytes.
    pub shared_bytes: u32,
    /// Local memory of a thread, in bytes: where spills and arrays that are
    /// indexed by numbers known late lie.
    pub local_bytes: u32,
    /// Blocks that a multiprocessor holds at once.
    pub blocks: u32,
    /// Warps of a block.
    pub warps: u32,
    /// Warps that a multiprocessor of this device can hold.
    pub max_warps: u32,
}

impl Resources {
    /// Those of the first launch of a plan, which does the products; none where
    /// nothing is launched.
    ///
    /// # Errors
    ///
    /// The driver's.
    pub fn of(gpu: &Gpu, prepared: &Prepared) -> Result<Option<Self>, Error> {
        let Some(launch) = prepared.plan().launches.first() else {
            return Ok(None);
        };
        gpu.enter()?;
        let kernel = launch.entry().name;
        let asking = || format!("asking what {kernel} takes of a multiprocessor");
        // The handle is the one whose shared memory `prepared` has set.
        let function = gpu.module().get_function(kernel).during(asking())?;
        let attribute = |which| -> Result<u32, Error> {
            let value = function.get_attribute(which).during(asking())?;
            Ok(u32::try_from(value).unwrap_or(0))
        };
        let device = Device::get_device(gpu.info().ordinal).during(asking())?;
        let of_device = |which| -> Result<u32, Error> {
            let value = device.get_attribute(which).during(asking())?;
            Ok(u32::try_from(value).unwrap_or(0))
        };
        // A block has at most 1,024 threads.
        let threads = u32::try_from(launch.block().count()).unwrap_or(u32::MAX);
        let warp = of_device(DeviceAttribute::WarpSize)?.max(1);
        let most_threads = of_device(DeviceAttribute::MaxThreadsPerMultiprocessor)?;
        let dynamic_bytes = launch.dynamic_shared_bytes();
        Ok(Some(Self {
            kernel: kernel.into(),
            threads,
            registers: attribute(FunctionAttribute::NumRegisters)?,
            shared_bytes: attribute(FunctionAttribute::SharedMemorySizeBytes)? + dynamic_bytes,
            local_bytes: attribute(FunctionAttribute::LocalSizeBytes)?,
            blocks: function
                .max_active_blocks_per_multiprocessor(BlockSize::x(threads), dynamic_bytes as usize)
                .during(asking())?,
            warps: threads.div_ceil(warp),
            max_warps: most_threads / warp,
        }))
    }

    /// Warps that a multiprocessor holds of the kernel over those it can hold;
    /// zero where that is not known.
    pub fn occupancy(&self) -> f64 {
        if self.max_warps == 0 {
            0.0
        } else {
            f64::from(self.blocks) * f64::from(self.warps) / f64::from(self.max_warps)
        }
    }
}

/// Such as `25 % (2×8 warps)`: the occupancy, blocks and warps of a block.
impl fmt::Display for Resources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = 100.0 * self.occupancy();
        write!(f, "{percent:.0} % ({}×{} warps)", self.blocks, self.warps)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn occupancy_is_a_share_of_the_warps() {
        let mut resources = Resources {
            kernel: "k".into(),
            threads: 256,
            registers: 128,
            shared_bytes: 16 << 10,
            local_bytes: 0,
            blocks: 2,
            warps: 8,
            max_warps: 64,
        };
        assert_eq!(resources.occupancy(), 0.25);
        assert_eq!(resources.to_string(), "25 % (2×8 warps)");
        resources.max_warps = 0;
        assert_eq!(resources.occupancy(), 0.0);
    }
}
