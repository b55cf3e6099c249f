//! Runs the thread that answers the clients of the system account, and tells them of events.
//!
//! The event loop hands questions and events to this thread ([`Job`]). The thread asks the loop for the same
//! reports as the monitor does, writes the answers as JSON, and hands them back. So no client's message waits
//! while the thread writes an answer. The number of waiting questions is bounded.

mod answers;
mod events;
mod questions;
mod traces;

use std::io;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, SystemTime};

use serde_json::Value;
use tidegate_nats::settings::Account;

use self::answers::Answer;
use crate::config::Settings;
use crate::event_loop::handle::Handle;
use crate::event_loop::report::Report;
use crate::event_loop::report::gather::Gather;
use crate::event_loop::report::query::{List, Query};
use crate::event_loop::report::server::ServerFacts;
use crate::monitor::json::WallClock;
use crate::sessions::audits::{self, Audit};
use crate::sessions::system::{About, Happened, Job, Page, Question};
use crate::sessions::traces::Trace;

/// The most questions and events that wait for the thread; the event loop drops further ones, so that they
/// take bounded memory.
const JOBS_MAX: usize = 1024;
/// The longest time that the thread waits for a report of the event loop. After it the thread goes on without
/// the report.
const LOOP_TIMEOUT: Duration = Duration::from_secs(2);

/// The function that reads the server's configuration again when a client of the system account asks for it.
pub type Load = Box<dyn Fn() -> Result<Settings, String> + Send>;

/// Starts the thread that answers the clients of the system account, for the server behind `handle`. The
/// thread ends with that server. `load` reads the server's configuration again.
///
/// # Errors
/// The thread cannot start.
pub fn serve_system(handle: Handle, load: Load) -> io::Result<()> {
    let (to, jobs) = sync_channel(JOBS_MAX);
    handle.serve_system(to).map_err(io::Error::other)?;
    let service = Service {
        handle,
        load,
        started: SystemTime::now(),
        seq: 0,
    };
    let run = move || service.run(&jobs);
    std::thread::Builder::new()
        .name("system".into())
        .spawn(run)?;
    Ok(())
}

struct Service {
    handle: Handle,
    load: Load,
    started: SystemTime,
    /// The number of the last message about an event, from which the next event gets its id.
    seq: u64,
}

impl Service {
    fn run(mut self, jobs: &Receiver<Job>) {
        while let Ok(job) = jobs.recv() {
            match job {
                Job::Answer(question) => self.answer(&question),
                Job::Tell(happened) => self.tell(&happened),
                Job::Trace(trace) => self.report_trace(&trace),
                Job::Audit(audit) => self.report_request(&audit),
            }
        }
    }

    /// Gets a report of the server's event loop for an answer, with all parts of its list of streams, and its
    /// clock; `None` if the loop is too busy or has ended.
    fn report(&self, query: &Query) -> Option<(Report, WallClock)> {
        let mut gather = Gather::new(query);
        let mut report = ask(|to| self.handle.report(query.clone(), to))?;
        while let Some(part) = gather.next_ask() {
            gather.take(ask(|to| self.handle.list(part, to))?);
        }
        report.listed = gather.finish();
        Some((report, WallClock::new(self.started, SystemTime::now())))
    }

    fn answer(&mut self, question: &Question) {
        let asked = questions::read(question);
        let query = match &asked {
            Ok(asked) => asked.query.clone(),
            Err(_) => Query::new(List::Nothing),
        };
        let Some((report, wall)) = self.report(&query) else {
            return;
        };
        let facts = facts(&report);
        let answer = match asked {
            Err(text) => Answer::Error(400, text),
            Ok(asked) if !asked.is_for(&report) => return,
            Ok(questions::Asked {
                wrong: Some(text), ..
            }) => Answer::Error(500, text),
            Ok(asked) => match &question.about {
                About::Reload => self.reload(),
                About::Kick => self.with_connection(asked.cid, Handle::kick),
                About::LameDuck => self.with_connection(asked.cid, Handle::send_away),
                about => answers::answer(about, question, &asked, &report, &wall),
            },
        };
        self.seq += 1;
        let server = facts.json(self.seq, wall.now());
        if let Some(body) = answer.body(server) {
            self.say(question.account, &question.reply, &body);
        }
    }

