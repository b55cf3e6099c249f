//! The arena's cache of the figures that do not depend on the default controller, in a file of JSON lines.
//! After a change of that controller the bench plays only the controller's own runs again, and an interrupted
//! run resumes from its finished cells.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use anyhow::Context as _;
use tidegate::sim::arena::{Curve, Demand, Effort, Noise, Server, Setting, Span, World};

use super::contest::Reference;

/// The figures of finished cells that the arena keeps in its cache file, so that a later run need not measure
/// them again.
pub(super) struct Cache {
    path: PathBuf,
    state: Mutex<State>,
}

struct State {
    file: File,
    kept: HashMap<String, Reference>,
}

impl Cache {
    /// Opens the cache file and reads the figures in it. Skips lines that an interrupted run left incomplete.
    ///
    /// # Errors
    ///
    /// The file cannot be read or written.
    pub(super) fn open(path: &Path) -> anyhow::Result<Self> {
        let context = || format!("the cache in {}", path.display());
        if let Some(directory) = path.parent() {
            std::fs::create_dir_all(directory).with_context(context)?;
        }
        let mut options = OpenOptions::new();
        let file = options.read(true).append(true).create(true).open(path);
        let file = file.with_context(context)?;
        let mut kept = HashMap::new();
        for line in BufReader::new(&file).lines() {
            if let Ok(reference) = serde_json::from_str::<Reference>(&line.with_context(context)?) {
                kept.insert(reference.key.clone(), reference);
            }
        }
        Ok(Self {
            path: path.into(),
            state: Mutex::new(State { file, kept }),
        })
    }

    pub(super) fn get(&self, key: &str) -> Option<Reference> {
        self.state().kept.get(key).cloned()
    }

    /// Appends the figures of a cell to the cache file, so that a later run need not measure them again.
    ///
    /// # Errors
    ///
    /// The file cannot be written.
    pub(super) fn keep(&self, reference: Reference) -> anyhow::Result<()> {
        let line = serde_json::to_string(&reference)?;
        let mut state = self.state();
        // The line feed comes first, so that this line does not join an incomplete line of an interrupted
        // run.
        let written = write!(state.file, "\n{line}\n");
        written.with_context(|| self.path.display().to_string())?;
        state.kept.insert(reference.key.clone(), reference);
        Ok(())
    }

    /// Locks the cache's state. Each write appends a whole line, so the state stays usable after a panic of
    /// another thread, and this lock ignores the poison.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the key of a cell in the cache: a hash of the simulated workload, the effort, the number of rounds
/// and the simulator's behaviour. If one of them changes, the key changes, and the bench measures the cell
/// again.
pub(super) fn key(world: &World, effort: Effort, rounds: usize) -> String {
    let text = format!("{world:?} {effort:?} {rounds} {}", fingerprint());
    format!("{:016x}", fnv(&text))
}

/// Returns the figures of a few short runs. They are a part of each key, so that a change of the simulator
/// invalidates the cached figures. If a change of the simulator leaves these figures as they are, raise the
/// number with which this function's result begins.
fn fingerprint() -> &'static str {
    static RUNS: OnceLock<String> = OnceLock::new();
    RUNS.get_or_init(|| {
        let line = Curve::Linear { a: 1.0, b: 0.01 };
        let closed = Demand::Closed {
            callers: 16,
            think: 0.1,
        };
        let worlds = [
            World::new("", line.clone(), Demand::Open(0.9)).noise(Noise::LogNormal(0.5)),
            World::new("", line.clone(), closed).on(Server::Slots(3), 8),
            World::new("", line, Demand::Full(4096)).on(Server::Contended(0.1), 8),
        ];
        let span = Span {
            warm_ms: 50.0,
            batches: 200,
            items: 20_000,
        };
        let setting = Setting {
            limit: 512,
            linger: 0.5,
            in_flight: 2,
        };
        let runs = worlds.map(|world| setting.run(&world, 5, 10.0, span));
        format!("1 {runs:?}")
    })
}

/// Returns the hash of the text by Fowler, Noll and Vo, which is equal on every machine, so that keys stay
/// valid.
fn fnv(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reference(key: &str) -> Reference {
        Reference {
            key: key.into(),
            seed: 1,
            settings: ["1", "2", "3"].map(Into::into),
            marks: vec![[0.1, 0.2, 0.3, 1.0 / 3.0]],
            learning: vec![[1.5, 2.5]],
            rivals: vec![(
                super::super::contest::Contestant::Aimd,
                vec![[1.0, 2.0, 3.0]],
            )],
        }
    }

    #[test]
    fn figures_are_kept_and_half_a_line_harms_no_other() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("deep/arena.jsonl");
        let cache = Cache::open(&path).unwrap();
        assert_eq!(cache.get("a"), None);
        cache.keep(reference("a")).unwrap();
        drop(cache);
        let mut file = OpenOptions::new().append(true).open(&path).unwrap();
        write!(file, "{{\"key\":\"b").unwrap();
        let cache = Cache::open(&path).unwrap();
        cache.keep(reference("c")).unwrap();
        let cache = Cache::open(&path).unwrap();
        assert_eq!(cache.get("a"), Some(reference("a")));
        assert_eq!(cache.get("b"), None);
        assert_eq!(cache.get("c"), Some(reference("c")));
    }

    #[test]
    fn another_world_or_effort_has_another_key() {
        let effort = Effort { items_max: 1000 };
        let keys = [
            key(&World::random(1), effort, 3),
            key(&World::random(2), effort, 3),
            key(&World::random(1), Effort { items_max: 1001 }, 3),
            key(&World::random(1), effort, 4),
        ];
        assert_eq!(keys[0], key(&World::random(1), effort, 3));
        for (i, a) in keys.iter().enumerate() {
            assert!(keys[i + 1..].iter().all(|b| a != b), "{keys:?}");
        }
    }
}
