//! `tidegate tune`: predicts from a recorded trace how each controller would have served its boundaries, and
//! says which one to use. The engine's simulator makes the predictions; this module reads the file and
//! prints.

mod show;

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use clap::{Args, value_parser};
use serde_json::{Value, json};
use tidegate::controller::Choice;
use tidegate::sim::tune::{
    FitError, MISFIT, Model, PredictError, Prediction, Recorded, Trace, TraceReader, advise,
};

use crate::interrupt::{self, Interrupted};
use crate::progress::Progress;
use crate::{Usage, output};

/// The number of bytes that one read takes from the trace.
const CHUNK: usize = 1 << 17;

/// The arguments of `tidegate tune`.
#[derive(Args, Debug)]
pub(crate) struct TuneArgs {
    /// Read this trace: the file of `tidegate serve --record`, or a log that a `Recorder` of the engine
    /// wrote; `-` is standard input.
    #[arg(long, value_name = "FILE")]
    trace: PathBuf,
    /// Predict only for this boundary of the trace; give the flag once for each of several. Default: all.
    #[arg(long, value_name = "NAME")]
    boundary: Vec<String>,
    /// Predict only the default controller with this objective: lean, throughput, within=5%, p99=20ms,
    /// cost=1% or inflation=3%. The flag may be given several times.
    #[arg(long, value_name = "OBJECTIVE", value_parser = objective)]
    objective: Vec<Choice>,
    /// Predict only this controller, beside the default; `tidegate count --help` lists them. The flag may be
    /// given several times.
    #[arg(long, value_name = "NAME", value_parser = str::parse::<Choice>)]
    controller: Vec<Choice>,
    /// Draw the random numbers of the simulation from this seed; the same seed gives the same predictions.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = value_parser!(u32))]
    seed: u32,
    /// Print one JSON document, for other programs, instead of tables.
    #[arg(long)]
    json: bool,
}

fn objective(text: &str) -> Result<Choice, String> {
    let choice = format!("knee:{text}").parse::<Choice>();
    choice.map_err(|_| {
        "give one of lean, throughput, within=5%, p99=20ms, cost=1% and inflation=3%".into()
    })
}

/// The predictions for one boundary.
struct Tuned {
    model: Model,
    predictions: Vec<Prediction>,
    advice: String,
}

/// Reads the trace and prints the predictions. The exit code is 1 if no boundary gave one.
pub(crate) fn run(args: &TuneArgs) -> anyhow::Result<ExitCode> {
    let trace = read(&args.trace)?;
    let chosen = chosen(&trace, &args.boundary)?;
    let mut any = false;
    let mut all = Vec::new();
    let mut progress = Progress::start("items simulated");
    if !args.json {
        output::print(show::header(&args.trace, &trace))?;
    }
    for recorded in chosen {
        let tuned = tune(recorded, args, &mut progress)?;
        any |= tuned.is_ok();
        match args.json {
            true => all.push(show::json(recorded, tuned.as_ref())),
            false => output::print(show::text(recorded, tuned.as_ref()))?,
        }
    }
    drop(progress);
    if args.json {
        output::print(format_args!("{:#}\n", document(args, &trace, &all)))?;
    }
    Ok(if any {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn document(args: &TuneArgs, trace: &Trace, boundaries: &[Value]) -> Value {
    json!({
        "trace": args.trace.display().to_string(),
        "lines": trace.lines,
        "last_line_cut": trace.is_cut,
        "entries_of_further_boundaries": trace.omitted,
        "seed": args.seed,
        "boundaries": boundaries,
    })
}

/// Reads the trace in pieces, so that a file of any length fits into memory.
fn read(path: &Path) -> anyhow::Result<Trace> {
    let name = match path.to_str() {
        Some("-") => "standard input".into(),
        _ => path.display().to_string(),
    };
    let mut input: Box<dyn Read> = match path.to_str() {
        Some("-") => Box::new(io::stdin().lock()),
        _ => Box::new(File::open(path).with_context(|| name.clone())?),
    };
    let mut reader = TraceReader::new();
    let mut progress = Progress::start("lines read");
    let mut chunk = vec![0; CHUNK];
    loop {
        interrupt::check()?;
        let n = match input.read(&mut chunk) {
            Ok(0) => break,
            Ok(n) => n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            Err(e) => return Err(e).with_context(|| name.clone()),
        };
        reader
            .handle_bytes(&chunk[..n])
            .with_context(|| name.clone())?;
        progress.show(reader.lines());
    }
    let trace = reader.finish().with_context(|| name.clone())?;
    if trace.boundaries.is_empty() {
        bail!("{name}: the trace has a header and no entry");
    }
    Ok(trace)
}

/// Returns the boundaries that the user asked for.
fn chosen<'a>(trace: &'a Trace, names: &[String]) -> anyhow::Result<Vec<&'a Recorded>> {
    let all = trace.boundaries.iter();
    for name in names {
        if !all.clone().any(|b| b.name == *name) {
            let known: Vec<_> = all.map(show::name).collect();
            let known = known.join(", ");
            return Err(Usage::new(format_args!(
                "the trace has no boundary `{name}`: it has {known}"
            ))
            .into());
        }
    }
    Ok(all
        .filter(|b| names.is_empty() || names.contains(&b.name))
        .collect())
}

/// Fits a model to a boundary, and predicts each controller.
fn tune(
    recorded: &Recorded,
    args: &TuneArgs,
    progress: &mut Progress,
) -> anyhow::Result<Result<Tuned, FitError>> {
    let model = match Model::fit(recorded) {
        Ok(model) => model,
        Err(error) => return Ok(Err(error)),
    };
    let given: Vec<Choice> = args
        .objective
        .iter()
        .chain(&args.controller)
        .copied()
        .collect();
    let mut choices = vec![Choice::KNEE];
    match given.is_empty() {
        true => choices.extend(model.candidates()),
        false => choices.extend(&given),
    }
    let mut seen = Vec::new();
    let mut predictions = Vec::new();
    let mut simulated = 0;
    for choice in choices {
        if seen.contains(&choice) {
            continue;
        }
        seen.push(choice);
        let predicted = model.predict(choice, args.seed, &mut |items| {
            simulated += items;
            progress.show(simulated);
            !interrupt::asked()
        });
        match predicted {
            Ok(prediction) => predictions.push(prediction),
            Err(PredictError::Stopped) => return Err(Interrupted.into()),
            Err(error) if given.contains(&choice) => {
                return Err(Usage::new(format_args!("`{choice}`: {error}")).into());
            }
            // The bounds of this boundary do not allow the controller, so it cannot be used there.
            Err(_) => {}
        }
    }
    let error = model.error(&predictions).unwrap_or(0.0);
    let advice = match error > MISFIT {
        true => format!(
            "no advice: the model is off by {:.0} % for the controller that the trace was recorded under",
            error * 100.0
        ),
        false => advise(&predictions, error),
    };
    Ok(Ok(Tuned {
        model,
        predictions,
        advice,
    }))
}
