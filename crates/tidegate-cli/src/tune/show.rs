//! Formats the predictions of `tidegate tune`, as text for people and as JSON for programs.

use std::fmt::Write as _;
use std::path::Path;

use serde_json::{Value, json};
use tidegate::sim::tune::{Figures, FitError, Model, Prediction, Recorded, Source, Trace};

use super::Tuned;
use crate::report::{Table, count, number};

/// The cell of a figure that the trace does not tell.
const UNKNOWN: &str = "not known";
/// The drift of the costs above which the text warns of it.
const DRIFT: f64 = 1.25;

/// Returns the name of a boundary, without characters that change a terminal.
pub(super) fn name(recorded: &Recorded) -> String {
    recorded.name.escape_debug().to_string()
}

/// Returns the first lines: the trace, and the reasons why parts of it were left out.
pub(super) fn header(path: &Path, trace: &Trace) -> String {
    let names = trace.boundaries.len();
    let plural = if names == 1 { "boundary" } else { "boundaries" };
    let mut text = format!(
        "{}: {} lines, {names} {plural}\n",
        path.display(),
        trace.lines
    );
    if trace.is_cut {
        text += "the last line is cut off: it was left out\n";
    }
    if trace.omitted > 0 {
        let _ = writeln!(
            text,
            "{} entries of further boundaries were left out: a trace may have 256",
            trace.omitted
        );
    }
    text
}

/// Returns the lines of one boundary.
pub(super) fn text(recorded: &Recorded, tuned: Result<&Tuned, &FitError>) -> String {
    let name = name(recorded);
    let Tuned {
        model,
        predictions,
        advice,
    } = match tuned {
        Ok(tuned) => tuned,
        Err(error) => {
            let mut text = format!("\n{name}: no prediction: {error}\n");
            gaps(&mut text, recorded);
            return text;
        }
    };
    let (batches, items, ns) = model.used();
    let mut text = format!(
        "\n{name}: {} batches of {} items in {} s\n",
        batches,
        items,
        number(ns as f64 / 1e9)
    );
    gaps(&mut text, recorded);
    model_lines(&mut text, model);
    let mut table = Table::new([
        "",
        "items/s",
        "mean us",
        "p99 us",
        "batches/s",
        "batch mean",
    ]);
    let by = match model.recorded_by() {
        Some(choice) => format!("recorded ({choice})"),
        None => "recorded".into(),
    };
    table.row(row(by, &model.recorded(), false));
    for p in predictions {
        table.row(row(p.choice.to_string(), &p.figures, p.overflows));
    }
    text + &table.print() + advice + "\n"
}

/// Says which entries of the boundary were not used, and why.
fn gaps(text: &mut String, recorded: &Recorded) {
    let mut say = |line: std::fmt::Arguments<'_>| {
        let _ = writeln!(text, "  {line}");
    };
    let used = "only the longest stretch without a gap is used";
    if recorded.gaps > 0 {
        say(format_args!(
            "lost entries: {}, gaps: {}: {used}",
            recorded.lost, recorded.gaps
        ));
    }
    if recorded.went_back > 0 {
        say(format_args!(
            "the clock goes back, times: {}: each time ends a stretch, and {used}",
            recorded.went_back
        ));
    }
    if recorded.begins > 1 {
        say(format_args!(
            "the boundary began {} times, each time with a new controller: {used}",
            recorded.begins
        ));
    }
    if recorded.not_kept > 0 {
        say(format_args!(
            "{} of {} entries came after the part that fits into memory, and were not used",
            recorded.not_kept, recorded.entries
        ));
    }
}

