//! Lists the contestants of the bench `handlers` and their settings: this library, the grid of fixed
//! settings, and the rivals. Pure.

use super::cell::{Kind, Load};

/// One contestant of the bench `handlers`, with one setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Setting {
    /// This library with the default controller.
    Default,
    /// This library, with a controller that takes the whole backlog into each batch.
    Greedy,
    /// This library with a controller of constant limit, linger and number of batches in flight.
    Fixed(Fixed),
    /// A loop over tokio's `recv_many`, in which each batch needs a permit of a semaphore.
    RecvMany {
        limit: u32,
        in_flight: u32,
    },
    /// The rival crate batch-aint-one. Like the crates ultra-batch and amate, it needs the feature `peers`.
    BatchAintOne {
        /// The `min_size_hint` of the crate's policy `Balanced`: the batch size that the crate prefers over
        /// further batches at once. 0 stands for the policy `Immediate`.
        prefer: u32,
        limit: u32,
        in_flight: u32,
    },
    UltraBatch {
        delay_ms: u32,
        eager: u32,
    },
    Amate {
        limit: u32,
        workers: u32,
        window_us: u32,
    },
}

/// A fixed setting: the greatest number of items in a batch, the linger in microseconds, and the greatest
/// number of batches in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fixed {
    pub(super) limit: u32,
    pub(super) linger_us: u32,
    pub(super) in_flight: u32,
}

/// A system that takes part in the bench. The bench screens the settings of each system, and the best takes
/// part in the rounds; of the system [`System::Fixed`] the best three.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum System {
    Ours,
    Greedy,
    Fixed,
    RecvMany,
    BatchAintOne,
    UltraBatch,
    Amate,
}

impl System {
    /// The rival systems that `--peers` adds to the bench, in the order of the tables.
    pub(super) const RIVALS: [Self; 4] = [
        Self::RecvMany,
        Self::BatchAintOne,
        Self::UltraBatch,
        Self::Amate,
    ];

    /// Returns the system's name, by which tables and results name it.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Ours => crate::OURS,
            Self::Greedy => "greedy",
            Self::Fixed => "fixed",
            Self::RecvMany => "recv_many",
            Self::BatchAintOne => "batch-aint-one",
            Self::UltraBatch => "ultra-batch",
            Self::Amate => "amate",
        }
    }

    /// Returns the system's package in Cargo.lock, to find its version; `None` if the system is no package.
    pub(super) const fn package(self) -> Option<&'static str> {
        match self {
            Self::RecvMany => Some("tokio"),
            Self::BatchAintOne | Self::UltraBatch | Self::Amate => Some(self.name()),
            Self::Ours | Self::Greedy | Self::Fixed => None,
        }
    }

    /// Returns how many of the system's settings take part in the rounds, after the screening.
    pub(super) const fn chosen(self) -> usize {
        match self {
            Self::Fixed => 3,
            _ => 1,
        }
    }

    /// Returns the system's settings that the bench screens for this cell. The bench does not screen a single
    /// setting.
    pub(super) fn settings(self, kind: Kind, load: Load, quick: bool) -> Vec<Setting> {
        let in_flight = kind.in_flight();
        let most = in_flight.last().copied().unwrap_or(1);
        let mut settings = match self {
            Self::Ours => vec![Setting::Default],
            Self::Greedy => vec![Setting::Greedy],
            Self::Fixed => grid(load, in_flight, quick)
                .into_iter()
                .map(Setting::Fixed)
                .collect(),
            Self::RecvMany => product(&[16, 64, 1024], in_flight)
                .map(|(limit, in_flight)| Setting::RecvMany { limit, in_flight })
                .collect(),
            Self::BatchAintOne => {
                let of = |prefer, limit, in_flight| Setting::BatchAintOne {
                    prefer,
                    limit,
                    in_flight,
                };
                // The bench tries the crate's default limit of 100 items, too.
                let immediate = product(&[100, 1024], in_flight).map(|(limit, n)| of(0, limit, n));
                // If only one batch runs at once, the policy `Balanced` equals `Immediate`, so the bench does
                // not try it.
                let balanced = (most > 1).then(|| of(16, 1024, most));
                immediate.chain(balanced).collect()
            }
            Self::UltraBatch => [(10, 100), (1, 100), (1, 16), (1, 1024), (0, 100)]
                .map(|(delay_ms, eager)| Setting::UltraBatch { delay_ms, eager })
                .to_vec(),
            Self::Amate => {
                let of = |limit, workers, window_us| Setting::Amate {
                    limit,
                    workers,
                    window_us,
                };
                let idle = product(&[64, 1024], in_flight).map(|(limit, n)| of(limit, n, 0));
                idle.chain([of(64, most, 1000)]).collect()
            }
        };
        if quick && settings.len() > 2 {
            // A quick run keeps only the two settings that differ most, to save time.
            settings.drain(1..settings.len() - 1);
        }
        settings
    }
}

