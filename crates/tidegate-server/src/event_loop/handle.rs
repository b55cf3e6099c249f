//! Commands of other threads to a running server: a bounded list, and a function that wakes the event loop.

use std::collections::VecDeque;
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex, PoisonError};

use mio::Waker;

use super::report::Report;
use super::report::query::Query;
use crate::config::Settings;

/// The most commands that wait for the loop.
const COMMANDS_MAX: usize = 1024;

/// A command to the event loop.
#[derive(Debug)]
pub(super) enum Command {
    Drain,
    LameDuck,
    Reload(Box<Settings>),
    Report(Box<Query>, SyncSender<Report>),
}

/// A running server, seen from other threads. Clones are the same handle.
#[derive(Clone, Debug)]
pub struct Handle {
    commands: Arc<Mutex<VecDeque<Command>>>,
    waker: Arc<Waker>,
}

/// The error for a full list of commands: the loop does not get the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the server has {COMMANDS_MAX} commands waiting already: ask again later")]
pub struct Busy;

impl Handle {
    pub(super) fn new(waker: Waker) -> Self {
        Self {
            commands: Arc::default(),
            waker: Arc::new(waker),
        }
    }

    /// Stops the server: it accepts no more clients, finishes the input it received, writes its
    /// outboxes, and closes.
    ///
    /// # Errors
    /// Too many commands wait.
    pub fn drain(&self) -> Result<(), Busy> {
        self.send(Command::Drain)
    }

    /// Starts lame duck mode: the server tells clients to connect elsewhere, closes their connections one
    /// after the other, and stops.
    ///
    /// # Errors
    /// Too many commands wait.
    pub fn lame_duck(&self) -> Result<(), Busy> {
        self.send(Command::LameDuck)
    }

    /// Puts changed settings in force. Settings that cannot change in a running server stay as they
    /// are, and the log names them.
    ///
    /// # Errors
    /// Too many commands wait.
    pub fn reload(&self, settings: Settings) -> Result<(), Busy> {
        self.send(Command::Reload(Box::new(settings)))
    }

    /// Asks for a report. The loop sends the report through `to`, or drops `to`.
    pub(crate) fn report(&self, query: Query, to: SyncSender<Report>) -> Result<(), Busy> {
        self.send(Command::Report(Box::new(query), to))
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

    /// Makes the loop take a turn.
    pub(super) fn wake(&self) {
        // The result does not matter: the wake-up fails only if the loop has ended.
        let _ = self.waker.wake();
    }

    pub(super) fn take(&self) -> VecDeque<Command> {
        std::mem::take(&mut *self.commands.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
