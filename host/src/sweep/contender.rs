//! What takes part in a sweep: kernels, cuBLAS, the CPU.

use crate::Error;
use crate::cublas::Mode;
use crate::measure::Cpu;
use kernels::gemm::{Shape, Variant};
use kernels::launch::{Backend, DeviceLimits};

/// What takes part in a sweep.
#[derive(Clone, Copy, Debug)]
pub enum Contender {
    /// A product on the CPU.
    Cpu(Cpu),
    /// A kernel.
    Variant(&'static Variant),
    /// cuBLAS.
    Cublas(Mode),
}

impl Contender {
    /// All: the CPU, the kernels in the order of their table, cuBLAS.
    pub fn all() -> impl Iterator<Item = Self> {
        let cpus = Cpu::ALL.into_iter().map(Self::Cpu);
        let variants = kernels::gemm::all().map(Self::Variant);
        let modes = Mode::ALL.into_iter().map(Self::Cublas);
        cpus.chain(variants).chain(modes)
    }

    /// Those whose names match one of the patterns, in their own order. `*`
    /// stands for any text, `?` for any letter, `[ab]` for one of several.
    ///
    /// # Errors
    ///
    /// [`Error::Request`] where a pattern is malformed or matches none.
    pub fn matching(patterns: &[String]) -> Result<Vec<Self>, Error> {
        let mut chosen: Vec<Self> = Vec::new();
        for (pattern, text) in self::patterns(patterns)?.iter().zip(patterns) {
            let before = chosen.len();
            let mut matched = false;
            for contender in Self::all().filter(|it| pattern.matches(it.name())) {
                matched = true;
                if !chosen[..before]
                    .iter()
                    .any(|it| it.name() == contender.name())
                {
                    chosen.push(contender);
                }
            }
            if !matched {
                let names: Vec<_> = Self::all().map(Self::name).collect();
                return Err(Error::Request {
                    reason: format!("no kernel matches '{text}'; there are {}", names.join(", ")),
                });
            }
        }
        let order: Vec<_> = Self::all().map(Self::name).collect();
        chosen.sort_by_key(|it| order.iter().position(|name| *name == it.name()));
        Ok(chosen)
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cpu(cpu) => cpu.name(),
            Self::Variant(variant) => variant.name,
            Self::Cublas(mode) => mode.name(),
        }
    }

    /// What compiled it, for a GPU with the kernels of `backend`.
    pub(super) fn backend(self, backend: Backend) -> &'static str {
        match self {
            Self::Cpu(_) => "cpu",
            Self::Variant(_) => backend.name(),
            Self::Cublas(_) => "cublas",
        }
    }

    pub(super) fn precision(self) -> String {
        match self {
            Self::Cpu(_) => "f32".into(),
            Self::Variant(variant) => variant.input.to_string(),
            Self::Cublas(mode) => mode.precision().into(),
        }
    }

    /// A and B read once, C written once, in bytes.
    pub fn bytes(self, shape: Shape) -> f64 {
        let (input, output) = match self {
            Self::Cpu(_) => (4, 4),
            Self::Variant(variant) => (variant.input.size(), variant.output.size()),
            Self::Cublas(mode) => (mode.element_bytes(), mode.element_bytes()),
        };
        let factors = shape.a_elements() as f64 + shape.b_elements() as f64;
        factors * input as f64 + shape.c_elements() as f64 * output as f64
    }

    pub(super) fn on_gpu(self) -> bool {
        !matches!(self, Self::Cpu(_))
    }
}

/// Patterns of kernels' names; see [`Contender::matching`].
///
/// # Errors
///
/// [`Error::Request`] where one is malformed.
pub fn patterns(texts: &[String]) -> Result<Vec<glob::Pattern>, Error> {
    let pattern = |text: &String| {
        glob::Pattern::new(text).map_err(|error| Error::Request {
            reason: format!("'{text}' is no pattern for kernels: {error}"),
        })
    };
    texts.iter().map(pattern).collect()
}

/// The rate of a precision's products at a clock in Hz, in FLOP/s; none where
/// it is not known.
///
/// Float32 is [`peak_f32_flops`](crate::devices::peak_f32_flops). The tensor
/// cores' rates, of dense products with float32 sums, follow from NVIDIA's A100,
/// H100 and B200 datasheets; other chips halve them from one product line to the
/// next. At its boost clock of 1,830 MHz an H100 has the datasheet's 989 TFLOP/s
/// of BF16.
pub fn peak_flops(limits: &DeviceLimits, clock: f64, precision: &str) -> Option<f64> {
    if precision == "f32" {
        return Some(crate::devices::peak_f32_flops(limits, clock));
    }
    let capability = limits.compute_capability;
    let half = match (capability.major, capability.minor) {
        (8, 0) => 2048.0,
        (9, 0) => 4096.0,
        (10, 0) => 8192.0,
        _ => return None,
    };
    let per_cycle = match precision {
        "f16" | "bf16" => half,
        "tf32" => half / 2.0,
        _ => return None,
    };
    Some(per_cycle * f64::from(limits.multiprocessors) * clock)
}

#[cfg(test)]
mod tests {
    use super::*;
    use kernels::launch::ComputeCapability;

    #[test]
    fn patterns_choose_by_name() {
        let names = |patterns: &[&str]| -> Vec<_> {
            let patterns: Vec<_> = patterns.iter().map(ToString::to_string).collect();
            let chosen = Contender::matching(&patterns).unwrap();
            chosen.into_iter().map(Contender::name).collect()
        };
        assert_eq!(names(&["cublas_*"]).len(), 4);
        assert_eq!(names(&["*"]).len(), Contender::all().count());
        assert_eq!(names(&["tiled_[13]*", "naive_16", "naive_[13]*"]).len(), 4);
        // In the table's order, each once.
        assert_eq!(names(&["tiled_16", "cpu", "tiled_16"]), ["cpu", "tiled_16"]);
        for wrong in ["nosuch*", "[", "", "cublas"] {
            let error = Contender::matching(&[wrong.to_owned()]).err().unwrap();
            assert!(
                error.is_usage() && error.to_string().contains(wrong),
                "{error}"
            );
        }
    }

    #[test]
    fn peaks_are_those_of_the_datasheets() {
        let limits = |name| crate::devices::find(name).unwrap().limits;
        for (name, clock, precision, datasheet) in [
            ("h100", 1830e6, "bf16", 989.4e12),
            ("h100", 1830e6, "tf32", 494.7e12),
            ("a100", 1410e6, "f16", 312e12),
            ("a100", 1410e6, "tf32", 156e12),
            ("h200", 1980e6, "f32", 66.9e12),
        ] {
            let peak = peak_flops(&limits(name), clock, precision).unwrap();
            assert!(
                (peak / datasheet - 1.0).abs() < 0.005,
                "{name} {precision}: {peak}"
            );
        }
        assert_eq!(
            limits("l4").compute_capability,
            ComputeCapability::new(8, 9)
        );
        assert_eq!(peak_flops(&limits("l4"), 2e9, "bf16"), None);
        assert_eq!(peak_flops(&limits("h200"), 2e9, "f64"), None);
    }
}
