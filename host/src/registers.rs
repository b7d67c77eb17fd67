//! How many registers ptxas gives each kernel, where a ptxas is at hand.

use crate::doctor;
use crate::ptx::Ptx;
use std::collections::{BTreeMap, BTreeSet};
use std::process::{Command, Stdio};

/// Registers of a thread by kernel, for an architecture such as `sm_90`.
///
/// ptxas assembles the named kernels alone: one takes it a tenth of a second,
/// all take seconds. Kernels that the PTX lacks have no number.
///
/// Nothing where no ptxas is found (`matmul doctor` says where it is looked
/// for), or where it does not take the PTX.
pub fn of(
    ptx: &Ptx,
    architecture: &str,
    kernels: &BTreeSet<&str>,
) -> Option<BTreeMap<String, u32>> {
    // ptxas refuses a name that it does not find, and takes none for all.
    let kernels: Vec<_> = ptx
        .entries()
        .filter(|kernel| kernels.contains(kernel))
        .collect();
    if kernels.is_empty() {
        return Some(BTreeMap::new());
    }
    let ptxas = doctor::ptxas()?;
    let folder = std::env::temp_dir();
    // One name a process: two may run at once.
    let input = folder.join(format!("matmul-{}-{architecture}.ptx", std::process::id()));
    std::fs::write(&input, ptx.text).ok()?;
    let output = Command::new(ptxas)
        .arg("-v")
        .arg(format!("-arch={architecture}"))
        .args(kernels.iter().flat_map(|kernel| ["--entry", kernel]))
        .args(["-o", "/dev/null"])
        .arg(&input)
        .stdin(Stdio::null())
        .output();
    // Left behind, it would only be in the way.
    let _ = std::fs::remove_file(&input);
    let output = output.ok().filter(|output| output.status.success())?;
    Some(parse(&String::from_utf8_lossy(&output.stderr)))
}

/// Reads what `ptxas -v` writes: a line names a kernel, a later one its
/// registers.
fn parse(text: &str) -> BTreeMap<String, u32> {
    let mut registers = BTreeMap::new();
    let mut kernel = None;
    for line in text.lines() {
        if let Some((_, name)) = line.split_once("Function properties for ") {
            kernel = Some(name.trim().to_owned());
        } else if let Some((_, rest)) = line.split_once("Used ")
            && let Some(count) = rest.split_whitespace().next()
            && let (Some(name), Ok(count)) = (kernel.take(), count.parse())
        {
            registers.insert(name, count);
        }
    }
    registers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registers_are_read_from_what_ptxas_writes() {
        let text = "\
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'vecadd' for 'sm_90a'
ptxas info    : Function properties for vecadd
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 12 registers, used 0 barriers
ptxas info    : Compiling entry function 'gemm_tiled_16' for 'sm_90a'
ptxas info    : Function properties for gemm_tiled_16
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 32 registers, used 1 barriers, 2048 bytes smem
";
        let registers = parse(text);
        assert_eq!(registers.len(), 2);
        assert_eq!(registers["vecadd"], 12);
        assert_eq!(registers["gemm_tiled_16"], 32);
        assert!(parse("ptxas fatal: no").is_empty());
    }
}
