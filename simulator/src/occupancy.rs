//! Theoretical occupancy: how many warps a multiprocessor can hold of a kernel.
//!
//! Source: `cuda_occupancy.h` of the CUDA toolkit and the occupancy calculator
//! of Nsight Compute, which compute the same:
//!
//! - warps of a block: ⌈threads / 32⌉; blocks by warps: ⌊max warps / that⌋;
//! - registers of a warp: registers of a thread · 32, up to the next multiple of
//!   256. Each quarter of the multiprocessor has 16,384 registers and holds
//!   ⌊16,384 / that⌋ warps; blocks by registers: ⌊4 · those / warps of a block⌋;
//! - shared memory of a block: what it asks for and what the system takes, up to
//!   the next multiple of the unit; blocks by it: ⌊the multiprocessor's / that⌋;
//! - the least of these and of the architecture's limit on blocks.
//!
//! Clusters and the split of the L1 cache are left out: all the shared memory
//! that the multiprocessor has is taken to be configured as such.

use crate::arch::{Architecture, MAX_REGISTERS, REGISTER_UNIT, REGISTERS, SUB_PARTITIONS};
use serde::Serialize;
use std::fmt;

/// What limits the number of blocks that a multiprocessor holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub enum Resource {
    /// Warps, and so threads.
    Warps,
    /// Blocks, however small.
    Blocks,
    /// Registers.
    Registers,
    /// Shared memory.
    SharedMemory,
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Warps => "warps",
            Self::Blocks => "blocks",
            Self::Registers => "registers",
            Self::SharedMemory => "shared memory",
        })
    }
}

/// How many blocks of a kernel fit on a multiprocessor.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Occupancy {
    /// The architecture's name.
    pub architecture: &'static str,
    /// Blocks that fit. 0: the kernel cannot be launched.
    pub blocks: u32,
    /// Warps that these are.
    pub warps: u32,
    /// Warps that the multiprocessor can hold.
    pub max_warps: u32,
    /// `warps` over `max_warps`, in percent.
    pub percent: f64,
    /// The resources that allow no further block.
    pub limited_by: Vec<Resource>,
    /// Registers of a thread, where they were known.
    pub registers: Option<u32>,
}

/// The occupancy of blocks of `threads` threads (1 to 1,024) that take
/// `shared_bytes` of shared memory.
///
/// Without `registers` (of a thread, from `ptxas -v`) these are taken to limit
/// nothing.
pub fn occupancy(
    architecture: Architecture,
    threads: u32,
    registers: Option<u32>,
    shared_bytes: u32,
) -> Occupancy {
    let warps_per_block = threads.div_ceil(32).max(1);
    let by_registers = match registers {
        Some(registers) if registers > MAX_REGISTERS => 0,
        Some(registers) if registers > 0 => {
            let of_warp = (registers * 32).next_multiple_of(REGISTER_UNIT);
            let in_part = REGISTERS / SUB_PARTITIONS / of_warp;
            in_part * SUB_PARTITIONS / warps_per_block
        }
        _ => u32::MAX,
    };
    let of_block = shared_bytes
        .saturating_add(architecture.reserved_bytes)
        .checked_next_multiple_of(architecture.shared_unit)
        .unwrap_or(u32::MAX);
    let by_shared = if shared_bytes > architecture.shared_bytes_per_block {
        0
    } else {
        architecture
            .shared_bytes
            .checked_div(of_block)
            .unwrap_or(u32::MAX)
    };
    let limits = [
        (Resource::Warps, architecture.warps / warps_per_block),
        (Resource::Blocks, architecture.blocks),
        (Resource::Registers, by_registers),
        (Resource::SharedMemory, by_shared),
    ];
    let blocks = limits.iter().map(|limit| limit.1).min().unwrap_or(0);
    let warps = blocks * warps_per_block;
    Occupancy {
        architecture: architecture.name(),
        blocks,
        warps,
        max_warps: architecture.warps,
        percent: 100.0 * f64::from(warps) / f64::from(architecture.warps),
        limited_by: limits
            .into_iter()
            .filter(|limit| limit.1 == blocks)
            .map(|limit| limit.0)
            .collect(),
        registers,
    }
}