fn product<'a>(limits: &'a [u32], in_flight: &'a [u32]) -> impl Iterator<Item = (u32, u32)> + 'a {
    let with = move |&limit| in_flight.iter().map(move |&n| (limit, n));
    limits.iter().flat_map(with)
}

/// The limits of the grid of fixed settings, each four times the limit before. The measurement of a handler's
/// capacity has as many callers as the largest limit.
const LIMITS: [u32; 7] = [1, 4, 16, 64, 256, 1024, LIMIT_MAX];
pub(super) const LIMIT_MAX: u32 = 4096;
/// The lingers of the grid of fixed settings, in microseconds: none, the finest step of tokio's timers, and
/// the time of several batches.
const LINGERS_US: [u32; 3] = [0, 1000, 5000];

/// Returns the grid of fixed settings for a load. The grid leaves out limits above the number of callers, and
/// lingers with a limit of one item, because such settings equal other settings of the grid.
pub(super) fn grid(load: Load, in_flight: &[u32], quick: bool) -> Vec<Fixed> {
    let limits: Vec<u32> = match load {
        _ if quick => vec![16, 1024],
        Load::Callers(callers) => LIMITS
            .into_iter()
            .filter(|&limit| limit <= callers)
            .collect(),
        Load::Poisson(_) => LIMITS.to_vec(),
    };
    let mut grid = Vec::new();
    for &in_flight in in_flight {
        for &limit in &limits {
            let lingers = if limit == 1 || quick {
                1
            } else {
                LINGERS_US.len()
            };
            grid.extend(LINGERS_US[..lingers].iter().map(|&linger_us| Fixed {
                limit,
                linger_us,
                in_flight,
            }));
        }
    }
    grid
}

/// Returns the settings with which the bench measures a handler's capacity, the best throughput of them. They
/// have no linger, because in this measurement enough callers wait at any time to fill a batch.
pub(super) fn saturated(in_flight: &[u32], quick: bool) -> Vec<Fixed> {
    let all = grid(Load::Poisson(100), in_flight, quick);
    all.into_iter()
        .filter(|fixed| fixed.linger_us == 0 && fixed.limit >= 16)
        .collect()
}

impl Setting {
    pub(super) const fn system(self) -> System {
        match self {
            Self::Default => System::Ours,
            Self::Greedy => System::Greedy,
            Self::Fixed(_) => System::Fixed,
            Self::RecvMany { .. } => System::RecvMany,
            Self::BatchAintOne { .. } => System::BatchAintOne,
            Self::UltraBatch { .. } => System::UltraBatch,
            Self::Amate { .. } => System::Amate,
        }
    }
}

