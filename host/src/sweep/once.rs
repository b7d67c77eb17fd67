//! One launch of everything, for profilers.

use super::Settings;
use super::contender::Contender;
use super::entrant::Engine;
use crate::cublas::Cublas;
use crate::measure::{check_device_memory, random_factors};
use crate::ptx::Code;
use crate::{Error, nvtx};
use kernels::gemm::Shape;
use kernels::launch::Backend;

/// Launches every contender once at every shape, on the first of the devices,
/// with the first of the backends and of the codes: what a profiler is to see,
/// and nothing else. Nothing is verified or timed.
///
/// `each` is told of every contender and shape that ran.
///
/// # Errors
///
/// Those of opening the device, of the plans and launches, of the kernels.
pub fn run_once(
    settings: &Settings,
    contenders: &[Contender],
    shapes: &[Shape],
    mut each: impl FnMut(Contender, Shape),
) -> Result<(), Error> {
    let backend = settings.backends.first().copied().unwrap_or(Backend::Nvptx);
    let code = settings.codes.first().copied().unwrap_or(Code::Best);
    let gpu = code.open(settings.devices.first().copied().unwrap_or(0), backend)?;
    let wanted = |it: &Contender| matches!(it, Contender::Cublas(_));
    let cublas = if contenders.iter().any(wanted) {
        let opened = Cublas::open(&gpu, settings.cublas.as_deref());
        Some(opened.map_err(|absent| Error::Cublas {
            operation: "opening cuBLAS".into(),
            status: absent.to_string(),
        })?)
    } else {
        None
    };
    for &shape in shapes {
        check_device_memory(&gpu, shape)?;
        let (a, b) = random_factors(shape, settings.seed)?;
        let (device_a, device_b) = (gpu.upload(&a)?, gpu.upload(&b)?);
        let mut c = gpu.poisoned(a.rows(), b.columns())?;
        for &contender in contenders {
            let engine = match (contender, &cublas) {
                (Contender::Variant(variant), _) => {
                    Engine::Variant(&gpu, gpu.prepare_variant(variant, shape)?)
                }
                (Contender::Cublas(mode), Some(cublas)) => {
                    Engine::Cublas(cublas.prepare(mode, shape, (&a, &b))?)
                }
                _ => continue,
            };
            let _range = nvtx::range(&format!("{} {shape}", contender.name()));
            engine.queue(&gpu, &device_a, &device_b, &mut c)?;
            gpu.synchronize()?;
            each(contender, shape);
        }
    }
    Ok(())
}
