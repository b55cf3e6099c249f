//! Judges a server of the bench `many`: if it is at rest, how fast it worked at the start and at the end, and
//! if it kept all streams, consumers and messages. Pure.

use std::collections::VecDeque;

/// The number of readings of the server's memory and processor time in one window.
const LOOKS: usize = 5;
/// The share by which a server's memory may vary while the server counts as at rest; `RSS_LEAST_MB` is the
/// variation, in MiB, that is allowed in any case.
const RSS_SHARE: f64 = 0.005;
const RSS_LEAST_MB: f64 = 0.25;
/// The share by which a server's use of the processor may differ between two windows while the server counts
/// as at rest; `CPU_LEAST` is the difference, in processors, that is allowed in any case.
const CPU_SHARE: f64 = 0.25;
const CPU_LEAST: f64 = 0.03;

/// One reading of a server: the time, the processor time so far and the resident memory.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Look {
    pub(super) at_s: f64,
    pub(super) cpu_s: f64,
    pub(super) rss_mb: f64,
}

/// The latest readings of a server, which show whether it is at rest: see [`Rest::is_reached`].
#[derive(Clone, Debug, Default)]
pub(super) struct Rest(VecDeque<Look>);

impl Rest {
    pub(super) fn look(&mut self, look: Look) {
        self.0.push_back(look);
        if self.0.len() > 2 * LOOKS + 1 {
            self.0.pop_front();
        }
    }

    /// Returns whether the server is at rest: its memory stayed the same over two windows, and so did its use
    /// of the processor.
    pub(super) fn is_reached(&self) -> bool {
        if self.0.len() < 2 * LOOKS + 1 {
            return false;
        }
        let rss = self.0.iter().map(|look| look.rss_mb);
        let most = rss.clone().fold(0.0, f64::max);
        let least = rss.fold(f64::MAX, f64::min);
        let use_of = |from: usize| {
            let (first, last) = (self.0[from], self.0[from + LOOKS]);
            (last.cpu_s - first.cpu_s) / (last.at_s - first.at_s).max(1e-9)
        };
        let (earlier, later) = (use_of(0), use_of(LOOKS));
        let cpu_allowed = (earlier.max(later) * CPU_SHARE).max(CPU_LEAST);
        most - least <= (most * RSS_SHARE).max(RSS_LEAST_MB)
            && (earlier - later).abs() <= cpu_allowed
    }
}

/// The times at which the server had done each tenth of its requests, which show if it gets slower.
#[derive(Clone, Debug)]
pub(crate) struct Tenths {
    count: u64,
    at_s: Vec<f64>,
}

impl Tenths {
    pub(super) const fn new(count: u64) -> Self {
        Self {
            count,
            at_s: Vec::new(),
        }
    }

    /// Records that the server has done `done` requests after `at_s` seconds.
    pub(super) fn done(&mut self, done: u64, at_s: f64) {
        while self.at_s.len() < 10 && done * 10 >= self.count * (self.at_s.len() as u64 + 1) {
            self.at_s.push(at_s);
        }
    }

    /// Returns the rates at which the server did the first and the last tenth of its requests, in requests a
    /// second; `None` if requests are missing.
    pub(super) fn rates(&self) -> Option<(f64, f64)> {
        let (first, before, end) = (self.at_s.first()?, self.at_s.get(8)?, self.at_s.get(9)?);
        let tenth = self.count as f64 / 10.0;
        (*first > 0.0 && end > before).then(|| (tenth / first, tenth / (end - before)))
    }
}

/// The numbers of streams, consumers and messages that a server has, to check that a restart lost none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Held {
    pub(super) streams: u64,
    pub(super) consumers: u64,
    /// The number of messages in the last stream that the bench made.
    pub(super) messages: u64,
}

impl Held {
    /// Describes how the numbers differ from the wanted ones, for a note; `None` if they are equal.
    pub(super) fn differs(&self, wanted: &Self) -> Option<String> {
        let of = |held: &Self| {
            format!(
                "{} streams, {} consumers, {} messages in the last stream",
                held.streams, held.consumers, held.messages
            )
        };
        (self != wanted).then(|| format!("the server has {}, not {}", of(self), of(wanted)))
    }
}

/// Returns whether a process has ended and only waits for its parent to collect its status. `stat` is the
/// text of the process's `stat` file of /proc.
pub(super) fn has_ended(stat: &str) -> bool {
    let state = stat.rsplit_once(')').map(|(_, rest)| rest.trim_start());
    state.is_none_or(|state| state.starts_with(['Z', 'X']))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rest(looks: impl Fn(f64) -> (f64, f64)) -> Rest {
        let mut rest = Rest::default();
        for n in 0..11 {
            assert!(!rest.is_reached());
            let at_s = f64::from(n) * 0.2;
            let (cpu_s, rss_mb) = looks(at_s);
            rest.look(Look {
                at_s,
                cpu_s,
                rss_mb,
            });
        }
        rest
    }

    #[test]
    fn a_server_is_at_rest_with_a_steady_load_and_memory() {
        assert!(rest(|_| (1.0, 100.0)).is_reached());
        // A server that always works a little is at rest, too.
        assert!(rest(|at| (at * 0.2, 100.0 + at / 10.0)).is_reached());
        // A server is not at rest if its memory grows or its work ends.
        assert!(!rest(|at| (1.0, 100.0 + at)).is_reached());
        assert!(!rest(|at| (at.min(1.0), 100.0)).is_reached());
        // The check regards only the last two windows of readings.
        let mut later = rest(|at| (at.min(1.0), 100.0));
        for n in 11..20 {
            later.look(Look {
                at_s: f64::from(n) * 0.2,
                cpu_s: 1.0,
                rss_mb: 100.0,
            });
        }
        assert!(later.is_reached());
    }

    #[test]
    fn the_rates_of_the_first_and_the_last_tenth_differ() {
        let mut tenths = Tenths::new(1000);
        for done in 1..=1000_u32 {
            assert_eq!(tenths.rates(), None);
            let slow = f64::from(done.saturating_sub(900)) * 0.01;
            tenths.done(done.into(), f64::from(done.min(900)) * 0.001 + slow);
        }
        let (first, last) = tenths.rates().unwrap();
        assert!((first / 1000.0 - 1.0).abs() < 0.01, "{first}");
        assert!((last / 100.0 - 1.0).abs() < 0.01, "{last}");
        // With fewer than ten things, the tenths have no times of their own.
        let mut few = Tenths::new(3);
        few.done(3, 0.5);
        assert_eq!(few.rates(), None);
    }

    #[test]
    fn a_lost_stream_is_reported() {
        let wanted = Held {
            streams: 10,
            consumers: 0,
            messages: 3,
        };
        assert_eq!(wanted.differs(&wanted), None);
        let text = Held::default().differs(&wanted).unwrap();
        assert!(
            text.contains("has 0 streams") && text.contains("not 10"),
            "{text}"
        );
    }

    #[test]
    fn a_process_that_waits_to_be_reaped_has_ended() {
        assert!(!has_ended("7 (a (b) c) S 1 7"));
        assert!(has_ended("7 (a (b) c) Z 1 7"));
        assert!(has_ended(""));
    }
}
