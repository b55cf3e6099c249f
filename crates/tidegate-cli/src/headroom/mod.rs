//! `tidegate headroom`: predicts how many messages a second a server takes before the 99th percentile of
//! their latency breaks a bound.
//!
//! This module asks the monitor twice and prints; [`figures`] reads the answers, and [`predict`] asks the
//! engine's model.

mod figures;
mod predict;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::bail;
use clap::Args;
use serde_json::Value;

use self::figures::{Figures, Unknown};
use self::predict::Prediction;
use crate::monitor::{self, Monitor, Url};
use crate::{face, output, values};

const EXIT_CODES: &str = "Exit codes: 0 predicted, 1 failed, 2 wrong arguments, 3 the bound cannot be met, 4 the server has no fit yet, 5 the server has no streams";

/// The arguments of `tidegate headroom`.
#[derive(Args, Debug)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct HeadroomArgs {
    /// Keep the 99th percentile of the time from publish to acknowledgement below this bound: a number with
    /// us, ms or s, such as 5ms.
    #[arg(long, value_name = "TIME", value_parser = values::latency_ns, allow_hyphen_values = true)]
    p99: f64,
    /// Ask the monitor of the server at this address.
    #[arg(
        value_name = "URL",
        default_value = monitor::DEFAULT,
        env = "TIDEGATE_MONITOR"
    )]
    url: String,
    /// Watch the server for this time, to learn the present rate and size of messages.
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = values::some_time)]
    over: Duration,
    /// Print one JSON document instead of text.
    #[arg(long)]
    json: bool,
}

/// Watches the server, predicts and prints. The exit code tells why there is no rate.
pub(crate) fn run(args: &HeadroomArgs) -> anyhow::Result<ExitCode> {
    let monitor = Monitor::new(Url::parse(&args.url)?)?;
    let first = varz(&monitor, &args.url)?;
    let begun = Instant::now();
    std::thread::sleep(args.over);
    let second = varz(&monitor, &args.url)?;
    let figures = match Figures::read(&first, &second, begun.elapsed()) {
        Ok(figures) => figures,
        Err(unknown) => {
            face::complain(format_args!("tidegate: {}: {unknown}", args.url));
            return Ok(ExitCode::from(match unknown {
                Unknown::NoStreams => 5,
                Unknown::NoFit { .. } => 4,
                Unknown::Odd(_) => 1,
            }));
        }
    };
    let prediction = Prediction::make(figures, args.p99);
    match args.json {
        true => output::print(format_args!("{:#}\n", prediction.json()))?,
        false => output::print(prediction.text())?,
    }
    Ok(ExitCode::from(match prediction.rate {
        Some(_) => 0,
        None => 3,
    }))
}

fn varz(monitor: &Monitor, url: &str) -> anyhow::Result<Value> {
    match monitor.get("/varz")? {
        (200, answer) if answer["server_id"].is_string() => Ok(answer),
        (status, _) => bail!(
            "{url}: status {status}, and the answer is not that of a server's monitor: expected the figures of /varz"
        ),
    }
}
