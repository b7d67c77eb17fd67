//! `matmul doctor`.

use super::Outcome;
use host::Error;
use host::doctor::Report;

#[derive(clap::Args)]
pub struct Arguments {
    /// Print the checks as JSON
    #[arg(long)]
    json: bool,
}

pub fn run(arguments: &Arguments) -> Result<Outcome, Error> {
    let report = Report::examine();
    if arguments.json {
        println!("{}", report.to_json());
    } else {
        print!("{report}");
    }
    Ok(if report.passed() {
        Outcome::Passed
    } else {
        Outcome::Failed
    })
}
