//! `matmul profile`.

use super::{Outcome, ShapeArguments};
use host::profile::{self, Counter, Subject};
use host::{Error, report};

#[derive(clap::Args)]
pub struct Arguments {
    /// The kernel: a name that `matmul list` shows
    #[arg(long, default_value = "tiled_32", value_name = "NAME")]
    kernel: String,
    #[command(flatten)]
    shape: ShapeArguments,
    /// Number of the device to run on
    #[arg(long, default_value_t = 0, value_name = "NUMBER")]
    device: u32,
    /// Print the commands and run nothing
    #[arg(long)]
    print: bool,
}

pub fn run(arguments: &Arguments) -> Result<Outcome, Error> {
    let program = std::env::current_exe()
        .map_or_else(|_| "matmul".to_owned(), |path| path.display().to_string());
    let subject = Subject {
        variant: host::device::find(&arguments.kernel)?,
        shape: arguments.shape.shape()?,
        device: arguments.device,
        program: &program,
    };
    println!("Nsight Compute, every section, for its window:");
    println!("  {}", subject.compute_report());
    println!("Nsight Systems, the timeline of a benchmark:");
    println!("  {}", subject.systems_report());
    let ncu = host::doctor::ncu();
    let name = ncu.clone().unwrap_or_else(|| "ncu".into());
    println!("The counters that `matmul simulate` has too:");
    println!("  {}", subject.compute_counters(&name));
    if arguments.print {
        return Ok(Outcome::Passed);
    }

    let Some(ncu) = ncu else {
        println!("Not run: there is no ncu on the PATH");
        return Ok(Outcome::Passed);
    };
    let devices = match host::device::devices() {
        Ok(devices) => devices,
        Err(error) if error.is_no_gpu() => {
            println!("Not run: {error}");
            return Ok(Outcome::Passed);
        }
        Err(error) => return Err(error),
    };
    let Some(device) = devices.get(arguments.device as usize) else {
        return Err(Error::NoSuchDevice {
            asked: arguments.device,
            devices: devices.into_iter().map(|device| device.name).collect(),
        });
    };
    match profile::compare(&subject, &ncu, &device.limits) {
        Ok(counters) => print(&counters),
        // Most often counters are kept for root.
        Err(error @ Error::Profiler { .. }) => println!("Not read: {error}"),
        Err(error) => return Err(error),
    }
    Ok(Outcome::Passed)
}

fn print(counters: &[Counter]) {
    let number = |value: Option<f64>| value.map_or_else(String::new, |value| format!("{value:.0}"));
    let rows: Vec<_> = counters
        .iter()
        .map(|counter| {
            let share = counter
                .read
                .zip(counter.simulated)
                .map(|(read, simulated)| {
                    if read == simulated {
                        "equal".into()
                    } else if read == 0.0 {
                        "differs".into()
                    } else {
                        format!("{:+.1} %", 100.0 * (simulated / read - 1.0))
                    }
                });
            [
                counter.name.to_owned(),
                number(counter.read),
                number(counter.simulated),
                share.unwrap_or_default(),
            ]
        })
        .collect();
    print!(
        "{}",
        report::table(
            &["counter", "read", "simulated", "simulator is off by"],
            &rows
        )
    );
    if counters.iter().all(|counter| counter.simulated.is_none()) {
        println!("Not simulated: the product is large; take one of 512×512×512 or less");
    }
}
