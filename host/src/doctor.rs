//! What a machine has and lacks: the checks of `matmul doctor`.
//!
//! # What is needed
//!
//! A check is needed or not, and [`Report::passed`] is false where a needed one
//! does not come out [`Status::Ok`].
//!
//! | section | needed |
//! |---|---|
//! | to build | in a checkout of the project; elsewhere the program is all there is |
//! | to run on the CPU | always |
//! | to run on a GPU | always: the embedded PTX, a driver, and one device that runs the kernels |
//! | optional | never |
//!
//! So a machine without a GPU does not pass, though everything for the CPU works
//! there: [`Report::ready`] tells the sections apart. A device that does not run
//! the kernels counts where no other does.

mod build;
mod gpu;
mod rust_cuda;
mod tools;

use crate::measure::{Cpu, random_factors};
use crate::verify::Reference;
use crate::{Error, error, memory};
use kernels::gemm::Shape;
use serde::Serialize;
use std::fmt;
use std::path::{Path, PathBuf};

pub use gpu::{CALLED, DISPENSABLE};

/// The ptxas that the project's tools would take, if there is one.
pub fn ptxas() -> Option<PathBuf> {
    tools::nvidia_program("ptxas", "PTXAS", checkout().as_deref())
}

/// Nsight Compute's program, if there is one: the one that the variable `NCU`
/// names, or the one on the PATH.
pub fn ncu() -> Option<PathBuf> {
    tools::nvidia_program("ncu", "NCU", None)
}

/// How a check came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// It is there and works.
    Ok,
    /// It is not there.
    Missing,
    /// It is there and does not work, or is too old.
    Failed,
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Ok => "ok",
            Self::Missing => "missing",
            Self::Failed => "failed",
        })
    }
}

/// What a check is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Section {
    /// Building the program and the kernels.
    Build,
    /// Running what runs on the CPU.
    Cpu,
    /// Running the kernels on a GPU.
    Gpu,
    /// Looking closer.
    Optional,
}

impl Section {
    /// All, in the order of a report.
    pub const ALL: [Self; 4] = [Self::Build, Self::Cpu, Self::Gpu, Self::Optional];
}

impl fmt::Display for Section {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Build => "to build",
            Self::Cpu => "to run on the CPU",
            Self::Gpu => "to run on a GPU",
            Self::Optional => "optional",
        })
    }
}

/// One check.
#[derive(Clone, Debug, Serialize)]
pub struct Check {
    /// What it is for.
    pub section: Section,
    /// What was looked for.
    pub name: String,
    /// How it came out.
    pub status: Status,
    /// Whether the machine must have it.
    pub needed: bool,
    /// What was found: a version, a path, or what went wrong.
    pub found: String,
    /// What to do, where something is to be done.
    pub remedy: Option<String>,
}

impl Check {
    fn new(section: Section, name: impl Into<String>, status: Status, found: String) -> Self {
        Self {
            section,
            name: name.into(),
            status,
            needed: section != Section::Optional,
            found,
            remedy: None,
        }
    }

    fn remedy(mut self, remedy: impl Into<String>) -> Self {
        if self.status != Status::Ok {
            self.remedy = Some(remedy.into());
        }
        self
    }
}

/// All checks of a machine.
#[derive(Clone, Debug)]
pub struct Report {
    /// In the order of the sections.
    pub checks: Vec<Check>,
}

impl Report {
    /// Makes every check. Changes nothing on the machine; opens each device and
    /// runs each kernel once.
    pub fn examine() -> Self {
        let checkout = checkout();
        let mut checks = build::checks(checkout.as_deref());
        checks.push(cpu());
        checks.extend(gpu::checks());
        checks.extend(tools::checks(checkout.as_deref()));
        checks.extend(checkout.iter().flat_map(|root| rust_cuda::checks(root)));
        Self { checks }
    }

    /// Whether the machine has all that is needed.
    pub fn passed(&self) -> bool {
        self.checks
            .iter()
            .all(|check| check.status == Status::Ok || !check.needed)
    }

    /// Whether the machine is ready for what a section stands for, needed or
    /// not.
    pub fn ready(&self, section: Section) -> bool {
        let mut of_section = self
            .checks
            .iter()
            .filter(|check| check.section == section)
            // A second device, or PTX for one that is not here.
            .filter(|check| check.needed || section != Section::Gpu);
        of_section.all(|check| check.status == Status::Ok)
    }

    /// The report as JSON: `checks`, `ready` with a field for each section that
    /// something can be ready for, and `passed`.
    pub fn to_json(&self) -> String {
        #[derive(Serialize)]
        struct Ready {
            build: bool,
            cpu: bool,
            gpu: bool,
        }
        #[derive(Serialize)]
        struct Json<'a> {
            checks: &'a [Check],
            ready: Ready,
            passed: bool,
        }
        let json = Json {
            checks: &self.checks,
            ready: Ready {
                build: self.ready(Section::Build),
                cpu: self.ready(Section::Cpu),
                gpu: self.ready(Section::Gpu),
            },
            passed: self.passed(),
        };
        serde_json::to_string_pretty(&json).expect("strings and booleans have a form in JSON")
    }
}

