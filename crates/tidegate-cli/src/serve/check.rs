//! Formats the report on a configuration file for the operator: `serve -t` prints all of it, and a starting
//! server warns of the settings without effect.

use std::io::{self, Write};

use tidegate_server::config::{Named, Report};

/// Writes which settings of the configuration file the server carries out, which have no effect, and which it
/// refuses.
pub(super) fn write(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    let list = |settings: &[Named]| {
        let one = |s: &Named| format!("{} (line {})", s.name, s.line);
        settings.iter().map(one).collect::<Vec<_>>().join(", ")
    };
    if !report.taken.is_empty() {
        writeln!(out, "carried out: {}", list(&report.taken))?;
    }
    if !report.without_effect.is_empty() {
        writeln!(out, "without effect: {}", list(&report.without_effect))?;
    }
    for remark in &report.remarks {
        writeln!(out, "note: {remark}")?;
    }
    for refused in &report.refused {
        writeln!(out, "refused: {refused}")?;
    }
    Ok(())
}

/// Logs one warning that names the settings without effect, if the file has any.
pub(super) fn warn(report: &Report) {
    if let Some(names) = report.idle_text() {
        tracing::warn!(
            "the server ignores some settings of its configuration, because they have no effect in this server: {names} (docs/nats-support.md lists them; `strict: true` refuses them)"
        );
    }
    for remark in &report.remarks {
        tracing::warn!("{remark}");
    }
}
