//! Runs a pool of threads for work that keeps a processor busy and would keep the event loop from its
//! clients: checks of passwords, which are slow on purpose, steps of TLS handshakes, and pages of the
//! subjects of large streams. A step of a handshake takes from 0.1 ms with a P-256 key to 6 ms with RSA-4096,
//! and a page of a million subjects 0.2 s.
//!
//! The threads run at a lower priority than the event loop. The loop chooses a job only at the moment at
//! which a thread is free, because before that connections may end, and newer ones may arrive. An address has
//! at most [`OF_SOURCE_MAX`] jobs at the same moment, so that one address alone cannot occupy all threads.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use rustls::{Connection, Error};
use tidegate_cluster::slots::GroupSlot;

use super::handle::Handle;
use super::handshakes::Waiting;
use crate::cures::cures;
use crate::fair::Source;
use crate::party::ClientKey;
use crate::sessions::Verify;
use crate::streams::subject_pages::PageJob;

/// The greatest number of threads of the pool, however many processors the machine has, because handshakes
/// and passwords must not take all of them.
const THREADS_MAX: usize = 4;
/// The greatest number of jobs of one address that run at the same time, so that no address occupies all
/// threads.
pub(super) const OF_SOURCE_MAX: usize = 2;
/// The nice value of the pool's threads: the lowest priority, so that the kernel prefers the event loop.
const NICE: i32 = 19;

/// A job that the loop gives to a thread of the pool, because the job would keep the loop from its clients.
#[derive(Debug)]
pub(super) enum Job {
    /// The thread compares a client's password with a bcrypt hash, which is slow on purpose.
    Password(Verify),
    /// The thread lets TLS process the handshake bytes that the loop has read, which may cost a private-key
    /// operation.
    Handshake(Step),
    /// The thread encodes a page of a stream's subjects for the group in this slot.
    Page(GroupSlot, Box<PageJob>),
}

/// A step of a connection's TLS handshake, which a thread carries out.
#[derive(Debug)]
pub(super) struct Step {
    /// The connection to which the handshake belongs, and to which the loop returns the session.
    pub(super) of: Waiting,
    /// The number of the step, by which the loop recognises the connection: another connection may have its
    /// key by the time at which the step is over.
    pub(super) number: u64,
    /// The TLS session of the connection, which the thread works on.
    pub(super) tls: Box<Connection>,
}

/// The outcome of a job, which a thread of the pool sends back to the loop.
#[derive(Debug)]
pub(super) enum Outcome {
    /// A thread has checked a client's password, so the node admits or refuses the client.
    Password {
        /// The connection that sent the password, which the node admits or refuses.
        key: ClientKey,
        /// The connection's number, by which the node recognises it.
        cid: u64,
        /// True if the password matches the hash, so that the node admits the client.
        good: bool,
    },
    /// A thread has done a step of a TLS handshake, so the loop returns the session to its connection. The
    /// error says why the handshake failed.
    Handshake(Step, Option<Error>),
    /// A thread has encoded a page of a stream's subjects, so the group sends it to the client.
    Page {
        /// The slot of the stream's group, which sends the answer.
        at: GroupSlot,
        /// The reply subject of the client that gets the page.
        reply: Box<[u8]>,
        /// The whole answer that the client gets; `None` if the encoding failed.
        body: Option<Vec<u8>>,
    },
}

/// The pool as the loop sees it: the threads, the channels to them and back, and the running jobs.
#[derive(Debug)]
pub(super) struct Pool {
    /// The channel on which the loop sends jobs to the threads; `None` once the threads must end.
    sender: Option<SyncSender<Job>>,
    outcomes: Receiver<Outcome>,
    threads: Vec<JoinHandle<()>>,
    /// The most jobs that the pool has at the same moment: one for each thread.
    size: usize,
    /// The outcomes of jobs on a simulated machine, which plays the pool's threads.
    #[cfg(feature = "sim")]
    simulated: Option<crate::event_loop::simulation::Threads>,
    /// The jobs that have not ended, each with the address of its connection. By the addresses the loop
    /// bounds the jobs of each address. A page has no connection.
    running: Vec<(Running, Option<Source>)>,
    /// The number of the latest handshake step. The next step gets the next number, so that each step has its
    /// own.
    steps: u64,
    /// True while the pool takes no job. Only tests set it, to let jobs wait.
    #[cfg(test)]
    pub(super) paused: bool,
    /// True while the pool returns no outcome. Only tests set it, to let connections end meanwhile.
    #[cfg(test)]
    pub(super) held: bool,
}

