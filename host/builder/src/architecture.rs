//! GPU architectures and the PTX version each is written in.

use std::fmt;

use crate::BuildError;

/// PTX versions, lowest first, that take an architecture: number, suffix, PTX.
///
/// The numbers are those of the PTX manual's table of `.target`, but for those below 7.0: rustc
/// 1.97 no longer writes less than 7.0, and one version whatever the compiler is worth more than
/// drivers of 2019.
const TABLE: &[(u32, &str, u32)] = &[
    (70, "", 70),
    (72, "", 70),
    (75, "", 70),
    (80, "", 70),
    (86, "", 71),
    (87, "", 74),
    (89, "", 78),
    (90, "", 78),
    (90, "a", 80),
    (100, "", 86),
    (100, "a", 86),
    (120, "", 87),
    (120, "a", 87),
];

/// A target of the PTX, such as `sm_80`, with the PTX version to write for it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Architecture {
    number: u32,
    suffix: &'static str,
    ptx: u32,
}

impl Architecture {
    /// Reads a name such as `sm_75` or `sm_90a`.
    ///
    /// # Errors
    ///
    /// [`BuildError::UnknownArchitecture`] where the name is not in the table of the
    /// [crate's documentation](crate#ptx-versions).
    pub fn parse(name: &str) -> Result<Self, BuildError> {
        TABLE
            .iter()
            .find(|&&(number, suffix, _)| {
                name.strip_prefix("sm_")
                    .and_then(|rest| rest.strip_suffix(suffix))
                    .is_some_and(|digits| digits == number.to_string())
            })
            .map(|&(number, suffix, ptx)| Self {
                number,
                suffix,
                ptx,
            })
            .ok_or_else(|| BuildError::UnknownArchitecture {
                name: name.to_owned(),
                known: TABLE
                    .iter()
                    .map(|(number, suffix, _)| format!("sm_{number}{suffix}"))
                    .collect(),
            })
    }

    /// Writes at least PTX `major.minor`, for kernels whose `asm!` uses a later instruction.
    ///
    /// A driver older than that version refuses the file, so raise it no further than needed.
    #[must_use]
    pub fn with_ptx(mut self, major: u32, minor: u32) -> Self {
        self.ptx = self.ptx.max(major * 10 + minor);
        self
    }

    /// The PTX version as `(major, minor)`.
    #[must_use]
    pub fn ptx(&self) -> (u32, u32) {
        (self.ptx / 10, self.ptx % 10)
    }

    /// The compute capability times ten: 75, 80, 90.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Whether code that needs `needed` can be in a file for this architecture.
    ///
    /// Features of a plain architecture stay in every later one; those of `sm_90a` exist there
    /// alone.
    #[must_use]
    pub fn has(&self, needed: &Self) -> bool {
        if needed.suffix.is_empty() {
            self.number >= needed.number
        } else {
            self.number == needed.number && self.suffix == needed.suffix
        }
    }

    /// rustc's name of the feature that sets the PTX version.
    pub(crate) fn ptx_feature(&self) -> String {
        format!("+ptx{}", self.ptx)
    }
}

impl fmt::Display for Architecture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sm_{}{}", self.number, self.suffix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back() {
        for &(number, suffix, _) in TABLE {
            let name = format!("sm_{number}{suffix}");
            assert_eq!(Architecture::parse(&name).unwrap().to_string(), name);
        }
        for wrong in [
            "",
            "sm_",
            "sm_1",
            "sm_90b",
            "75",
            "sm_075",
            "sm_90aa",
            "compute_80",
        ] {
            let error = Architecture::parse(wrong).unwrap_err().to_string();
            assert!(error.contains("sm_75"), "{error}");
        }
    }

    #[test]
    fn versions_only_rise() {
        let hopper = Architecture::parse("sm_90a").unwrap();
        assert_eq!(hopper.ptx(), (8, 0));
        assert_eq!(hopper.clone().with_ptx(8, 6).ptx(), (8, 6));
        assert_eq!(hopper.with_ptx(7, 0).ptx(), (8, 0));
        assert_eq!(
            Architecture::parse("sm_75").unwrap().ptx_feature(),
            "+ptx70"
        );
    }

    #[test]
    fn a_suffix_is_for_one_chip() {
        let [turing, hopper, hopper_a, blackwell] =
            ["sm_75", "sm_90", "sm_90a", "sm_100"].map(|n| Architecture::parse(n).unwrap());
        assert!(hopper.has(&turing) && hopper_a.has(&hopper) && blackwell.has(&hopper));
        assert!(!turing.has(&hopper) && !hopper.has(&hopper_a) && !blackwell.has(&hopper_a));
    }
}