    fn reload(&self) -> Answer {
        match (self.load)().map(|settings| self.handle.reload(settings)) {
            Ok(Ok(())) => Answer::Nothing,
            Ok(Err(busy)) => Answer::Error(500, busy.to_string()),
            Err(text) => Answer::Error(500, text),
        }
    }

    /// Calls `f`, a command about a connection such as closing it, for the connection with the number `cid`.
    /// Returns the answer to the client.
    fn with_connection(
        &self,
        cid: u64,
        f: fn(&Handle, u64, SyncSender<bool>) -> Result<(), crate::Busy>,
    ) -> Answer {
        let (to, found) = sync_channel(1);
        let asked = f(&self.handle, cid, to).is_ok();
        match asked.then(|| found.recv_timeout(LOOP_TIMEOUT)) {
            Some(Ok(true)) => Answer::Nothing,
            Some(Ok(false)) => Answer::Error(500, "no such client id".into()),
            _ => Answer::Error(500, "the server did not answer in time".into()),
        }
    }

    fn tell(&mut self, happened: &Happened) {
        let Some((report, wall)) = self.report(&Query::new(List::Nothing)) else {
            return;
        };
        self.seq += 1;
        let server = facts(&report).json(self.seq, wall.now());
        let (subject, body) = match happened {
            Happened::Stats => {
                let body = Answer::Stats(answers::stats(&report, &wall)).body(server);
                (events::subject(&report, "STATSZ"), body.unwrap_or_default())
            }
            Happened::LameDuck => (events::subject(&report, "LAMEDUCK"), server),
            Happened::Connected(of) => events::connected(of, server, self.seq, &report, &wall),
            Happened::Disconnected(of, reason) => {
                events::disconnected(of, *reason, server, self.seq, &report, &wall)
            }
        };
        self.say(Account::System, subject.as_bytes(), &body);
    }

    fn report_trace(&mut self, trace: &Trace) {
        let Some((report, wall)) = self.report(&Query::new(List::Nothing)) else {
            return;
        };
        self.seq += 1;
        let server = facts(&report).json(self.seq, wall.now());
        let body = traces::event(trace, server, &report, &wall);
        self.say(Account::Global, &trace.to, &body);
    }

    fn report_request(&mut self, audit: &Audit) {
        let Some((report, wall)) = self.report(&Query::new(List::Nothing)) else {
            return;
        };
        self.seq += 1;
        let body = events::audited(audit, self.seq, &report, &wall);
        self.say(Account::Global, audits::SUBJECT.as_bytes(), &body);
    }

    fn say(&self, account: Account, subject: &[u8], body: &Value) {
        // If the event loop has too many commands already, the message is lost, and the client asks again.
        let _ = self
            .handle
            .say(account, subject, body.to_string().into_bytes());
    }
}

/// Waits for the event loop's answer to `send`; `None` if the loop is too busy or has ended.
fn ask<T>(send: impl FnOnce(SyncSender<T>) -> Result<(), crate::Busy>) -> Option<T> {
    let (to, answer) = sync_channel(1);
    send(to).ok()?;
    answer.recv_timeout(LOOP_TIMEOUT).ok()
}

fn facts(report: &Report) -> ServerFacts {
    ServerFacts {
        info: report.info.clone(),
        domain: report.domain.clone(),
        tags: report.tags.clone(),
        metadata: report.metadata.clone(),
    }
}

/// Returns the list that the event loop must add to its report for this page, because the loop makes such
/// lists only on request.
const fn list_of(page: Page) -> List {
    match page {
        Page::Connections => List::Connections,
        Page::Subscriptions => List::Subscriptions,
        Page::Streams => List::Streams,
        Page::Accounts | Page::AccountStats => List::Accounts,
        _ => List::Nothing,
    }
}
