//! The limits of each architecture.

use kernels::launch::{ComputeCapability, DeviceLimits, Target};
use std::fmt;
use std::str::FromStr;

/// A GPU architecture, as `sm_90` names one, and what its multiprocessors hold.
///
/// Source: CUDA C++ Programming Guide, Technical Specifications per Compute
/// Capability; allocation units from `cuda_occupancy.h` of the CUDA toolkit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Architecture {
    name: &'static str,
    capability: ComputeCapability,
    /// Warps that a multiprocessor holds.
    pub(crate) warps: u32,
    /// Blocks that a multiprocessor holds.
    pub(crate) blocks: u32,
    /// Bytes of shared memory of a multiprocessor.
    pub(crate) shared_bytes: u32,
    /// Bytes of shared memory that a block may have when it opts in.
    pub(crate) shared_bytes_per_block: u32,
    /// Bytes of shared memory that the system takes for each block.
    pub(crate) reserved_bytes: u32,
    /// Shared memory is given out in multiples of this.
    pub(crate) shared_unit: u32,
    /// Of the product named beside it: a product's, not an architecture's.
    multiprocessors: u32,
}

/// Registers of a multiprocessor, all of which one block may have.
pub(crate) const REGISTERS: u32 = 64 << 10;
/// Registers are given to a warp in multiples of this.
pub(crate) const REGISTER_UNIT: u32 = 256;
/// Parts of a multiprocessor, each with its own quarter of the registers.
pub(crate) const SUB_PARTITIONS: u32 = 4;
/// Registers that a thread can have.
pub(crate) const MAX_REGISTERS: u32 = 255;

macro_rules! architectures {
    ($($(#[$doc:meta])* $name:ident: $text:literal, $major:literal . $minor:literal,
       $warps:literal, $blocks:literal, $shared:literal, $per_block:literal, $reserved:literal,
       $unit:literal, $multiprocessors:literal;)*) => {
        impl Architecture {
            $($(#[$doc])* pub const $name: Self = Self {
                name: $text,
                capability: ComputeCapability::new($major, $minor),
                warps: $warps,
                blocks: $blocks,
                shared_bytes: $shared << 10,
                shared_bytes_per_block: $per_block << 10,
                reserved_bytes: $reserved << 10,
                shared_unit: $unit,
                multiprocessors: $multiprocessors,
            };)*

            /// Every architecture that is known here, oldest first.
            pub const ALL: &[Self] = &[$(Self::$name),*];
        }
    };
}

architectures! {
    //       name     capability  warps, blocks, KiB, KiB a block, KiB reserved, unit, SMs
    /// Turing; multiprocessors of a T4.
    SM_75: "sm_75", 7 . 5, 32, 16, 64, 64, 0, 256, 40;
    /// Ampere, data centre; multiprocessors of an A100.
    SM_80: "sm_80", 8 . 0, 64, 32, 164, 163, 1, 128, 108;
    /// Ampere, consumer; multiprocessors of an RTX 3090.
    SM_86: "sm_86", 8 . 6, 48, 16, 100, 99, 1, 128, 82;
    /// Ada Lovelace; multiprocessors of an RTX 4090.
    SM_89: "sm_89", 8 . 9, 48, 24, 100, 99, 1, 128, 128;
    /// Hopper; multiprocessors of an H100 or H200 SXM.
    SM_90: "sm_90", 9 . 0, 64, 32, 228, 227, 1, 128, 132;
    /// Blackwell, data centre; multiprocessors of a B200.
    SM_100: "sm_100", 10 . 0, 64, 32, 228, 227, 1, 128, 148;
    /// Blackwell, consumer; multiprocessors of an RTX 5090.
    SM_120: "sm_120", 12 . 0, 48, 24, 100, 99, 1, 128, 170;
}

impl Architecture {
    /// The name, such as `sm_90`.
    pub const fn name(self) -> &'static str {
        self.name
    }

    /// Warps that a multiprocessor holds at most.
    pub const fn max_warps(self) -> u32 {
        self.warps
    }

    /// The target of the code that `host` would load on it: it embeds code for
    /// sm_75, sm_80 and sm_90a.
    fn code(self) -> Target {
        let targets = ["sm_75", "sm_80", "sm_90a"].map(Target::parse);
        let taken = targets
            .into_iter()
            .filter(|target| target.runs_on(self.capability));
        taken.max().unwrap_or(Target::BASELINE)
    }

    /// What a plan must keep to. The number of multiprocessors is that of one
    /// product, which the constant's description names.
    pub fn limits(self) -> DeviceLimits {
        DeviceLimits {
            compute_capability: self.capability,
            code: self.code(),
            multiprocessors: self.multiprocessors,
            max_threads_per_block: 1024,
            max_shared_bytes_per_block: self.shared_bytes_per_block,
            active_clusters: Vec::new(),
        }
    }
}

impl fmt::Display for Architecture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// A name that is not an [`Architecture`]'s.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownArchitecture(String);

impl fmt::Display for UnknownArchitecture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unknown architecture {:?}; known are", self.0)?;
        for (i, architecture) in Architecture::ALL.iter().enumerate() {
            write!(f, "{}{architecture}", if i == 0 { " " } else { ", " })?;
        }
        Ok(())
    }
}

impl std::error::Error for UnknownArchitecture {}

impl FromStr for Architecture {
    type Err = UnknownArchitecture;

    /// Takes `sm_90`, and `sm_90a` and `compute_90` for it.
    fn from_str(name: &str) -> Result<Self, UnknownArchitecture> {
        let number = name
            .strip_prefix("sm_")
            .or_else(|| name.strip_prefix("compute_"))
            .map(|number| number.trim_end_matches(['a', 'f']));
        Self::ALL
            .iter()
            .copied()
            .find(|known| number.is_some() && known.name.strip_prefix("sm_") == number)
            .ok_or_else(|| UnknownArchitecture(name.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back() {
        for &architecture in Architecture::ALL {
            assert_eq!(architecture.name().parse(), Ok(architecture));
        }
        assert_eq!("sm_90a".parse(), Ok(Architecture::SM_90));
        assert_eq!("compute_80".parse(), Ok(Architecture::SM_80));
        let error = "sm_91".parse::<Architecture>().expect_err("no such");
        assert!(error.to_string().contains("sm_89, sm_90, sm_100"));
        assert!("".parse::<Architecture>().is_err());
    }
}
