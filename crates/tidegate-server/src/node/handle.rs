//! What other threads may ask of a running server: a bounded list of commands and a way to wake the loop.

use std::collections::VecDeque;
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex, PoisonError};

use mio::Waker;

use crate::config::Settings;
use crate::monitor::snapshot::{Query, Report};

/// Commands that may wait for the loop.
const COMMANDS_MAX: usize = 1024;

/// Something asked of the loop.
#[derive(Debug)]
pub(super) enum Command {
    Drain,
    LameDuck,
    Reload(Box<Settings>),
    Report(Query, SyncSender<Report>),
}

/// A running server, seen from other threads. Clones are the same handle.
#[derive(Clone, Debug)]
pub struct Handle {
    commands: Arc<Mutex<VecDeque<Command>>>,
    waker: Arc<Waker>,
}

/// The loop has more to do than it manages: it was not asked.
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

    /// Stop: accept nobody, finish what was received, write what waits, close.
    ///
    /// # Errors
    /// Too many commands wait.
    pub fn drain(&self) -> Result<(), Busy> {
        self.send(Command::Drain)
    }

    /// Lame duck mode: tell clients to go elsewhere, close them one after the other, stop.
    ///
    /// # Errors
    /// Too many commands wait.
    pub fn lame_duck(&self) -> Result<(), Busy> {
        self.send(Command::LameDuck)
    }

    /// Put changed settings in force. What cannot change while running stays, and the log says so.
    ///
    /// # Errors
    /// Too many commands wait.
    pub fn reload(&self, settings: Settings) -> Result<(), Busy> {
        self.send(Command::Reload(Box::new(settings)))
    }

    /// Ask for figures; they come through `to`, or it is dropped.
    pub(crate) fn report(&self, query: Query, to: SyncSender<Report>) -> Result<(), Busy> {
        self.send(Command::Report(query, to))
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
        // Fails only where the loop is gone.
        let _ = self.waker.wake();
    }

    pub(super) fn take(&self) -> VecDeque<Command> {
        std::mem::take(&mut *self.commands.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