/// The key by which the pool finds a job that has not ended: a connection's number for the check of a
/// password, or the step's number for a handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Running {
    Password(u64),
    Handshake(u64),
    /// A page of subjects; the pool encodes at most one at the same moment, so that threads are left for
    /// clients.
    Page,
}

impl Pool {
    /// Starts one thread for each processor, at least two and at most [`THREADS_MAX`]. The threads wake the
    /// event loop through `handle`.
    pub(super) fn start(handle: &Handle) -> io::Result<Self> {
        #[cfg(feature = "sim")]
        if crate::simulated::is_on() {
            return Ok(Self::simulated());
        }
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        // A malformed hash in the configuration counts as a wrong password, so it admits no client.
        let threads = processors.clamp(2, THREADS_MAX);
        Self::start_with(handle, threads, |password, hash| {
            bcrypt::verify(password, hash).unwrap_or(false)
        })
    }

    fn start_with(
        handle: &Handle,
        threads: usize,
        check: impl Fn(&str, &str) -> bool + Clone + Send + 'static,
    ) -> io::Result<Self> {
        // The channel of jobs has room for one job of each thread, and each thread has at most one job, so
        // the event loop never waits to send a job.
        let (sender, jobs) = sync_channel::<Job>(threads);
        let (answer, outcomes) = sync_channel(threads);
        let jobs = Arc::new(Mutex::new(jobs));
        let start = |_| {
            let (jobs, answer) = (Arc::clone(&jobs), answer.clone());
            let (handle, check) = (handle.clone(), check.clone());
            let run = move || {
                // If the thread cannot lower its priority, the kernel shares the processors evenly between
                // the pool's threads and the event loop, which is acceptable.
                let _ = rustix::process::nice(NICE);
                work(&jobs, &answer, &handle, check);
            };
            std::thread::Builder::new().name("pool".into()).spawn(run)
        };
        Ok(Self {
            sender: Some(sender),
            outcomes,
            threads: (0..threads).map(start).collect::<io::Result<_>>()?,
            size: threads,
            #[cfg(feature = "sim")]
            simulated: None,
            running: Vec::new(),
            steps: 0,
            #[cfg(test)]
            paused: false,
            #[cfg(test)]
            held: false,
        })
    }

    /// Creates the pool of a simulated machine, which has no threads, and as many jobs as a pool with
    /// threads.
    #[cfg(feature = "sim")]
    fn simulated() -> Self {
        let (_, outcomes) = sync_channel(0);
        Self {
            sender: None,
            outcomes,
            threads: Vec::new(),
            size: THREADS_MAX,
            simulated: Some(crate::event_loop::simulation::Threads::default()),
            running: Vec::new(),
            steps: 0,
            #[cfg(test)]
            paused: false,
            #[cfg(test)]
            held: false,
        }
    }

    /// Returns whether a thread of the pool is free for a job.
    pub(super) fn has_room(&self) -> bool {
        #[cfg(test)]
        if self.paused {
            return false;
        }
        self.running.len() < self.size || !cures().pool
    }

    /// Returns whether the pool has no job, so that a draining server may end.
    pub(super) fn is_idle(&self) -> bool {
        self.running.is_empty()
    }

    /// Returns whether this address may have one more job, so that no address occupies all threads.
    pub(super) fn may_run(&self, source: Source) -> bool {
        let of = self.running.iter().filter(|(_, of)| *of == Some(source));
        of.count() < OF_SOURCE_MAX || !cures().pool
    }

    /// Returns whether a thread may check a password. If the pool has several threads, it leaves one for
    /// handshakes, because with a costly hash a check takes a second or more, and nodes may wait for each
    /// other's handshakes.
    pub(super) fn may_check(&self) -> bool {
        let is_check =
            |(running, _): &&(Running, Option<Source>)| matches!(running, Running::Password(_));
        let checks = self.running.iter().filter(is_check).count();
        checks < self.size.saturating_sub(1).max(1) || !cures().pool
    }

    /// Counts a step of a handshake, and returns the number by which the loop recognises the step's outcome.
    pub(super) fn next_step(&mut self) -> u64 {
        self.steps += 1;
        self.steps
    }

