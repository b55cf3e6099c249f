//! Carries commands of other threads, such as a drain, to a running server: a bounded list of commands, and a
//! waker that makes the event loop take them.

use std::collections::VecDeque;
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex, PoisonError};

use mio::Waker;
use tidegate::Time;
use tidegate_monitor::Observed;
use tidegate_nats::settings::Account;

use super::report::Report;
use super::report::browse::{Browse, Browsed};
use super::report::gather::{Ask, Part};
use super::report::query::Query;
use crate::config::Settings;
use crate::sessions::system::Job;

/// The greatest number of commands that may wait for the event loop; the handle refuses more, so that they
/// take bounded memory.
const COMMANDS_MAX: usize = 1024;

/// A command that another thread sends to the event loop, because only the loop may change the server's
/// state.
#[derive(Debug)]
pub(super) enum Command {
    Drain,
    LameDuck,
    Reload(Box<Settings>),
    Report(Box<Query>, SyncSender<Report>),
    /// Makes the loop answer with a part of a list.
    List(Ask, SyncSender<Part>),
    /// Makes the loop look for messages of a stream for a reader.
    Browse(Box<Browse>, SyncSender<Browsed>),
    /// Makes the loop read its boundaries for the monitor's samples.
    Observe(SyncSender<(Time, Vec<Observed>)>),
    /// Makes the loop give the questions of the system account's clients to this thread, which answers them.
    ServeSystem(SyncSender<Job>),
    /// Makes the loop deliver an answer to a client, or a message about an event to all clients, of an
    /// account, because the thread that wrote it has no sockets.
    Say(Account, Box<[u8]>, Vec<u8>),
    /// Makes the loop close the connection with this number, or (`SendAway`) ask its client to connect
    /// elsewhere. An operator asked for that, and learns whether the connection exists.
    Kick(u64, SyncSender<bool>),
    SendAway(u64, SyncSender<bool>),
}

/// A handle with which other threads send commands to a running server. All clones control one server.
#[derive(Clone, Debug)]
pub struct Handle {
    commands: Arc<Mutex<VecDeque<Command>>>,
    waker: Arc<Waker>,
}

/// The error for a command that the handle does not send, because too many commands already wait for the
/// server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{COMMANDS_MAX} commands wait for the server already, and it queues no more: send the command again later"
)]
pub struct Busy;

impl Handle {
    pub(super) fn new(waker: Waker) -> Self {
        Self {
            commands: Arc::default(),
            waker: Arc::new(waker),
        }
    }

    /// Drains the server, so that it ends without loss: it accepts no more clients, finishes the input that
    /// it has received, writes its outboxes, closes all connections, and ends.
    ///
    /// # Errors
    /// Too many commands wait for the server.
    pub fn drain(&self) -> Result<(), Busy> {
        self.send(Command::Drain)
    }

    /// Starts lame duck mode: the server tells its clients to connect to other nodes, closes their
    /// connections one after the other, and ends.
    ///
    /// # Errors
    /// Too many commands wait for the server.
    pub fn lame_duck(&self) -> Result<(), Busy> {
        self.send(Command::LameDuck)
    }

    /// Makes the server adopt changed settings. Settings that a running server cannot change stay as they
    /// are, and the log names them.
    ///
    /// # Errors
    /// Too many commands wait for the server.
    pub fn reload(&self, settings: Settings) -> Result<(), Busy> {
        self.send(Command::Reload(Box::new(settings)))
    }

    /// Asks the event loop for a report on the server's state, for the monitor. The loop sends the report
    /// through `to`. If the loop ends before that, it drops `to`.
    pub(crate) fn report(&self, query: Query, to: SyncSender<Report>) -> Result<(), Busy> {
        self.send(Command::Report(Box::new(query), to))
    }

    /// Asks the event loop for a part of a list. The loop sends the part through `to`. If the loop ends
    /// before that, it drops `to`.
    pub(crate) fn list(&self, ask: Ask, to: SyncSender<Part>) -> Result<(), Busy> {
        self.send(Command::List(ask, to))
    }

    /// Asks the event loop to look for messages of a stream, for a reader that browses them. The loop sends
    /// its findings through `to`. If the loop ends before that, it drops `to`.
    pub(crate) fn browse(&self, browse: Browse, to: SyncSender<Browsed>) -> Result<(), Busy> {
        self.send(Command::Browse(Box::new(browse), to))
    }

    /// Asks the event loop for the state of its boundaries, for the monitor's samples. The loop sends its
    /// time and the state through `to`. If the loop ends before that, it drops `to`.
    pub(crate) fn observe(&self, to: SyncSender<(Time, Vec<Observed>)>) -> Result<(), Busy> {
        self.send(Command::Observe(to))
    }

    /// Makes the event loop hand the questions of clients of the system account to the receiver of `to`,
    /// which answers them.
    pub(crate) fn serve_system(&self, to: SyncSender<Job>) -> Result<(), Busy> {
        self.send(Command::ServeSystem(to))
    }

    /// Makes the event loop deliver a message of this server, such as an answer or an event, to the clients
    /// of `account` that subscribe to `subject`.
    pub(crate) fn say(&self, account: Account, subject: &[u8], body: Vec<u8>) -> Result<(), Busy> {
        self.send(Command::Say(account, subject.into(), body))
    }

    /// Makes the event loop close the connection with the number `cid`, for an operator. The loop sends
    /// through `to` whether the connection exists.
    pub(crate) fn kick(&self, cid: u64, to: SyncSender<bool>) -> Result<(), Busy> {
        self.send(Command::Kick(cid, to))
    }

    /// Makes the event loop ask the client of the connection with the number `cid` to connect to another
    /// server, for an operator. The loop sends through `to` whether the connection exists.
    pub(crate) fn send_away(&self, cid: u64, to: SyncSender<bool>) -> Result<(), Busy> {
        self.send(Command::SendAway(cid, to))
    }

    pub(super) fn send(&self, command: Command) -> Result<(), Busy> {
        let mut commands = self.commands.lock().unwrap_or_else(PoisonError::into_inner);
        if commands.len() >= COMMANDS_MAX {
            return Err(Busy);
        }
        commands.push_back(command);
        drop(commands);
        self.wake();
        Ok(())
    }

    /// Wakes the event loop, so that it takes a turn and sees new commands and outcomes.
    pub(super) fn wake(&self) {
        // The thread fails to wake the event loop only if the loop has ended, which does no harm.
        let _ = self.waker.wake();
    }

    pub(super) fn take(&self) -> VecDeque<Command> {
        std::mem::take(&mut *self.commands.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
