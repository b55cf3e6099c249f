//! Measures two figures of the host on which all figures of the bench `handlers` depend: the round trip of a
//! cache line between the host's cores, and the time of a sync. They make results of different hosts
//! comparable.

use std::fs::OpenOptions;
use std::hint::spin_loop;
use std::io::Write as _;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering::AcqRel, Ordering::Acquire};
use std::time::Instant;

use anyhow::Context as _;
use serde::{Deserialize, Serialize};

use crate::rounds::median;

/// The figures of the host on which the bench runs: the round trip of a cache line and the time of a sync.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
pub(crate) struct Host {
    pub(crate) machine: String,
    pub(crate) commit: Option<String>,
    /// The median round trip of a cache line between two threads, in nanoseconds.
    pub(crate) round_trip_ns: f64,
    /// The median time of a write of 4 KiB with its `fdatasync`, in microseconds.
    pub(crate) sync_us: f64,
}

impl Host {
    /// Measures the figures of the host for some 20 ms, with a file in `directory`.
    pub(crate) fn measure(
        machine: String,
        commit: Option<String>,
        directory: &Path,
    ) -> anyhow::Result<Self> {
        Ok(Self {
            machine,
            commit,
            round_trip_ns: round_trip_ns(),
            sync_us: sync_us(directory).with_context(|| directory.display().to_string())?,
        })
    }
}

impl std::fmt::Display for Host {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            round_trip_ns,
            sync_us,
            ..
        } = self;
        write!(
            f,
            "a cache line's round trip {round_trip_ns:.0} ns, write + fdatasync {sync_us:.0} us"
        )
    }
}

const TRIPS: u32 = 20;
const TRIPS_BY_LOOK: u32 = 500;

/// Returns the median time in nanoseconds in which one thread passes a number to another and gets it back.
fn round_trip_ns() -> f64 {
    let turn = AtomicU32::new(0);
    let until = |value: u32| {
        let mut looks = 0_u32;
        while turn.load(Acquire) != value {
            looks += 1;
            if looks.is_multiple_of(1000) {
                // Both threads may be on one core, so the waiting thread yields the core.
                std::thread::yield_now();
            } else {
                spin_loop();
            }
        }
    };
    let trips = TRIPS * TRIPS_BY_LOOK;
    let looks = std::thread::scope(|scope| {
        scope.spawn(|| {
            for trip in 0..trips {
                until(2 * trip + 1);
                turn.fetch_add(1, AcqRel);
            }
        });
        (0..TRIPS)
            .map(|look| {
                let start = Instant::now();
                for trip in 0..TRIPS_BY_LOOK {
                    let trip = look * TRIPS_BY_LOOK + trip;
                    until(2 * trip);
                    turn.fetch_add(1, AcqRel);
                }
                start.elapsed().as_nanos() as f64 / f64::from(TRIPS_BY_LOOK)
            })
            .collect()
    });
    median(looks).unwrap_or_default()
}

pub(crate) fn sync_us(directory: &Path) -> std::io::Result<f64> {
    let path = directory.join("sync");
    let mut file = OpenOptions::new().create(true).append(true).open(&path)?;
    let mut took = Vec::new();
    for _ in 0..20 {
        let start = Instant::now();
        file.write_all(&[1; 4096])?;
        file.sync_data()?;
        took.push(start.elapsed().as_secs_f64() * 1e6);
    }
    std::fs::remove_file(path)?;
    Ok(median(took).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_figures_are_measured() {
        let directory = tempfile::tempdir().unwrap();
        let host = Host::measure("here".into(), None, directory.path()).unwrap();
        assert!(host.round_trip_ns > 0.0 && host.sync_us > 0.0, "{host:?}");
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
    }
}
