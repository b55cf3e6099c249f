//! Formats the output of `tidegate count`: the words, and the figures of the engine.

use std::io::{self, Write};
use std::time::Duration;

use super::files::Tried;
use crate::escape::escape;
use crate::topology::{Edge, Outcome, Tally, top};

/// The results of a word count, which the command prints at its end.
pub(super) struct Report<'a> {
    pub(super) outcome: &'a Outcome,
    pub(super) read: &'a Tried,
    pub(super) elapsed: Duration,
    pub(super) top: usize,
    pub(super) interrupted: bool,
}

impl Report<'_> {
    /// Prints the most frequent words, then the totals, the latency, and the batches of each edge of the
    /// topology.
    pub(super) fn print(&self, out: &mut impl Write) -> io::Result<()> {
        let top = top(&self.outcome.tallies, self.top);
        let width = top.first().map_or(0, |(_, count)| grouped(*count).len());
        for (word, count) in &top {
            writeln!(out, "{:>width$}  {}", grouped(*count), escape(word))?;
        }
        if !top.is_empty() {
            writeln!(out)?;
        }
        self.print_total(out)?;
        self.print_latency(out)?;
        self.outcome
            .edges
            .iter()
            .try_for_each(|edge| print_edge(out, edge))
    }

    fn print_total(&self, out: &mut impl Write) -> io::Result<()> {
        let words: u64 = self.outcome.tallies.iter().map(Tally::total).sum();
        let distinct: usize = self.outcome.tallies.iter().map(Tally::distinct).sum();
        let Tried {
            counted,
            failed,
            bytes,
        } = *self.read;
        let file = if counted == 1 { "file" } else { "files" };
        write!(
            out,
            "total    {} words, {} distinct, in {counted} {file}",
            grouped(words),
            grouped(distinct as u64)
        )?;
        if failed > 0 {
            write!(
                out,
                "; {failed} of {} could not be read, see above",
                counted + failed
            )?;
        }
        writeln!(
            out,
            "{}",
            if self.interrupted {
                "; interrupted before the end"
            } else {
                ""
            }
        )?;
        let seconds = self.elapsed.as_secs_f64().max(1e-9);
        let rate = words as f64 / seconds;
        let mb = bytes as f64 / 1e6;
        writeln!(
            out,
            "speed    {} words/s, {:.1} MB/s: {mb:.1} MB in {seconds:.3} s",
            grouped(rate as u64),
            mb / seconds
        )
    }

    fn print_latency(&self, out: &mut impl Write) -> io::Result<()> {
        let latency = &self.outcome.latency;
        if latency.is_empty() {
            return writeln!(out, "latency  none: no line was read");
        }
        let us = |ns: f64| format!("{:.1} us", ns / 1e3);
        writeln!(
            out,
            "latency  mean {}, p50 {}, p99 {}, from reading a line to its last word counted ({} lines)",
            us(latency.mean()),
            us(latency.value_at_quantile(0.5) as f64),
            us(latency.value_at_quantile(0.99) as f64),
            grouped(latency.len())
        )
    }
}

fn print_edge(out: &mut impl Write, edge: &Edge) -> io::Result<()> {
    let batches = edge.batches.batches();
    write!(
        out,
        "batches  {}: {} items, ",
        edge.name,
        grouped(edge.items)
    )?;
    if batches == 0 {
        return writeln!(out, "each by itself");
    }
    write!(
        out,
        "{} batches, mean {:.1}, max {}, limit now {}..{}",
        grouped(batches),
        edge.batches.mean(),
        grouped(edge.batches.items_max),
        edge.limits.0,
        edge.limits.1
    )?;
    let mut before = "; ";
    for (reason, count) in edge.batches.by_reason.iter() {
        if count > 0 {
            write!(out, "{before}{reason} {}", grouped(count))?;
            before = ", ";
        }
    }
    writeln!(out)
}

/// Formats a number with commas between thousands, so that people can read it.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    #[test]
    fn thousands() {
        assert_eq!(
            [0, 999, 1000, 1_234_567].map(super::grouped),
            ["0", "999", "1,000", "1,234,567"]
        );
    }
}
