//! Tests a node's identity, which its data directory holds, and the check that the node's log exists.

use std::ops::Range;
use std::sync::{Arc, Mutex};

use tidegate_cluster::groups::{GroupOf, groups};
use tidegate_cluster::members::Members;
use tidegate_log::{SimDisk, StorageFile};
use tidegate_raft::replica::Term;
use tidegate_raft::store::{OpenError, Opening, Options};

use super::*;

#[test]
fn an_identity_is_drawn_once_and_stays() {
    let directory = tempfile::tempdir().unwrap();
    let disk = storage(directory.path()).unwrap();
    check_alone(&disk).unwrap();
    let mut file = identify(&disk, "tide", "n1", 7).unwrap();
    assert_eq!((file.me.id, &file.members), (7, &None));
    assert_eq!(identify(&disk, "tide", "n1", 8).unwrap(), file);
    file.members = Members::new(vec![file.me.clone()]);
    save(&disk, &file).unwrap();
    assert_eq!(identify(&disk, "tide", "n1", 9).unwrap(), file);
    let other = identify(&disk, "tide", "n2", 9).unwrap_err().to_string();
    assert!(other.contains("belongs to the node `n1`"), "{other}");
    let used = tempfile::tempdir().unwrap();
    let used = storage(used.path()).unwrap();
    used.create(VERSION_FILE).unwrap();
    let alone = identify(&used, "tide", "n1", 7).unwrap_err().to_string();
    assert!(alone.contains("ran alone"), "{alone}");
    let alone = check_alone(&disk).unwrap_err().to_string();
    assert!(alone.contains("cluster `tide`"), "{alone}");
}

/// Records the images that a crash can leave of a node's two directories, after each step and in the middle
/// of it.
#[derive(Clone, Default)]
struct Film {
    state: SimDisk,
    log: SimDisk,
    images: Arc<Mutex<Vec<(SimDisk, SimDisk)>>>,
    /// True if the film takes images after each step of the node.
    runs: bool,
}

impl Film {
    fn of((state, log): &(SimDisk, SimDisk)) -> Self {
        Self {
            state: state.clone(),
            log: log.clone(),
            ..Self::default()
        }
    }

    /// Creates a film that takes an image after each step of a node that starts from `image`.
    fn running(image: &(SimDisk, SimDisk)) -> Self {
        Self {
            runs: true,
            ..Self::of(image)
        }
    }

    /// Takes the images that a crash at this moment can leave of the data that is not durable: all of it,
    /// none of it, or only the names of files.
    fn take(&self) {
        if !self.runs {
            return;
        }
        let mut images = self.images.lock().unwrap();
        for (names, sectors) in [(true, true), (false, false), (true, false)] {
            let crash = |disk: &SimDisk| disk.crash(names, |_, _| sectors);
            images.push((crash(&self.state), crash(&self.log)));
        }
    }

    fn images(&self) -> Vec<(SimDisk, SimDisk)> {
        std::mem::take(&mut self.images.lock().unwrap())
    }

    fn storages(&self) -> (Arc<dyn Storage>, Arc<dyn Storage>) {
        let filmed = |disk: &SimDisk| Filmed {
            disk: disk.clone(),
            film: self.clone(),
        };
        (Arc::new(filmed(&self.state)), Arc::new(filmed(&self.log)))
    }
}

/// One of the node's two directories. Each change that the node makes there adds images to the film.
struct Filmed {
    disk: SimDisk,
    film: Film,
}

struct FilmedFile {
    file: Arc<dyn StorageFile>,
    film: Film,
}

impl Filmed {
    fn then<T>(&self, outcome: io::Result<T>) -> io::Result<T> {
        self.film.take();
        outcome
    }

    fn file(&self, file: Arc<dyn StorageFile>) -> Arc<dyn StorageFile> {
        Arc::new(FilmedFile {
            file,
            film: self.film.clone(),
        })
    }
}

impl Storage for Filmed {
    fn lock(&self) -> io::Result<bool> {
        self.disk.lock()
    }