    /// Returns the number of handshake steps so far, for tests.
    #[cfg(test)]
    pub(super) const fn steps(&self) -> u64 {
        self.steps
    }

    /// Returns whether a thread is free to encode a page of subjects and no other thread encodes one, so that
    /// threads are left for clients.
    pub(super) fn may_encode(&self) -> bool {
        let is_page = |(running, _): &(Running, Option<Source>)| *running == Running::Page;
        self.has_room() && !self.running.iter().any(is_page)
    }

    /// Hands a job to a free thread; `source` is the address of the job's connection, if it has one, so that
    /// the pool counts the jobs of each address.
    pub(super) fn send(&mut self, source: Option<Source>, job: Job) {
        let key = match &job {
            Job::Password(verify) => Running::Password(verify.cid),
            Job::Handshake(step) => Running::Handshake(step.number),
            Job::Page(..) => Running::Page,
        };
        #[cfg(feature = "sim")]
        if let Some(threads) = &mut self.simulated {
            threads.run(job);
            return self.running.push((key, source));
        }
        // If the pool has no threads left, it loses the job. That leaves nothing open, because the client's
        // timeout closes the connection.
        if self
            .sender
            .as_ref()
            .is_some_and(|s| s.try_send(job).is_ok())
        {
            self.running.push((key, source));
        }
    }

    /// Takes the outcome of a job that has ended, for the loop; `None` if no job has ended.
    pub(super) fn poll(&mut self) -> Option<Outcome> {
        #[cfg(test)]
        if self.held {
            return None;
        }
        #[cfg(feature = "sim")]
        let simulated = self.simulated.as_mut().and_then(|t| t.poll());
        #[cfg(not(feature = "sim"))]
        let simulated = None;
        let outcome = simulated.or_else(|| self.outcomes.try_recv().ok())?;
        let key = match &outcome {
            Outcome::Password { cid, .. } => Running::Password(*cid),
            Outcome::Handshake(step, _) => Running::Handshake(step.number),
            Outcome::Page { .. } => Running::Page,
        };
        self.running.retain(|(running, _)| *running != key);
        Some(outcome)
    }
}

/// Does jobs on a thread of the pool until the pool's owner drops the channel of jobs, which ends the thread.
fn work(
    jobs: &Mutex<Receiver<Job>>,
    answer: &SyncSender<Outcome>,
    handle: &Handle,
    check: impl Fn(&str, &str) -> bool,
) {
    loop {
        // The thread can use the lock even if another thread panicked while it waited, because that thread
        // has taken no job.
        let next = jobs.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(job) = next else { return };
        let outcome = done(job, &check);
        // The thread ignores an error, because the sending fails only if the event loop has ended.
        let _ = answer.send(outcome);
        handle.wake();
    }
}

/// Does a job on the calling thread. A panic in the job counts as a failure of the job: the pool keeps the
/// thread, and the loop learns the outcome, so that the job's place in the pool is free again.
pub(super) fn done(job: Job, check: &impl Fn(&str, &str) -> bool) -> Outcome {
    match job {
        Job::Password(verify) => {
            let good = caught(|| check(&verify.password, &verify.hash));
            Outcome::Password {
                key: verify.key,
                cid: verify.cid,
                good: good.unwrap_or(false),
            }
        }
        Job::Handshake(mut step) => {
            let failed = caught(|| step.tls.process_new_packets().err());
            let panicked = || Some(Error::General("the step of the handshake panicked".into()));
            let failed = failed.unwrap_or_else(panicked);
            Outcome::Handshake(step, failed)
        }
        Job::Page(at, job) => {
            let PageJob { reply, page } = *job;
            let body = caught(|| page.encode());
            Outcome::Page { at, reply, body }
        }
    }
}

