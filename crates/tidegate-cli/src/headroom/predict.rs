//! The prediction: the engine's model at the present figures of a server, with its range and its cautions.
//! Pure.

use std::fmt::Write as _;

use serde_json::{Value, json};
use tidegate::sim::headroom::{Headroom, Syncs};

use super::figures::Figures;
use crate::report;
use crate::why::time;

/// The number of standard errors by which the range of the prediction changes the costs.
const ERRORS: f64 = 2.0;
/// The noise above which a prediction rests on a tail that the fit does not know.
const NOISY: f64 = 0.3;
/// The factor beyond which a sync counts as far larger than the measured ones.
const FAR: f64 = 4.0;

/// A prediction, for people and as JSON.
#[derive(Clone, Debug)]
pub(super) struct Prediction {
    figures: Figures,
    p99_ns: f64,
    /// The rate up to which the bound holds, in messages a second, with the rates at dearer and cheaper costs
    /// within the errors of the fit; `None` if the bound cannot be met.
    pub(super) rate: Option<(f64, f64, f64)>,
    /// The 99th percentile that the model gives at hardly any load; of meaning if the bound cannot be met.
    least_ns: f64,
    /// The 99th percentile that the model gives at the present rate; `None` without messages.
    present_ns: Option<f64>,
    cautions: Vec<String>,
}

impl Prediction {
    /// Asks the model for the rate at which the 99th percentile reaches `p99_ns`.
    pub(super) fn make(figures: Figures, p99_ns: f64) -> Self {
        let Figures {
            syncs,
            errors_ns: (a_err, b_err),
            ..
        } = figures;
        let shifted = |by: f64| Syncs {
            sync_ns: (syncs.sync_ns + by * a_err).max(1.0),
            byte_ns: (syncs.byte_ns + by * b_err).max(0.0),
            ..syncs
        };
        let up_to = |syncs: Syncs| match syncs.headroom(p99_ns) {
            Headroom::UpTo(rate) => Ok(rate),
            Headroom::Never(least) => Err(least),
        };
        let (rate, least_ns) = match up_to(syncs) {
            Ok(rate) => {
                let low = up_to(shifted(ERRORS)).unwrap_or(0.0).min(rate);
                let high = up_to(shifted(-ERRORS)).unwrap_or(rate).max(rate);
                (Some((rate, low, high)), 0.0)
            }
            Err(least) => (None, least),
        };
        let present_ns = (figures.rate > 0.0).then(|| syncs.p99(figures.rate, 400, 1));
        Self {
            figures,
            p99_ns,
            rate,
            least_ns,
            present_ns: present_ns.filter(|ns| ns.is_finite()),
            cautions: cautions(&figures, rate.map(|(rate, ..)| rate)),
        }
    }

    /// Writes the prediction for people.
    pub(super) fn text(&self) -> String {
        let Figures { syncs, rate, .. } = &self.figures;
        let mut text = String::new();
        let mut line = |head: &str, line: String| {
            // The write goes to memory and does not fail.
            let _ = writeln!(text, "{head:10}{line}");
        };
        let bound = time(self.p99_ns);
        match self.rate {
            Some((up_to, low, high)) => {
                let times = match *rate > 0.0 {
                    true => format!("; {} times the present rate", report::number(up_to / rate)),
                    false => String::new(),
                };
                line(
                    "headroom",
                    format!(
                        "up to {} messages a second with a p99 below {bound}, by the log alone{times}",
                        report::count(up_to)
                    ),
                );
                line(
                    "range",
                    format!(
                        "{} to {} messages a second, by twice the errors of the fit",
                        report::count(low),
                        report::count(high)
                    ),
                );
            }
            None => line(
                "headroom",
                format!(
                    "cannot be met: a p99 below {bound} is impossible, as a sync alone gives a p99 of {}",
                    time(self.least_ns)
                ),
            ),
        }
        match *rate > 0.0 {
            true => line(
                "present",
                format!(
                    "{} messages a second of {:.0} bytes in the log, {} in a sync; a p99 of {} by the model",
                    report::count(*rate),
                    syncs.message_bytes,
                    report::number(self.figures.batch),
                    self.present_ns
                        .map_or_else(|| "more than it can tell".into(), time),
                ),
            ),
            false => line(
                "present",
                format!(
                    "no messages now; the log has {:.0} bytes for each message since the start",
                    syncs.message_bytes
                ),
            ),
        }
        if let Some((cpu_ns, ends_at)) = self.processor() {
            line(
                "processor",
                format!(
                    "{} a message now, so {:.0} cores end at {} messages a second, or more if larger batches need less",
                    time(cpu_ns),
                    self.figures.cores,
                    report::count(ends_at)
                ),
            );
        }
        let (a_err, b_err) = self.figures.errors_ns;
        line(
            "model",
            format!(
                "a sync takes {} ± {} and {} ± {} a KiB, with a noise of {:.0} %; one sync at a time; messages arrive \
                 at random (Poisson)",
                time(syncs.sync_ns),
                time(a_err),
                time(1024.0 * syncs.byte_ns),
                time(1024.0 * b_err),
                100.0 * syncs.noise
            ),
        );
        for caution in &self.cautions {
            line("caution", caution.clone());
        }
        text
    }

