//! What compiling the kernels with rust-cuda takes.

use super::{Check, Section, Status};
use ptx_builder::rust_cuda::{Part, parts};
use std::path::Path;

pub(super) fn checks(checkout: &Path) -> Vec<Check> {
    parts(&checkout.join("rust-cuda"))
        .into_iter()
        .map(check)
        .collect()
}

fn check(part: Part) -> Check {
    let (status, found) = match part.found {
        Ok(found) => (Status::Ok, found),
        Err(wrong) => (Status::Missing, wrong),
    };
    Check::new(
        Section::Optional,
        format!("rust-cuda: {}", part.name),
        status,
        found,
    )
    .remedy(part.remedy)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_that_is_missing_has_its_remedy_and_is_not_needed() {
        let part = |found| Part {
            name: "LLVM 7",
            found,
            remedy: "build it".into(),
        };
        let missing = check(part(Err("llvm-config is LLVM 14".into())));
        assert_eq!(missing.status, Status::Missing);
        assert_eq!(missing.remedy.as_deref(), Some("build it"));
        assert!(!missing.needed);
        let there = check(part(Ok("LLVM 7.1.0".into())));
        assert_eq!((there.status, there.remedy), (Status::Ok, None));
    }
}