impl std::fmt::Display for Setting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match *self {
            Self::Default => f.write_str("default"),
            Self::Greedy => f.write_str("all that waits"),
            Self::Fixed(fixed) => {
                write!(f, "limit {}", fixed.limit)?;
                if fixed.linger_us > 0 {
                    write!(f, ", linger {} ms", f64::from(fixed.linger_us) / 1e3)?;
                }
                in_flight(f, fixed.in_flight)
            }
            Self::RecvMany {
                limit,
                in_flight: n,
            } => {
                write!(f, "limit {limit}")?;
                in_flight(f, n)
            }
            Self::BatchAintOne {
                prefer,
                limit,
                in_flight: n,
            } => {
                match prefer {
                    0 => f.write_str("Immediate")?,
                    size => write!(f, "Balanced({size})")?,
                }
                write!(f, ", limit {limit}")?;
                in_flight(f, n)
            }
            Self::UltraBatch { delay_ms, eager } => {
                write!(f, "delay {delay_ms} ms, eager at {eager}")
            }
            Self::Amate {
                limit,
                workers,
                window_us,
            } => {
                write!(f, "limit {limit}, workers {workers}")?;
                match window_us {
                    0 => Ok(()),
                    us => write!(f, ", window {} ms", f64::from(us) / 1e3),
                }
            }
        }
    }
}

fn in_flight(f: &mut std::fmt::Formatter<'_>, batches: u32) -> std::fmt::Result {
    match batches {
        1 => Ok(()),
        n => write!(f, ", {n} in flight"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_grid_has_every_limit_linger_and_number_in_flight_once() {
        let open = grid(Load::Poisson(60), &[1, 4], false);
        // A setting with a limit of 1 has no linger.
        assert_eq!(open.len(), 2 * (1 + 6 * 3));
        for (at, fixed) in open.iter().enumerate() {
            assert!(!open[..at].contains(fixed), "{fixed:?}");
        }
        let most = open.iter().map(|fixed| fixed.limit).max();
        assert_eq!(most, Some(LIMIT_MAX));
    }

    #[test]
    fn the_grid_of_a_closed_loop_ends_at_its_callers() {
        let limits = |callers| {
            let grid = grid(Load::Callers(callers), &[1], false);
            let mut limits: Vec<u32> = grid.iter().map(|fixed| fixed.limit).collect();
            limits.dedup();
            limits
        };
        assert_eq!(limits(1), [1]);
        assert_eq!(limits(16), [1, 4, 16]);
        assert_eq!(limits(256), [1, 4, 16, 64, 256]);
    }

    #[test]
    fn capacity_is_measured_without_linger() {
        let all = saturated(&[1, 2], false);
        assert_eq!(all.len(), 2 * 5);
        assert!(all.iter().all(|fixed| fixed.linger_us == 0));
    }

    #[test]
    fn every_setting_of_a_system_has_a_text_of_its_own() {
        let systems = [System::Ours, System::Greedy, System::Fixed];
        for system in systems.into_iter().chain(System::RIVALS) {
            for kind in [Kind::Http, Kind::Sqlite] {
                let settings = system.settings(kind, Load::Callers(64), false);
                assert!(settings.iter().all(|setting| setting.system() == system));
                let mut texts: Vec<_> = settings.iter().map(ToString::to_string).collect();
                texts.sort();
                texts.dedup();
                assert_eq!(texts.len(), settings.len(), "{texts:?}");
            }
        }
        let fixed = Setting::Fixed(Fixed {
            limit: 64,
            linger_us: 1000,
            in_flight: 4,
        });
        assert_eq!(fixed.to_string(), "limit 64, linger 1 ms, 4 in flight");
    }

    #[test]
    fn a_handler_of_one_state_is_given_one_batch_at_a_time() {
        for system in System::RIVALS {
            for setting in system.settings(Kind::Append, Load::Poisson(30), false) {
                let in_flight = match setting {
                    Setting::RecvMany { in_flight, .. }
                    | Setting::BatchAintOne { in_flight, .. } => in_flight,
                    Setting::Amate { workers, .. } => workers,
                    _ => 1,
                };
                assert_eq!(in_flight, 1, "{setting}");
            }
        }
    }
}