/// Such as `66.7 % (32 of 48 warps, 1 block, limited by warps)`.
impl fmt::Display for Occupancy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = if self.blocks == 1 { "" } else { "s" };
        write!(
            f,
            "{:.1} % ({} of {} warps, {} block{plural}, limited by ",
            self.percent, self.warps, self.max_warps, self.blocks
        )?;
        for (i, resource) in self.limited_by.iter().enumerate() {
            write!(f, "{}{resource}", if i == 0 { "" } else { " and " })?;
        }
        f.write_str(if self.registers.is_none() {
            "; registers not known)"
        } else {
            ")"
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Resource::{Blocks, Registers, SharedMemory, Warps};

    #[test]
    fn known_results() {
        let a = |arch, threads, registers, shared| {
            let found = occupancy(arch, threads, registers, shared);
            (found.blocks, found.warps, found.limited_by)
        };
        let sm = Architecture::SM_86;
        // One block of 1,024 leaves a third of 1,536 threads empty.
        assert_eq!(a(sm, 1024, Some(32), 0), (1, 32, vec![Warps]));
        assert_eq!(
            format!("{:.1}", occupancy(sm, 1024, Some(32), 0).percent),
            "66.7"
        );
        // Blocks of one warp: 16 of 48.
        assert_eq!(a(sm, 32, Some(16), 0), (16, 16, vec![Blocks]));
        // 100 KiB; a block takes 48 KiB and 1 KiB.
        assert_eq!(a(sm, 256, Some(32), 48 << 10), (2, 16, vec![SharedMemory]));

        let sm = Architecture::SM_80;
        assert_eq!(a(sm, 256, Some(32), 0), (8, 64, vec![Warps, Registers]));
        // 40 registers are 1,280 a warp, 12 warps a quarter.
        assert_eq!(a(sm, 256, Some(40), 0), (6, 48, vec![Registers]));
        // 128 registers: 4 warps a quarter.
        assert_eq!(a(sm, 128, Some(128), 0), (4, 16, vec![Registers]));
        // 3 · (48 + 1) KiB fit in 164.
        assert_eq!(a(sm, 256, Some(32), 48 << 10), (3, 24, vec![SharedMemory]));

        let sm = Architecture::SM_75;
        assert_eq!(a(sm, 256, Some(64), 0), (4, 32, vec![Warps, Registers]));
        assert_eq!(a(sm, 1024, Some(65), 0), (0, 0, vec![Registers]));

        let sm = Architecture::SM_89;
        // 168 registers: 5,376 a warp, 3 warps a quarter, not 200's two.
        assert_eq!(a(sm, 64, Some(168), 16_888), (5, 10, vec![SharedMemory]));
        assert_eq!(a(sm, 64, Some(200), 16_888), (4, 8, vec![Registers]));

        let sm = Architecture::SM_90;
        assert_eq!(a(sm, 128, Some(255), 227 << 10), (1, 4, vec![SharedMemory]));
        assert_eq!(
            a(sm, 128, None, (227 << 10) + 1),
            (0, 0, vec![SharedMemory])
        );
        assert_eq!(a(sm, 96, None, 0), (21, 63, vec![Warps]));
    }

    #[test]
    fn text_names_the_limit() {
        let text = occupancy(Architecture::SM_86, 1024, Some(32), 0).to_string();
        assert_eq!(text, "66.7 % (32 of 48 warps, 1 block, limited by warps)");
        let text = occupancy(Architecture::SM_86, 1024, None, 0).to_string();
        assert!(text.ends_with("registers not known)"), "{text}");
    }
}
