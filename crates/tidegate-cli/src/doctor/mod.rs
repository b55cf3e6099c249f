//! `tidegate doctor`: measures this machine as a server would use it, and says what each figure means.

mod findings;
mod measure;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use serde_json::json;

use self::findings::{Level, findings};
use crate::output;

const EXIT_CODES: &str =
    "Exit codes: 0 a server can keep its promises here, 1 it cannot, 2 wrong arguments";

/// The arguments of `tidegate doctor`.
#[derive(Args, Debug)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct DoctorArgs {
    /// Measure the disk of this directory, in which a server is to keep its data. If it does not exist, the
    /// nearest directory above it counts.
    #[arg(long, value_name = "DIR", default_value = "tidegate-data")]
    pub(crate) data: PathBuf,
    /// Print one JSON document instead of a list.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Measures, and prints a line for each finding. The exit code is 1 if a server could not keep its promises.
pub(crate) fn run(args: &DoctorArgs) -> anyhow::Result<ExitCode> {
    let found = findings(&measure::facts(&args.data)?);
    if args.json {
        let all: Vec<_> = found
            .iter()
            .map(|f| {
                json!({ "check": f.check, "level": f.level.name(), "found": f.found, "meaning": f.meaning })
            })
            .collect();
        output::print(format_args!("{:#}\n", json!({ "findings": all })))?;
    } else {
        for f in &found {
            let (level, check) = (f.level.name(), f.check);
            output::print(format_args!(
                "{level:8}{check:14}{}\n{:22}{}\n",
                f.found, "", f.meaning
            ))?;
        }
    }
    let bad = found.iter().any(|f| f.level == Level::Problem);
    Ok(ExitCode::from(u8::from(bad)))
}
