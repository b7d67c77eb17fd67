//! What a row and a device's record hold before anything is timed.

use super::Settings;
use super::contender::{Contender, peak_flops};
use super::record::{DeviceRecord, Row};
use super::runner::Runner;
use crate::cublas::Cublas;
use crate::nvml::Monitor;
use crate::verify::Verdict;
use crate::{Gpu, ptx};
use kernels::gemm::Shape;
use kernels::launch::Backend;
use std::time::Duration;

impl Runner<'_> {
    /// A row of which nothing is measured yet.
    pub(super) fn row(
        &self,
        contender: Contender,
        shape: Shape,
        verdict: &Verdict,
        gpu: Option<&Gpu>,
    ) -> Row {
        let precision = contender.precision();
        let info = gpu.map(Gpu::info);
        let backend = gpu.map_or(Backend::Nvptx, |gpu| gpu.ptx().backend);
        let is_variant = matches!(contender, Contender::Variant(_));
        let code = gpu.filter(|_| is_variant).and_then(other_code);
        Row {
            kernel: contender.name().into(),
            backend: contender.backend(backend).into(),
            code: code.map(Into::into),
            device: None,
            m: shape.m(),
            n: shape.n(),
            k: shape.k(),
            flops: shape.flops(),
            bytes: contender.bytes(shape),
            peak_flops: info.and_then(|info| {
                peak_flops(&info.limits, f64::from(info.clock_khz) * 1e3, &precision)
            }),
            peak_bandwidth: info.map(|info| info.peak_bandwidth()),
            precision,
            resources: None,
            launch_seconds: None,
            batched_by: None,
            no_graph: None,
            sustained: None,
            burst: None,
            cold: None,
            pageable: None,
            pinned: None,
            passed: verdict.passed(),
            verdict: verdict.to_string(),
            sm_mhz: None,
            watts: None,
            celsius: None,
            throttling: Vec::new(),
            again: self.again(contender, shape, gpu),
        }
    }

    /// The command that measures one row again.
    fn again(&self, contender: Contender, shape: Shape, gpu: Option<&Gpu>) -> String {
        let Settings {
            rounds,
            sustained,
            burst,
            pause,
            seed,
            copies,
            triple_loop_flops: _,
            cpu_flops: _,
            noise_limit: _,
            cublas,
            devices: _,
            backends: _,
            codes: _,
            graphs: _,
            tags: _,
            command: _,
        } = self.settings;
        let mut text = format!(
            "matmul bench --kernel {} --shape {}x{}x{} --rounds {rounds} --sustained {} --burst {} \
             --pause {} --seed {seed}",
            contender.name(),
            shape.m(),
            shape.n(),
            shape.k(),
            milliseconds(*sustained),
            milliseconds(*burst),
            milliseconds(*pause),
        );
        if let Contender::Cpu(_) = contender {
            text += " --all-on-cpu";
        }
        if let Some(gpu) = gpu {
            text += &format!(" --device {}", gpu.info().ordinal);
            if !copies {
                text += " --no-copies";
            }
        }
        if let (Contender::Variant(_), Some(gpu)) = (contender, gpu) {
            if gpu.ptx().backend != Backend::Nvptx {
                text += &format!(" --backend {}", gpu.ptx().backend.name());
            }
            if let Some(code) = other_code(gpu) {
                text += &format!(" --code {code}");
            }
        }
        if let (Contender::Cublas(_), Some(path)) = (contender, cublas) {
            text += &format!(" --cublas '{}'", path.display());
        }
        text
    }
}

fn milliseconds(duration: Duration) -> String {
    (duration.as_secs_f64() * 1e3).to_string()
}

/// The target of a GPU's code, where that is not the best for the device.
fn other_code(gpu: &Gpu) -> Option<&'static str> {
    let ptx = gpu.ptx();
    let best = ptx::best_for(gpu.info().limits.compute_capability, ptx.backend);
    let is_best = best.is_some_and(|best| best.architecture == ptx.architecture);
    (!is_best).then_some(ptx.architecture)
}

/// `gpu` is the first of `gpus`, which are one device with different code.
pub(super) fn device_record(
    gpus: &[Gpu],
    gpu: &Gpu,
    monitor: &Result<Monitor, String>,
    cublas: &Result<Cublas, String>,
) -> DeviceRecord {
    let info = gpu.info();
    let driver = crate::device::driver_version();
    let mut targets: Vec<&str> = Vec::new();
    for gpu in gpus {
        if !targets.contains(&gpu.ptx().architecture) {
            targets.push(gpu.ptx().architecture);
        }
    }
    DeviceRecord {
        ordinal: info.ordinal,
        name: info.name.clone(),
        uuid: info.uuid.clone(),
        compute_capability: info.limits.compute_capability.to_string(),
        multiprocessors: info.limits.multiprocessors,
        clock_mhz: info.clock_khz / 1000,
        memory_clock_mhz: info.memory_clock_khz / 1000,
        memory_bytes: info.memory_bytes,
        l2_bytes: info.l2_bytes,
        ecc: info.ecc,
        peak_f32_flops: info.peak_f32_flops(),
        peak_bandwidth: info.peak_bandwidth(),
        driver: monitor.as_ref().ok().and_then(Monitor::driver),
        cuda: driver.map_or_else(|_| "unknown".into(), |version| version.to_string()),
        ptx: targets.join(", "),
        power_limit_watts: monitor
            .as_ref()
            .ok()
            .and_then(Monitor::power_limit)
            .map(|milliwatts| f64::from(milliwatts) / 1e3),
        nvml_absent: monitor.as_ref().err().cloned(),
        cublas: cublas.as_ref().ok().map(Cublas::describe),
        cublas_absent: cublas.as_ref().err().cloned(),
    }
}
