//! Plays one cell of the bench `handlers`: short runs screen the settings, then the chosen settings and the
//! library's defaults run in interleaved rounds.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tidegate_cli::interrupt;
use tokio::runtime::Runtime;

use super::arrivals::Zipf;
use super::cell::{Cell, Load};
use super::load::{Arrivals, Plan, measure};
use super::outcome::{Outcome, Played, Row, Screened, choose};
use super::setting::{LIMIT_MAX, Setting, System, saturated};
use super::work::Work;
use crate::rounds::Failure;

/// The number of different keys that items have, so that large batches of upserts have duplicates.
const KEYS: u32 = 10_000;

/// The extent of a run of the bench: the duration of a measured window, the number of rounds, and whether the
/// run is quick and whether it includes the rivals.
#[derive(Clone, Copy, Debug)]
pub(super) struct Times {
    pub(super) window: Duration,
    pub(super) rounds: u32,
    pub(super) quick: bool,
    pub(super) peers: bool,
}

impl Times {
    /// Returns the plan of a run in the rounds. The warm-up takes half of the window, and at least 100 ms.
    fn full(self, arrivals: Arrivals, seed: u64) -> Plan {
        Plan {
            arrivals,
            warm: (self.window / 2).max(Duration::from_millis(100)),
            window: self.window,
            seed,
            overrun: Duration::from_secs(1),
        }
    }

    /// Returns the plan of a short run that screens a setting. The run measures for a quarter of the window,
    /// to save time.
    fn short(self, arrivals: Arrivals) -> Plan {
        Plan {
            arrivals,
            warm: (self.window / 8).max(Duration::from_millis(50)),
            window: (self.window / 4).max(Duration::from_millis(50)),
            // No round has this seed. So the runs that screen the settings have other arrivals than the
            // rounds.
            seed: u64::MAX,
            overrun: Duration::from_millis(300),
        }
    }

    fn systems(self) -> impl Iterator<Item = System> {
        let rivals = if self.peers { &System::RIVALS[..] } else { &[] };
        let own = [System::Ours, System::Greedy, System::Fixed];
        own.into_iter().chain(rivals.iter().copied())
    }

    /// Estimates the time that a cell takes, for the user. Before each run the handler starts and empties its
    /// store.
    pub(super) fn guess(self, cell: Cell) -> Duration {
        let start = Duration::from_millis(30);
        let of = |plan: Plan| plan.warm + plan.window + start;
        let mut time = Duration::ZERO;
        let mut chosen = 0;
        for system in self.systems() {
            let settings = system.settings(cell.kind, cell.load, self.quick).len();
            if settings > system.chosen() {
                time += of(self.short(Arrivals::Closed(1))) * settings as u32;
            }
            chosen += settings.min(system.chosen()) as u32;
        }
        time + of(self.full(Arrivals::Closed(1), 0)) * chosen * self.rounds
    }
}

/// The environment in which the bench plays its cells: the runtime, the times and the items' keys.
pub(super) struct Ground {
    pub(super) runtime: Runtime,
    pub(super) times: Times,
    keys: Arc<Zipf>,
}