/// Runs a part of a job; returns `None` after a panic, so that the thread goes on.
fn caught<T>(part: impl FnOnce() -> T) -> Option<T> {
    // After a panic the loop uses none of the values that the part may have left half changed, so a panic
    // does no harm: it closes the connection of the handshake, and the other values are gone.
    let outcome = catch_unwind(AssertUnwindSafe(part)).ok();
    if outcome.is_none() {
        tracing::error!(
            "a helper thread panicked during a password check, a TLS handshake or a page of subjects, because of a bug: the server refuses this job, and goes on"
        );
    }
    outcome
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.sender = None;
        for thread in self.threads.drain(..) {
            // A panic in a job ends no thread. If a thread panicked elsewhere, `join` returns an error, which
            // needs no report: the panic has already printed its message.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use tidegate::Time;
    use tidegate::controller::Load;

    use super::*;
    use crate::config::Settings;
    use crate::sessions::Node;
    use tidegate_nats::connect::Info;
    use tidegate_nats::session::CloseReason;
    use tidegate_nats::settings::{Account, Secret, SessionSettings, User};

    const NOW: Time = Time::from_nanos(1);

    fn node() -> Node {
        let user = User {
            name: "u".into(),
            secret: Secret::new("$2a$04$"),
            permissions: None,
            account: Account::Global,
        };
        let settings = Settings {
            sessions: SessionSettings {
                users: vec![Arc::new(user)],
                ..SessionSettings::default()
            },
            ..Settings::default()
        };
        Node::new(settings, Info::default(), 1)
    }

    fn log_in(node: &mut Node, host: u8, password: &str) -> ClientKey {
        let address = ([10, 0, 0, host], 1).into();
        let key = node.handle_accepted(NOW, address, false, false);
        let connect = format!("CONNECT {{\"user\":\"u\",\"pass\":\"{password}\"}}\r\n");
        let any = Load::new(u64::MAX, u64::MAX);
        node.handle_received(NOW, key, connect.as_bytes(), any);
        key
    }

    /// Lets the node finish closing connections: takes the last bytes for their clients, as a driver would
    /// write them.
    fn write(node: &mut Node) {
        while let Some(key) = node.poll_dirty() {
            let len = node.outbox(key).len();
            node.handle_written(NOW, key, len);
        }
        while node.poll_closed().is_some() {}
    }

    /// Does a turn's work of the loop: takes the outcomes, and hands the thread the next password.
    fn turn(pool: &mut Pool, node: &mut Node) {
        while let Some(Outcome::Password { key, cid, good }) = pool.poll() {
            node.handle_verified(NOW, key, cid, good);
        }
        while pool.has_room()
            && pool.may_check()
            && let Some((source, verify)) = node.poll_verify_of(|source| pool.may_run(source))
        {
            pool.send(Some(source), Job::Password(verify));
        }
    }

    /// 40 clients give a wrong password and hang up. The thread finishes only the check that it had begun by
    /// then. Its next check is for the user who is still connected.
    #[test]
    fn passwords_of_connections_that_are_over_are_never_checked() {
        let (begun, begins) = sync_channel(64);
        let (go, goes) = sync_channel(1);
        let goes = Arc::new(Mutex::new(goes));
        let poll = mio::Poll::new().unwrap();
        let waker = mio::Waker::new(poll.registry(), mio::Token(0)).unwrap();
        let check = move |password: &str, _: &str| {
            begun.send(password.to_owned()).unwrap();
            goes.lock().unwrap().recv().unwrap();
            password == "right"
        };
        let mut pool = Pool::start_with(&Handle::new(waker), 1, check).unwrap();
        let mut node = node();
        let wrong: Vec<ClientKey> = (0..40)
            .map(|n| log_in(&mut node, 1, &format!("wrong{n}")))
            .collect();
        turn(&mut pool, &mut node);
        let first = begins.recv().unwrap();
        assert!(first.starts_with("wrong"), "{first}");
        for key in wrong {
            node.handle_closed(NOW, key, CloseReason::ClientClosed);
        }
        write(&mut node);
        let user = log_in(&mut node, 1, "right");
        let mut computed = vec![first];
        while !node.reads(user) {
            // One permission is enough if the thread has not taken the last one yet, so the test does not
            // wait here.
            let _ = go.try_send(());
            turn(&mut pool, &mut node);
            while let Ok(next) = begins.try_recv() {
                computed.push(next);
            }
            std::thread::yield_now();
        }
        computed.extend(begins.try_iter());
        assert_eq!(computed[1..], ["right"]);
    }

    /// A client hangs up while a thread checks its password, and another client gets its key. The outcome of
    /// the check, good or not, admits neither and closes neither, and the thread is free again.
    #[test]
    fn an_outcome_for_a_connection_that_is_over_concerns_no_other() {
        for good in [true, false] {
            let poll = mio::Poll::new().unwrap();
            let waker = mio::Waker::new(poll.registry(), mio::Token(0)).unwrap();
            let check = |password: &str, _: &str| password == "right";
            let mut pool = Pool::start_with(&Handle::new(waker), 1, check).unwrap();
            let mut node = node();
            pool.held = true;
            let gone = log_in(&mut node, 1, if good { "right" } else { "wrong" });
            turn(&mut pool, &mut node);
            assert!(!pool.is_idle() && node.is_verifying(gone));
            node.handle_closed(NOW, gone, CloseReason::ClientClosed);
            write(&mut node);
            let other = node.handle_accepted(NOW, ([10, 0, 0, 2], 1).into(), false, false);
            assert_eq!(other, gone, "the other client has the key of the first");
            let sent = node.outbox(other).len();
            pool.held = false;
            while !pool.is_idle() {
                turn(&mut pool, &mut node);
                std::thread::yield_now();
            }
            assert!(node.contains(other) && node.poll_closed().is_none());
            assert_eq!(node.outbox(other).len(), sent, "the client hears nothing");
            // The other client has to log in by itself.
            let any = Load::new(u64::MAX, u64::MAX);
            let connect = b"CONNECT {\"user\":\"u\",\"pass\":\"right\"}\r\n";
            node.handle_received(NOW, other, connect, any);
            assert!(node.is_verifying(other));
            node.check_invariants();
        }
    }

    /// A check occupies one of two threads. The pool keeps the other thread free for handshakes.
    #[test]
    fn checks_leave_one_thread_to_handshakes() {
        let (go, goes) = sync_channel(1);
        let goes = Arc::new(Mutex::new(goes));
        let poll = mio::Poll::new().unwrap();
        let waker = mio::Waker::new(poll.registry(), mio::Token(0)).unwrap();
        let check = move |_: &str, _: &str| goes.lock().unwrap().recv().unwrap();
        let mut pool = Pool::start_with(&Handle::new(waker), 2, check).unwrap();
        let mut node = node();
        log_in(&mut node, 1, "first");
        log_in(&mut node, 2, "second");
        assert!(pool.may_check());
        turn(&mut pool, &mut node);
        assert!(!pool.may_check());
        assert!(pool.has_room());
        go.send(false).unwrap();
        while pool.poll().is_none() {
            std::thread::yield_now();
        }
        assert!(pool.may_check());
    }

    /// A check of a password panics. The node refuses the client, and the only thread serves the next client.
    #[test]
    fn a_panic_in_a_job_frees_its_place() {
        let poll = mio::Poll::new().unwrap();
        let waker = mio::Waker::new(poll.registry(), mio::Token(0)).unwrap();
        let check = |password: &str, _: &str| {
            assert_ne!(password, "first", "a panic that this test wants");
            true
        };
        let mut pool = Pool::start_with(&Handle::new(waker), 1, check).unwrap();
        let mut node = node();
        let next = |pool: &mut Pool| {
            loop {
                if let Some(Outcome::Password { key, good, .. }) = pool.poll() {
                    return (key, good);
                }
                std::thread::yield_now();
            }
        };
        for (password, good) in [("first", false), ("second", true)] {
            let client = log_in(&mut node, 1, password);
            turn(&mut pool, &mut node);
            assert!(!pool.has_room());
            assert_eq!(next(&mut pool), (client, good));
            assert!(pool.has_room() && pool.is_idle());
        }
    }

    /// One address sends many wrong passwords. A user at another address waits for only one of their checks.
    #[test]
    fn addresses_take_turns() {
        let mut node = node();
        for n in 0..64 {
            log_in(&mut node, 1, &format!("wrong{n}"));
        }
        log_in(&mut node, 2, "right");
        let checked: Vec<String> = (0..2)
            .filter_map(|_| node.poll_verify())
            .map(|verify| verify.password)
            .collect();
        assert!(checked.contains(&"right".to_owned()), "{checked:?}");
    }

    /// The node closes a connection that had to make room for others, and does not check its password.
    #[test]
    fn one_address_has_a_bounded_number_of_passwords_waiting() {
        let mut node = node();
        for n in 0..200 {
            log_in(&mut node, 1, &format!("wrong{n}"));
            write(&mut node);
        }
        let mut checked = 0;
        while let Some(verify) = node.poll_verify() {
            assert!(node.contains(verify.key), "{verify:?}");
            checked += 1;
        }
        assert_eq!(checked, 64);
        assert_eq!(node.len(), 64);
    }
}
