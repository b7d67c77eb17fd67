//! Arguments of the examples: names, `--m --n --k` (256 each), `--arch`,
//! `--by-line`, `--json`.

#![allow(dead_code, reason = "each example uses a part")]

use kernels::gemm::{self, Shape, Variant};
use simulator::Architecture;
use std::error::Error;

/// What the command line said.
pub struct Arguments {
    /// Everything that is no option.
    pub names: Vec<String>,
    /// M, N and K.
    pub sizes: [u64; 3],
    /// `--arch`, or sm_90.
    pub architecture: Architecture,
    /// `--by-line`.
    pub by_line: bool,
    /// `--json`.
    pub json: bool,
}

impl Arguments {
    /// Reads the command line.
    pub fn read() -> Result<Self, Box<dyn Error>> {
        let mut read = Self {
            names: Vec::new(),
            sizes: [256; 3],
            architecture: Architecture::SM_90,
            by_line: false,
            json: false,
        };
        let mut arguments = std::env::args().skip(1);
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
                "--arch" => read.architecture = value()?.parse()?,
                "--by-line" => read.by_line = true,
                "--json" => read.json = true,
                option if option.starts_with('-') => {
                    return Err(format!("unknown option {option}").into());
                }
                _ => read.names.push(argument),
            }
        }
        Ok(read)
    }

    /// The shape.
    pub fn shape(&self) -> Result<Shape, Box<dyn Error>> {
        let [m, n, k] = self.sizes;
        Ok(Shape::new(m, n, k)?)
    }

    /// The variants of these names.
    pub fn variants(&self) -> Result<Vec<&'static Variant>, Box<dyn Error>> {
        if self.names.is_empty() {
            let known: Vec<&str> = gemm::all().map(|variant| variant.name).collect();
            return Err(format!("name a variant: {}", known.join(", ")).into());
        }
        self.names
            .iter()
            .map(|name| gemm::find(name).ok_or_else(|| format!("no variant {name:?}").into()))
            .collect()
    }
}