    fn list(&self) -> io::Result<Vec<String>> {
        self.disk.list()
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn StorageFile>> {
        self.disk.open(name).map(|file| self.file(file))
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn StorageFile>> {
        self.then(self.disk.create(name))
            .map(|file| self.file(file))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.then(self.disk.rename(from, to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.then(self.disk.remove(name))
    }

    fn sync_names(&self) -> io::Result<()> {
        self.then(self.disk.sync_names())
    }
}

impl StorageFile for FilmedFile {
    fn write_at(&self, parts: &[IoSlice<'_>], at: u64) -> io::Result<()> {
        let written = self.file.write_at(parts, at);
        self.film.take();
        written
    }

    fn read_at(&self, into: &mut [u8], at: u64) -> io::Result<usize> {
        self.file.read_at(into, at)
    }

    fn sync(&self) -> io::Result<()> {
        let synced = self.file.sync();
        self.film.take();
        synced
    }

    fn forget_cached(&self) -> io::Result<()> {
        self.file.forget_cached()
    }

    fn reserve(&self, bytes: u64) -> io::Result<()> {
        let reserved = self.file.reserve(bytes);
        self.film.take();
        reserved
    }

    fn reserve_front(&self, bytes: u64, front: u64) -> io::Result<()> {
        let reserved = self.file.reserve_front(bytes, front);
        self.film.take();
        reserved
    }

    fn give_back(&self, bytes: Range<u64>) -> io::Result<()> {
        let given = self.file.give_back(bytes);
        self.film.take();
        given
    }

    fn bytes(&self) -> io::Result<u64> {
        self.file.bytes()
    }
}

/// Returns the groups of which the first of three nodes is a member.
fn three_groups() -> Vec<GroupOf> {
    let mut all = groups(vec![7, 8, 9], 1);
    all.retain(|g| g.members.contains(&7));
    all
}

/// Starts a node as the event loop does: its identity, the members, its log, and its first promise, a vote
/// for itself in a group without other members. Returns the result of the last step.
fn start(film: &Film) -> Result<Term, OpenError> {
    let (state, log) = film.storages();
    let mut file = identify(&*state, "tide", "n1", 7).unwrap();
    assert_eq!(file.me.id, 7);
    if file.members.is_none() {
        let named = |(name, id): (&str, u64)| Member {
            name: name.into(),
            id,
        };
        let all = [("n1", 7), ("n2", 8), ("n3", 9)].map(named);
        file.members = Members::new(all.into());
        save(&*state, &file).unwrap();
    }
    let options = Options {
        id: 7,
        groups: three_groups(),
        begun: file.log_begun,
        segment_bytes: 16 << 10,
        seed: Some(7),
        ..Options::default()
    };
    let opening = Opening::on(Arc::clone(&state), log, options, Arc::new(|| ()))?;
    begin_log(&*state, &mut file).unwrap();
    assert!(load(&*state).unwrap().unwrap().log_begun);
    let store = opening.replay(|_, _, _| ())?;
    let last = store.slots().next_back().unwrap();
    let term = store.group(last).hard_state().term;
    store.close().unwrap();
    Ok(term)
}

/// Returns whether the log of a crashed disk has promised anything to other nodes.
fn has_promised((state, log): &(SimDisk, SimDisk)) -> bool {
    let (state, log) = (Arc::new(state.copy()), Arc::new(log.copy()));
    let options = Options {
        id: 7,
        groups: three_groups(),
        ..Options::default()
    };
    let opening = Opening::on(state, log, options, Arc::new(|| ())).unwrap();
    opening.recovery().end.get() > 0
}

#[test]
fn a_first_start_may_end_between_any_two_steps_and_a_log_that_was_begun_must_be_there() {
    let first = Film::running(&Default::default());
    assert_eq!(start(&first).unwrap(), Term::new(1));
    let (mut promised, mut begun) = (0, 0);
    let images = first.images();
    for (n, image) in images.iter().enumerate() {
        let started = start(&Film::of(&(image.0.copy(), image.1.copy())));
        assert!(started.is_ok(), "image {n}: {started:?}");
        let marked = |state: &SimDisk| {
            let file = load(state).unwrap();
            file.is_some_and(|file| file.log_begun)
        };
        let (has_promised, is_marked) = (has_promised(image), marked(&image.0));
        assert!(is_marked || !has_promised, "a promise without the mark");
        promised += usize::from(has_promised);
        begun += usize::from(is_marked);
        // The test also starts the node from an image that has lost everything but the file `members`.
        let members = image.0.content(FILE);
        if members.is_empty() {
            continue;
        }
        let left = (SimDisk::new(), SimDisk::new());
        left.0.put(FILE, members);
        match (start(&Film::of(&left)), is_marked) {
            (Err(error), true) => assert!(error.is_damage(), "{error}"),
            (outcome, marked) => assert!(outcome.is_ok() && !marked, "{outcome:?}"),
        }
    }
    assert!(promised > 0 && promised < begun && begun < images.len());
    // The test crashes the second start at any step, too, and the third start goes on from there.
    println!("{} images, {begun} with a log that was begun", images.len());
    for image in images.iter().step_by(30) {
        let second = Film::running(image);
        start(&second).unwrap();
        for image in second.images() {
            start(&Film::of(&image)).unwrap();
        }
    }
}

#[test]
fn a_log_of_before_it_was_marked_is_marked_by_its_next_start() {
    let film = Film::default();
    start(&film).unwrap();
    let mut file = load(&film.state).unwrap().unwrap();
    file.log_begun = false;
    save(&film.state, &file).unwrap();
    let again = Film::of(&(film.state.copy(), film.log.copy()));
    start(&again).unwrap();
    assert!(load(&again.state).unwrap().unwrap().log_begun);
    // The start must write a lost version file again as long as the log exists.
    again.state.remove(VERSION_FILE).unwrap();
    start(&Film::of(&(again.state.copy(), again.log.copy()))).unwrap();
    let empty = Film::of(&(again.state.copy(), SimDisk::new()));
    assert!(start(&empty).is_err_and(|error| error.is_damage()));
}
