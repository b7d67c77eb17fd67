//! The two examples as functions from their arguments to their output, which
//! the test of the documentation calls too.
//!
//! Arguments: names, `--m --n --k` (256 each), `--arch`, `--by-line`, `--json`.

#![allow(dead_code, reason = "each example uses a part")]

use kernels::gemm::{self, Shape, Variant};
use kernels::gpu::{Global, GlobalMut, math, thread};
use kernels::kernel;
use kernels::launch::{Buffer, Dim3, Plan};
use kernels::vecadd;
use simulator::{Architecture, Operands, Options, Report, SimulationError, run};
use std::error::Error;

/// What the command line said.
pub struct Arguments {
    names: Vec<String>,
    sizes: [u64; 3],
    options: Options,
    by_line: bool,
    json: bool,
}

impl Arguments {
    /// Reads a command line.
    pub fn read(arguments: impl IntoIterator<Item = String>) -> Result<Self, Box<dyn Error>> {
        let mut read = Self {
            names: Vec::new(),
            sizes: [256; 3],
            options: Options::default(),
            by_line: false,
            json: false,
        };
        let mut arguments = arguments.into_iter();
        while let Some(argument) = arguments.next() {
            let mut value = || {
                arguments
                    .next()
                    .ok_or_else(|| format!("{argument} wants a value"))
            };
            match argument.as_str() {
                "--m" => read.sizes[0] = value()?.parse()?,
                "--n" => read.sizes[1] = value()?.parse()?,
                "--k" => read.sizes[2] = value()?.parse()?,
                "--arch" => read.options.architecture = value()?.parse::<Architecture>()?,
                "--by-line" => read.by_line = true,
                "--json" => read.json = true,
                option if option.starts_with('-') => {
                    return Err(format!("unknown option {option}").into());
                }
                _ => read.names.push(argument),
            }
        }
        if read.names.is_empty() {
            let known: Vec<&str> = gemm::all().map(|variant| variant.name).collect();
            let known = known.join(", ");
            return Err(format!("name a variant ({known}), vecadd or swapped").into());
        }
        Ok(read)
    }

    fn shape(&self) -> Result<Shape, Box<dyn Error>> {
        let [m, n, k] = self.sizes;
        Ok(Shape::new(m, n, k)?)
    }

    /// Checks and counters of each name: a variant, `vecadd` on vectors of N
    /// elements, or `swapped`.
    pub fn simulate(&self) -> Result<String, Box<dyn Error>> {
        let mut text = String::new();
        for name in &self.names {
            let report = match self.report(name)? {
                Ok(report) => report,
                Err(SimulationError::Faults(report)) => *report,
                Err(error) => return Err(error.into()),
            };
            if self.json {
                text.push_str(&serde_json::to_string_pretty(&report)?);
            } else {
                text.push_str(&report.table(self.by_line));
            }
        }
        Ok(text)
    }

    fn report(&self, name: &str) -> Result<Result<Report, SimulationError>, Box<dyn Error>> {
        let shape = self.shape()?;
        if name == "vecadd" {
            let n = shape.n();
            let (a, b) = (operand(n.into()), operand(n.into()));
            let operands = Operands {
                a: &a,
                b: &b,
                c_elements: n as usize,
                shape: None,
            };
            return Ok(run(&vecadd::plan(n), operands, &self.options));
        }
        let (a, b) = (operand(shape.a_elements()), operand(shape.b_elements()));
        if name == "swapped" {
            let (m, n, k) = (shape.m(), shape.n(), shape.k());
            let plan = Plan::single(swapped::launch(
                Dim3::covering(m.div_ceil(16), n.div_ceil(16)),
                Dim3::xy(16, 16),
                Buffer::A,
                Buffer::B,
                Buffer::C,
                m,
                n,
                k,
            ));
            let operands = Operands {
                a: &a,
                b: &b,
                c_elements: usize::try_from(shape.c_elements())?,
                shape: Some(shape),
            };
            return Ok(run(&plan, operands, &self.options));
        }
        let variant = find(name)?;
        Ok(simulator::simulate(variant, shape, &a, &b, &self.options))
    }

    /// The counters of the named variants, side by side.
    pub fn explain(&self) -> Result<String, Box<dyn Error>> {
        let variants = self
            .names
            .iter()
            .map(|name| find(name))
            .collect::<Result<Vec<_>, _>>()?;
        let explanation = simulator::explain(&variants, self.shape()?, &self.options)?;
        Ok(if self.json {
            serde_json::to_string_pretty(&explanation)?
        } else {
            explanation.to_string()
        })
    }
}

fn find(name: &str) -> Result<&'static Variant, Box<dyn Error>> {
    gemm::find(name).ok_or_else(|| format!("no variant {name:?}").into())
}

fn operand(len: u64) -> Vec<f32> {
    (0..len).map(|i| (i % 97) as f32 - 48.0).collect()
}

kernel! {
    /// The naive kernel with rows along x, as a beginner may write it: correct,
    /// and a warp's lanes walk down a column.
    ///
    /// # Safety
    ///
    /// - `a`, `b` and `c` point at m·k, k·n and m·n elements.
    pub unsafe fn swapped(
        a: Global<f32>, b: Global<f32>, c: GlobalMut<f32>, m: u32, n: u32, k: u32,
    )
    launch_bounds(256)
    {
        let row = thread::block_idx_x() * 16 + thread::thread_idx_x();
        let column = thread::block_row() * 16 + thread::thread_idx_y();
        if row < m && column < n {
            let mut sum = 0.0;
            for i in 0..k {
                // SAFETY: row, i and column are inside.
                let (x, y) = unsafe {
                    (
                        a.load(u64::from(row) * u64::from(k) + u64::from(i)),
                        b.load(u64::from(i) * u64::from(n) + u64::from(column)),
                    )
                };
                sum = math::fma(x, y, sum);
            }
            // SAFETY: row and column are inside and this thread's own.
            unsafe { c.store(u64::from(row) * u64::from(n) + u64::from(column), sum) };
        }
    }
}