impl Ground {
    pub(super) fn new(times: Times) -> anyhow::Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build()?;
        Ok(Self {
            runtime,
            times,
            keys: Arc::new(Zipf::new(KEYS)),
        })
    }

    /// Returns a handler's capacity in items a second, from which the bench derives the rates of open loops:
    /// its best throughput over the grid of settings while enough callers wait at any time. Returns `None`
    /// after an interrupt.
    ///
    /// # Errors
    ///
    /// The bench could measure no setting of the grid.
    pub(super) fn capacity(&self, cell: Cell, work: &Work) -> anyhow::Result<Option<f64>> {
        // This loop has as many callers as the largest limit of a batch, so that they can fill such a batch.
        let plan = self.times.full(Arrivals::Closed(LIMIT_MAX), u64::MAX);
        let mut best = Err("the grid is empty".to_owned());
        for fixed in saturated(cell.kind.in_flight(), self.times.quick) {
            let measured = self.run(work, Setting::Fixed(fixed), &plan);
            if interrupt::asked() {
                return Ok(None);
            }
            best = match (best, measured.map(|outcome| outcome.ops_per_s)) {
                (Ok(best), Ok(per_s)) => Ok(per_s.max(best)),
                (Ok(best), Err(_)) => Ok(best),
                (Err(_), measured) => measured,
            };
        }
        match best {
            Ok(per_s) if per_s > 0.0 => Ok(Some(per_s)),
            Ok(_) => anyhow::bail!("{}: no call was answered", cell.kind.name()),
            Err(failure) => anyhow::bail!("{}: {failure}", cell.kind.name()),
        }
    }

    /// Plays a cell at `per_s` arrivals a second. Closed loops have no rate, so the bench ignores `per_s`
    /// there. Returns `None` after an interrupt.
    pub(super) fn play(&self, cell: Cell, work: &Work, per_s: Option<f64>) -> Option<Played> {
        let start = Instant::now();
        let arrivals = match (cell.load, per_s) {
            (Load::Callers(callers), _) => Arrivals::Closed(callers),
            (Load::Poisson(_), per_s) => Arrivals::Open(per_s.unwrap_or(1.0)),
        };
        let mut screened = Vec::new();
        let mut contestants: Vec<(Setting, Row)> = Vec::new();
        for system in self.times.systems() {
            let settings = system.settings(cell.kind, cell.load, self.times.quick);
            let chosen = if settings.len() > system.chosen() {
                self.screen(cell, work, arrivals, system, &settings, &mut screened)?
            } else {
                settings
            };
            contestants.extend(chosen.into_iter().map(|setting| (setting, row(setting))));
        }
        for round in 0..self.times.rounds as usize {
            // The order rotates from round to round, so that no contestant always runs after the same other
            // contestant.
            for turn in 0..contestants.len() {
                let at = (turn + round) % contestants.len();
                let (setting, row) = &mut contestants[at];
                if row.note.is_some() {
                    continue;
                }
                // Each round has one seed, so that all contestants get the same arrivals.
                let plan = self.times.full(arrivals, round as u64 + 1);
                match self.run(work, *setting, &plan) {
                    _ if interrupt::asked() => return None,
                    Ok(outcome) => row.rounds.push(outcome),
                    Err(failure) => row.note = Some(failure),
                }
            }
        }
        Some(Played {
            cell: cell.name(),
            offered_per_s: per_s.filter(|_| matches!(arrivals, Arrivals::Open(_))),
            rows: contestants.into_iter().map(|(_, row)| row).collect(),
            screened,
            wall_s: start.elapsed().as_secs_f64(),
        })
    }

    /// Chooses, by short runs, the settings of a system that take part in the rounds. Returns `None` after an
    /// interrupt.
    fn screen(
        &self,
        cell: Cell,
        work: &Work,
        arrivals: Arrivals,
        system: System,
        settings: &[Setting],
        screened: &mut Vec<Screened>,
    ) -> Option<Vec<Setting>> {
        eprintln!(
            "tidegate-bench: {}: screening {} settings of {}",
            cell.name(),
            settings.len(),
            system.name()
        );
        let plan = self.times.short(arrivals);
        let mut seen: Vec<(Setting, Result<Outcome, Failure>)> = Vec::new();
        for &setting in settings {
            seen.push((setting, self.run(work, setting, &plan)));
            if interrupt::asked() {
                return None;
            }
        }
        let is_open = matches!(arrivals, Arrivals::Open(_));
        let chosen = choose(&seen, is_open, system.chosen());
        screened.extend(seen.into_iter().map(|(setting, outcome)| Screened {
            system: system.name().into(),
            setting: setting.to_string(),
            outcome,
        }));
        Some(chosen)
    }

    fn run(&self, work: &Work, setting: Setting, plan: &Plan) -> Result<Outcome, Failure> {
        measure(&self.runtime, work, &self.keys, setting, plan)
    }
}

fn row(setting: Setting) -> Row {
    let system = setting.system();
    Row {
        system: system.name().into(),
        setting: setting.to_string(),
        version: system.package().and_then(locked),
        ..Row::default()
    }
}

/// Returns the version of a package in the lock file with which this program was built, for the table.
fn locked(package: &str) -> Option<String> {
    let lock = include_str!("../../../../Cargo.lock");
    let name = format!("name = \"{package}\"");
    let mut lines = lock.lines().skip_while(|line| *line != name);
    let version = lines.nth(1)?.strip_prefix("version = \"")?;
    Some(version.trim_end_matches('"').to_owned())
}

#[cfg(test)]
mod tests {
    use super::super::cell::Kind;
    use super::*;

    #[test]
    fn versions_are_those_locked() {
        for system in System::RIVALS {
            let package = system.package().unwrap();
            let version = locked(package).unwrap();
            assert!(version.split('.').count() == 3, "{package}: {version}");
        }
        assert_eq!(locked("no-such-package"), None);
    }

    #[test]
    fn rivals_and_rounds_make_a_cell_longer() {
        let cell = Cell {
            kind: Kind::Append,
            load: Load::Callers(16),
        };
        let times = |rounds, peers| Times {
            window: Duration::from_secs(2),
            rounds,
            quick: false,
            peers,
        };
        let alone = times(7, false).guess(cell);
        // Seven rounds of five contestants (the default, greedy and three settings of the grid) take three
        // seconds each.
        assert!(alone > Duration::from_secs(7 * 5 * 3) && alone < Duration::from_secs(120));
        assert!(times(7, true).guess(cell) > alone + Duration::from_secs(7 * 4 * 3));
        assert!(times(1, false).guess(cell) < alone / 4);
    }

    /// Tests that every contestant of this build handles each item once, in closed and in open loops.
    #[test]
    fn contestants_handle_each_item_once() {
        let ground = Ground::new(Times {
            window: Duration::from_millis(40),
            rounds: 1,
            quick: true,
            peers: cfg!(feature = "peers"),
        })
        .unwrap();
        let directory = tempfile::tempdir().unwrap();
        let work = Work::start(Kind::Memory, &ground.runtime, directory.path()).unwrap();
        for load in [Load::Callers(16), Load::Poisson(10)] {
            let cell = Cell {
                kind: Kind::Memory,
                load,
            };
            let per_s = matches!(load, Load::Poisson(_)).then_some(2000.0);
            let played = ground.play(cell, &work, per_s).unwrap();
            assert_eq!(played.is_open(), per_s.is_some());
            for row in &played.rows {
                assert_eq!(
                    (row.note.as_deref(), row.rounds.len()),
                    (None, 1),
                    "{row:?}"
                );
                assert!(row.rounds[0].ops_per_s > 0.0, "{row:?}");
            }
            let systems = played.rows.iter().map(|row| &row.system[..]);
            assert!(
                systems.take(3).eq(["tidegate", "greedy", "fixed"]),
                "{played:?}"
            );
        }
    }
}