/// Says what the model assumes.
fn model_lines(text: &mut String, model: &Model) {
    let mut say = |line: std::fmt::Arguments<'_>| {
        let _ = writeln!(text, "  {line}");
    };
    match model.source() {
        Source::Callers {
            callers,
            delay_ns,
            think_ns,
        } => say(format_args!(
            "{callers} callers return after their answers, on average {} us later",
            number((delay_ns + think_ns) / 1e3)
        )),
        Source::Estimated => say(format_args!(
            "arrivals are taken as given, and estimated from the backlog: the boundary does not report them"
        )),
        _ => say(format_args!(
            "arrivals are taken as given: they do not depend on the answers"
        )),
    }
    let (a, b, noise) = model.cost();
    let (min, max) = model.sizes();
    say(format_args!(
        "a batch of n items costs about {} us + n * {} us and scatters by {:.0} %; measured: {min} to {max} items",
        number(a / 1e3),
        number(b / 1e3),
        noise * 100.0
    ));
    let drift = model.drift();
    if !(1.0 / DRIFT..=DRIFT).contains(&drift) {
        say(format_args!(
            "costs at the end are {} times those at the start: the predictions assume the mean",
            number(drift)
        ));
    }
    if !model.bounds().1 {
        say(format_args!(
            "the log has no bounds: the largest recorded limit, {}, stands for them",
            model.bounds().0.items_max
        ));
    }
    if model.has_replies() {
        say(format_args!(
            "a latency ends with the batch: the replies come later"
        ));
    }
}

fn row(name: String, figures: &Figures, overflows: bool) -> [String; 6] {
    let us = |ns: Option<f64>| match ns {
        Some(ns) => number(ns / 1e3),
        None if overflows => "grows".into(),
        None => UNKNOWN.into(),
    };
    let rate = |rate: Option<f64>| rate.map_or_else(|| UNKNOWN.into(), count);
    let size = figures.batch_mean;
    [
        name,
        rate(figures.items_per_s),
        us(figures.mean_ns),
        us(figures.p99_ns),
        rate(figures.batches_per_s),
        size.map_or_else(|| UNKNOWN.into(), number),
    ]
}

/// Returns the object of one boundary.
pub(super) fn json(recorded: &Recorded, tuned: Result<&Tuned, &FitError>) -> Value {
    let mut object = json!({
        "name": recorded.name,
        "entries": recorded.entries,
        "lost": recorded.lost,
        "gaps": recorded.gaps,
        "clock_went_back": recorded.went_back,
        "begins": recorded.begins,
        "not_kept": recorded.not_kept,
        "error": Value::Null,
    });
    match tuned {
        Err(error) => object["error"] = error.to_string().into(),
        Ok(tuned) => {
            let Value::Object(more) = model_json(tuned) else {
                return object;
            };
            for (key, value) in more {
                object[key] = value;
            }
        }
    }
    object
}

fn model_json(tuned: &Tuned) -> Value {
    let model = &tuned.model;
    let (batches, items, ns) = model.used();
    let (a_ns, b_ns, noise) = model.cost();
    let (min, max) = model.sizes();
    let source = match model.source() {
        Source::Callers {
            callers,
            delay_ns,
            think_ns,
        } => {
            json!({ "kind": "callers", "callers": callers, "delay_us": delay_ns / 1e3, "think_us": think_ns / 1e3 })
        }
        Source::Estimated => json!({ "kind": "estimated" }),
        _ => json!({ "kind": "arrivals" }),
    };
    let predictions = tuned.predictions.iter().map(prediction);
    json!({
        "used": { "batches": batches, "items": items, "seconds": ns as f64 / 1e9 },
        "source": source,
        "cost": { "a_ns": a_ns, "b_ns": b_ns, "noise": noise, "drift": model.drift() },
        "measured_items": { "min": min, "max": max },
        "bounds_recorded": model.bounds().1,
        "recorded": figures(&model.recorded()),
        "recorded_controller": model.recorded_by().map(|choice| choice.to_string()),
        "predictions": predictions.collect::<Vec<_>>(),
        "advice": tuned.advice,
    })
}

fn prediction(p: &Prediction) -> Value {
    let mut object = figures(&p.figures);
    object["controller"] = p.choice.to_string().into();
    object["outside"] = p.outside.into();
    object["backlog_grows"] = p.overflows.into();
    object
}

fn figures(f: &Figures) -> Value {
    let us = |ns: Option<f64>| ns.map(|ns| ns / 1e3);
    json!({
        "items_per_s": f.items_per_s,
        "mean_us": us(f.mean_ns),
        "p99_us": us(f.p99_ns),
        "batches_per_s": f.batches_per_s,
        "batch_mean": f.batch_mean,
    })
}