    /// Returns the processor time of the server for each message, in nanoseconds, and the rate at which all
    /// cores are busy if that time stays; `None` without messages.
    fn processor(&self) -> Option<(f64, f64)> {
        let cpu_ns = self.figures.cpu_ns?;
        Some((cpu_ns, self.figures.cores * 1e9 / cpu_ns))
    }

    pub(super) fn json(&self) -> Value {
        let Figures {
            syncs, errors_ns, ..
        } = &self.figures;
        json!({
            "outcome": if self.rate.is_some() { "up_to" } else { "cannot_be_met" },
            "p99_ns": self.p99_ns,
            "rate_per_s": self.rate.map(|r| r.0),
            "rate_low_per_s": self.rate.map(|r| r.1),
            "rate_high_per_s": self.rate.map(|r| r.2),
            "least_p99_ns": self.rate.is_none().then_some(self.least_ns),
            "present": {
                "rate_per_s": self.figures.rate,
                "message_bytes": syncs.message_bytes,
                "batch_messages": self.figures.batch,
                "p99_ns": self.present_ns,
            },
            "model": {
                "arrivals": "poisson",
                "in_flight": 1,
                "sync_ns": syncs.sync_ns, "sync_err_ns": errors_ns.0,
                "byte_ns": syncs.byte_ns, "byte_err_ns": errors_ns.1,
                "noise": syncs.noise,
                "sync_bytes_max": syncs.bytes_max,
            },
            "processor": self.processor().map(|(message_ns, ends_at)| json!({
                "message_ns": message_ns,
                "cores": self.figures.cores,
                "ends_at_per_s": ends_at,
            })),
            "cautions": self.cautions,
        })
    }
}

/// Returns the reasons for which the prediction may be wrong.
fn cautions(figures: &Figures, rate: Option<f64>) -> Vec<String> {
    let Figures {
        syncs, errors_ns, ..
    } = figures;
    let mut cautions = Vec::new();
    if syncs.noise > NOISY {
        cautions.push(format!(
            "syncs of the same size vary by {:.0} %: other programs use the disk or the cores, or the disk is uneven",
            100.0 * syncs.noise
        ));
    }
    if errors_ns.0 >= syncs.sync_ns / 2.0 || errors_ns.1 >= syncs.byte_ns / 2.0 {
        cautions.push(
            "the costs are hardly known: the syncs so far were few or too much alike, so the result is a guess"
                .into(),
        );
    }
    if let Some(rate) = rate {
        let busy = (syncs.byte_ns * syncs.message_bytes * rate / 1e9).min(0.98);
        let bytes = rate / 1e9 * syncs.message_bytes * syncs.sync_ns / (1.0 - busy);
        if bytes > FAR * figures.batch_bytes {
            cautions.push(format!(
                "at that rate a sync would cover about {:.0} KiB, and the mean sync so far has {:.0} KiB: the larger \
                 sizes are not measured",
                bytes / 1024.0,
                figures.batch_bytes / 1024.0
            ));
        }
    }
    cautions.push("clients, network, processor time and the event loop come on top".into());
    if figures.clustered {
        cautions.push(
            "other nodes must sync the messages, too, and the model does not have them".into(),
        );
    }
    cautions
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::figures::tests::varz;
    use super::*;

    fn figures() -> Figures {
        let (first, second) = (
            varz(1000, 600_000, 100, 1.0),
            varz(3000, 1_800_000, 300, 1.1),
        );
        Figures::read(&first, &second, Duration::from_secs(2)).unwrap()
    }

    #[test]
    fn a_rate_has_a_range_and_cautions() {
        let prediction = Prediction::make(figures(), 5e6);
        let (rate, low, high) = prediction.rate.unwrap();
        assert!(low < rate && rate < high, "{low} {rate} {high}");
        let text = prediction.text();
        for part in [
            "headroom  up to",
            "p99 below 5.00 ms",
            "range",
            "600 bytes",
            "Poisson",
            "not measured",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let json = prediction.json();
        assert_eq!(json["rate_per_s"].as_f64(), Some(rate));
        // A message takes 50 us: two cores end at 40,000 messages a second.
        assert_eq!(
            json["processor"]["ends_at_per_s"].as_f64().map(f64::round),
            Some(40_000.0)
        );
        assert_eq!(json["outcome"], "up_to");
    }

    #[test]
    fn a_bound_below_a_sync_cannot_be_met() {
        let prediction = Prediction::make(figures(), 1e5);
        assert!(prediction.rate.is_none());
        assert!(
            prediction.text().contains("cannot be met"),
            "{}",
            prediction.text()
        );
        assert_eq!(prediction.json()["outcome"], "cannot_be_met");
    }

    #[test]
    fn a_fit_of_nothing_is_said() {
        let mut unsure = figures();
        unsure.errors_ns.1 = unsure.syncs.byte_ns;
        unsure.clustered = true;
        let text = Prediction::make(unsure, 5e6).text();
        assert!(
            text.contains("hardly known") && text.contains("other nodes"),
            "{text}"
        );
    }
}
