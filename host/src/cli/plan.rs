//! `matmul plan`: what would be launched, and how long it takes at least.

use super::{Outcome, ShapeArguments};
use host::devices::{self, KnownDevice};
use host::error::bytes;
use host::{Error, report};
use kernels::gemm::{Shape, Variant};
use kernels::launch::{Argument, Plan};
use serde::Serialize;

#[derive(clap::Args)]
pub struct Arguments {
    /// The kernel: a name that `matmul list` shows, or `all`
    #[arg(long, default_value = "tiled_32", value_name = "NAME")]
    kernel: String,
    #[command(flatten)]
    shape: ShapeArguments,
    /// The device to plan for; none need be here
    #[arg(long, default_value = "h200", value_name = "NAME", value_parser = known_device)]
    gpu: KnownDevice,
    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
}

pub(super) fn known_device(name: &str) -> Result<KnownDevice, String> {
    devices::find(name).ok_or_else(|| {
        let known: Vec<_> = devices::known().iter().map(|device| device.name).collect();
        format!("known devices are {}", known.join(", "))
    })
}

/// What a product of some shape costs at least, whatever the kernel.
#[derive(Serialize)]
pub(super) struct Floor {
    /// 2·M·N·K.
    flops: f64,
    /// A and B read once, C written once.
    bytes: f64,
    /// FLOPs per byte.
    arithmetic_intensity: f64,
    /// Seconds that the arithmetic takes at the device's peak.
    compute_seconds: f64,
    /// Seconds that the bytes take at its bandwidth.
    memory_seconds: f64,
    /// Which of the two is the larger.
    limit: &'static str,
}

impl Floor {
    pub(super) fn new(shape: Shape, device: &KnownDevice) -> Self {
        let elements =
            shape.a_elements() as f64 + shape.b_elements() as f64 + shape.c_elements() as f64;
        let bytes = elements * size_of::<f32>() as f64;
        let flops = shape.flops();
        let (compute, memory) = (flops / device.peak_f32_flops(), bytes / device.bandwidth);
        Self {
            flops,
            bytes,
            arithmetic_intensity: if bytes > 0.0 { flops / bytes } else { 0.0 },
            compute_seconds: compute,
            memory_seconds: memory,
            limit: if compute >= memory {
                "compute"
            } else {
                "memory"
            },
        }
    }

    pub(super) fn seconds(&self) -> f64 {
        self.compute_seconds.max(self.memory_seconds)
    }
}

#[derive(Serialize)]
struct JsonLaunch {
    kernel: &'static str,
    grid: [u32; 3],
    block: [u32; 3],
    static_shared_bytes: u32,
    dynamic_shared_bytes: u32,
    arguments: Vec<String>,
}

#[derive(Serialize)]
struct JsonPlan {
    kernel: &'static str,
    workspace_bytes: u64,
    launches: Vec<JsonLaunch>,
}

#[derive(Serialize)]
struct Json {
    device: &'static str,
    m: u32,
    n: u32,
    k: u32,
    floor: Floor,
    plans: Vec<JsonPlan>,
}

pub fn run(arguments: &Arguments) -> Result<Outcome, Error> {
    let shape = arguments.shape.shape()?;
    let device = &arguments.gpu;
    let variants: Vec<&Variant> = if arguments.kernel == "all" {
        kernels::gemm::all_on(&device.limits).collect()
    } else {
        vec![host::device::find(&arguments.kernel)?]
    };
    let plans = variants
        .into_iter()
        .map(|variant| Ok((variant, variant.plan(shape, &device.limits)?)))
        .collect::<Result<Vec<_>, Error>>()?;
    let floor = Floor::new(shape, device);
    if arguments.json {
        super::print_json(&Json {
            device: device.name,
            m: shape.m(),
            n: shape.n(),
            k: shape.k(),
            floor,
            plans: plans.iter().map(|(v, plan)| json(v, plan)).collect(),
        });
        return Ok(Outcome::Passed);
    }

    println!("{shape} (M×N×K) on {}", device.name);
    println!(
        "FLOPs                  {:.0}, {} at {:.1} TFLOP/s",
        floor.flops,
        report::time(floor.compute_seconds),
        device.peak_f32_flops() / 1e12
    );
    println!(
        "bytes, each once       {:.0} ({}), {} at {:.0} GB/s",
        floor.bytes,
        bytes(floor.bytes as u64),
        report::time(floor.memory_seconds),
        device.bandwidth / 1e9
    );
    println!(
        "arithmetic intensity   {:.2} FLOP/byte; the device turns from memory to compute at {:.1}",
        floor.arithmetic_intensity,
        device.peak_f32_flops() / device.bandwidth
    );
    println!(
        "floor                  {}, limited by {}",
        report::time(floor.seconds()),
        floor.limit
    );
    if floor.bytes > device.memory_bytes as f64 {
        println!(
            "does not fit           the device has {}",
            bytes(device.memory_bytes)
        );
    }
    for (variant, plan) in &plans {
        print_plan(variant, plan);
    }
    Ok(Outcome::Passed)
}

fn print_plan(variant: &Variant, plan: &Plan) {
    println!();
    println!("{}: {}", variant.name, variant.summary);
    if plan.launches.is_empty() {
        println!("  launches nothing: C has no element");
    }
    for launch in &plan.launches {
        println!(
            "  {}: grid {} ({} blocks), block {} ({} threads), shared memory {}",
            launch.entry().name,
            launch.grid(),
            launch.grid().count(),
            launch.block(),
            launch.block().count(),
            bytes(launch.shared_bytes().into()),
        );
        println!("    arguments {}", arguments_of(launch).join(", "));
    }
    println!("  workspace {}", bytes(plan.workspace_bytes));
}

/// `name = value` for each argument.
fn arguments_of(launch: &kernels::launch::Launch) -> Vec<String> {
    let parameters = launch.entry().parameters.iter();
    parameters
        .zip(launch.arguments())
        .map(|(parameter, argument)| match argument {
            Argument::Pointer(buffer) => format!("{} = {buffer:?}", parameter.name),
            Argument::U32(value) => format!("{} = {value}", parameter.name),
            Argument::F32(value) => format!("{} = {value}", parameter.name),
            other => format!("{} = {other:?}", parameter.name),
        })
        .collect()
}

fn json(variant: &Variant, plan: &Plan) -> JsonPlan {
    let triple = |extents: kernels::launch::Dim3| [extents.x, extents.y, extents.z];
    JsonPlan {
        kernel: variant.name,
        workspace_bytes: plan.workspace_bytes,
        launches: plan
            .launches
            .iter()
            .map(|launch| JsonLaunch {
                kernel: launch.entry().name,
                grid: triple(launch.grid()),
                block: triple(launch.block()),
                static_shared_bytes: launch.entry().static_shared_bytes,
                dynamic_shared_bytes: launch.dynamic_shared_bytes(),
                arguments: arguments_of(launch),
            })
            .collect(),
    }
}
