//! Does the loop's part in the system account: hands questions and events to the thread that writes answers,
//! and carries out the commands of that thread, because only the loop has the sockets.

use std::sync::mpsc::SyncSender;
use std::time::{Duration, SystemTime};

use tidegate::Time;
use tidegate_nats::settings::Account;

use super::Server;
use super::report::server::ServerFacts;
use crate::sessions::system::{Happened, Job, subject_of_server};

/// The interval at which the server publishes its figures, while a client of the system account wants them.
const STATS_EVERY: Duration = Duration::from_secs(10);

/// The loop's way to the thread that writes answers, so that the loop itself writes none.
#[derive(Debug, Default)]
pub(super) struct SystemLink {
    /// The queue of the thread that writes answers; `None` if the server runs no such thread.
    to: Option<SyncSender<Job>>,
    /// The time at which the server next publishes its figures.
    stats_due: Time,
}

impl SystemLink {
    /// Sets the queue through which the loop reaches the thread that writes answers.
    pub(super) fn connect(&mut self, to: SyncSender<Job>) {
        self.to = Some(to);
    }
}

impl Server {
    /// Hands the questions and events that wait to the thread that writes answers. If the thread is behind,
    /// the loop drops them and does not wait, because clients ask again.
    pub(super) fn send_jobs(&mut self, now: Time) {
        if self.system.to.is_some() && self.node.listens_to_system() && self.system.stats_due <= now
        {
            self.system.stats_due = now + STATS_EVERY;
            if self.node.wants_stats() {
                self.node.tell_of_server(Happened::Stats);
            }
        }
        while let Some(job) = self.node.poll_job() {
            if let Some(to) = &self.system.to {
                let _ = to.try_send(job);
            }
        }
    }

    /// Returns the time at which the server next publishes its figures, for the loop's timer; `None` if no
    /// client may want them.
    pub(super) fn stats_deadline(&self) -> Option<Time> {
        let due = self.system.to.is_some() && self.node.listens_to_system();
        due.then_some(self.system.stats_due)
    }

    /// Tells the clients of the system account that this server stops, before it closes their connections, so
    /// that they know the reason.
    pub(super) fn say_that_it_stops(&mut self, now: Time) {
        if !self.node.listens_to_system() {
            return;
        }
        let facts = ServerFacts::new(self.node.settings(), self.node.info());
        let body = facts.json(0, SystemTime::now()).to_string();
        let subject = subject_of_server(&facts.info.server_id, "SHUTDOWN");
        self.node
            .say_system(now, Account::System, subject.as_bytes(), body.as_bytes());
    }
}