/// The report for people: a line for each check, and one that sums up.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self
            .checks
            .iter()
            .map(|check| check.name.chars().count())
            .max()
            .unwrap_or(0);
        for section in Section::ALL {
            let mut checks = self
                .checks
                .iter()
                .filter(|check| check.section == section)
                .peekable();
            let Some(first) = checks.peek() else { continue };
            let note = if section == Section::Build && !first.needed {
                " (not needed to run)"
            } else {
                ""
            };
            writeln!(f, "{section}{note}")?;
            for check in checks {
                let Check {
                    name,
                    status,
                    found,
                    ..
                } = check;
                write!(f, "  {status:7}  {name:width$}  {found}")?;
                if let Some(remedy) = &check.remedy {
                    write!(f, ". Remedy: {remedy}")?;
                }
                writeln!(f)?;
            }
        }
        let answer = |section| if self.ready(section) { "yes" } else { "no" };
        writeln!(
            f,
            "ready to build: {}, to run on the CPU: {}, to run on a GPU: {}",
            answer(Section::Build),
            answer(Section::Cpu),
            answer(Section::Gpu)
        )
    }
}

/// The shape that checks multiply: no dimension is a multiple of a tile's.
fn small() -> Result<Shape, Error> {
    Ok(Shape::new(65, 33, 129)?)
}

fn cpu() -> Check {
    let check = |status, found| Check::new(Section::Cpu, "CPU", status, found);
    let wrong = || -> Result<Vec<String>, Error> {
        let (a, b) = random_factors(small()?, 1)?;
        let reference = Reference::on_cpu(&a, &b)?;
        let mut wrong = Vec::new();
        for cpu in Cpu::ALL {
            let verdict = reference.check(&cpu.multiply(&a, &b)?)?;
            if !verdict.passed() {
                wrong.push(format!("{}: {verdict}", cpu.name()));
            }
        }
        Ok(wrong)
    };
    match wrong() {
        Ok(wrong) if wrong.is_empty() => {
            let memory = memory::available().map_or_else(String::new, |available| {
                format!(" and {} of memory", error::bytes(available))
            });
            let cores = crate::cpu::cores();
            check(
                Status::Ok,
                format!("{cores} cores{memory} to be had, and right products"),
            )
        }
        Ok(wrong) => check(Status::Failed, wrong.join("; "))
            .remedy("report it, with the CPU's name from /proc/cpuinfo"),
        Err(error) => check(Status::Failed, error.to_string()),
    }
}

/// The checkout of the project that the program is run from or lies in.
fn checkout() -> Option<PathBuf> {
    let here = std::env::current_dir().ok();
    let program = std::env::current_exe().ok();
    [here, program].into_iter().flatten().find_map(|path| {
        path.ancestors()
            .find(|path| is_checkout(path))
            .map(Path::to_owned)
    })
}

fn is_checkout(folder: &Path) -> bool {
    ["rust-toolchain.toml", "kernels/Cargo.toml", "host/build.rs"]
        .iter()
        .all(|file| folder.join(file).is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(checks: &[(Section, Status, bool)]) -> Report {
        Report {
            checks: checks
                .iter()
                .map(|&(section, status, needed)| Check {
                    needed,
                    ..Check::new(section, "x", status, "found".into())
                })
                .collect(),
        }
    }

    #[test]
    fn only_what_is_needed_counts() {
        use Section::{Build, Gpu, Optional};
        use Status::{Failed, Missing, Ok};
        assert!(report(&[(Build, Ok, true), (Optional, Missing, false)]).passed());
        assert!(report(&[(Build, Missing, false)]).passed());
        assert!(!report(&[(Build, Missing, true)]).passed());
        assert!(!report(&[(Gpu, Failed, true)]).passed());
        // Not needed to run, and not there either.
        assert!(!report(&[(Build, Missing, false)]).ready(Build));
        // The second of two devices.
        let two = report(&[(Gpu, Ok, true), (Gpu, Failed, false)]);
        assert!(two.ready(Gpu) && two.passed());
        assert!(!report(&[(Gpu, Ok, true), (Gpu, Missing, true)]).ready(Gpu));
    }

    #[test]
    fn a_line_has_status_name_finding_and_remedy() {
        let check = |status| {
            Check::new(Section::Build, "cc", status, "no `cc`".into()).remedy("install gcc")
        };
        let text = Report {
            checks: vec![check(Status::Missing)],
        }
        .to_string();
        assert_eq!(
            text.lines().next_back().unwrap(),
            "ready to build: no, to run on the CPU: yes, to run on a GPU: yes"
        );
        assert!(
            text.contains("\n  missing  cc  no `cc`. Remedy: install gcc\n"),
            "{text}"
        );
        assert_eq!(check(Status::Ok).remedy, None);
    }

    #[test]
    fn the_cpu_gives_right_products() {
        let check = cpu();
        assert_eq!(check.status, Status::Ok, "{}", check.found);
    }

    #[test]
    fn this_is_a_checkout() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        assert!(is_checkout(root));
        assert!(!is_checkout(&root.join("host")));
    }
}
