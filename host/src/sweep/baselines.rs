//! The CPU's figures, beside a device's or alone.

use super::contender::Contender;
use super::record::{Row, Samples};
use super::runner::{Runner, concerns_one};
use crate::graph::Graphs;
use crate::measure::{Cpu, Effort, Measurement, random_factors};
use crate::verify::Reference;
use crate::{Error, Matrix};
use kernels::gemm::Shape;
use std::time::Duration;

/// Samples on the CPU, where one may take seconds.
const CPU_SAMPLES: u32 = 3;

impl Runner<'_> {
    /// The CPU's figures, where a device's are measured too or not.
    pub(super) fn cpu(
        &mut self,
        shape: Shape,
        (a, b): (&Matrix, &Matrix),
        reference: Option<&Reference>,
    ) -> Result<(), Error> {
        let mut own = None;
        for &contender in self.contenders {
            let Contender::Cpu(cpu) = contender else {
                continue;
            };
            if let Some(reason) = self.too_long(cpu, shape) {
                self.skip(cpu.name(), &shape.to_string(), reason);
            } else {
                self.progress.at(&format!("{} at {shape}", cpu.name()));
                let reference = match (reference, &mut own) {
                    (Some(reference), _) => reference,
                    (None, Some(own)) => own,
                    (None, none) => none.insert(Reference::on_cpu(a, b)?),
                };
                let effort = Effort {
                    launches: None,
                    batch_time: Duration::from_millis(100),
                    batches: self.settings.rounds.min(CPU_SAMPLES),
                    graphs: Graphs::Off,
                };
                let measurement = cpu.measure(a, b, reference, effort)?;
                let row = self.cpu_row(contender, measurement);
                self.sweep.rows.push(row);
            }
            self.progress.advance(1);
        }
        Ok(())
    }

    pub(super) fn cpu_alone(&mut self, shape: Shape) -> Result<(), Error> {
        let wanted = |it: &Contender| match it {
            Contender::Cpu(cpu) => self.too_long(*cpu, shape).is_none(),
            _ => false,
        };
        let done = if self.contenders.iter().any(wanted) {
            random_factors(shape, self.settings.seed)
                .and_then(|(a, b)| self.cpu(shape, (&a, &b), None))
        } else {
            // Nothing is measured, so the operands are of no use.
            let none = Matrix::zeros(0, 0);
            self.cpu(shape, (&none, &none), None)
        };
        match done {
            Err(error) if concerns_one(&error) => {
                self.skip("every kernel", &shape.to_string(), error);
                Ok(())
            }
            done => done,
        }
    }

    fn too_long(&self, cpu: Cpu, shape: Shape) -> Option<String> {
        let most = match cpu {
            Cpu::TripleLoop => self.settings.triple_loop_flops,
            Cpu::Gemm => self.settings.cpu_flops,
        };
        (shape.flops() > most).then(|| format!("it would take the CPU long: over {most:.1e} FLOPs"))
    }

    fn cpu_row(&self, contender: Contender, measurement: Measurement) -> Row {
        let mut row = self.row(contender, measurement.shape, &measurement.verdict, None);
        if row.passed && !measurement.shape.is_empty() {
            row.sustained = Some(Samples {
                seconds: measurement.samples,
                launches: measurement.launches,
            });
        }
        row
    }
}
