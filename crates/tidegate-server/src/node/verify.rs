//! Checks passwords against bcrypt hashes on a thread of its own: one check takes tens of milliseconds on purpose.

use std::io;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;

use super::core::Verify;
use super::handle::{Command, Handle};

/// Checks that may wait here; more wait in the node, one a connection.
const WAITING_MAX: usize = 16;

/// The thread and the way to it.
#[derive(Debug)]
pub(super) struct Verifier {
    /// `None` once it is to stop.
    sender: Option<SyncSender<Verify>>,
    thread: Option<JoinHandle<()>>,
    /// Taken from the node, but the thread has enough to do.
    held: Option<Verify>,
}

impl Verifier {
    pub(super) fn start(handle: Handle) -> io::Result<Self> {
        let (sender, receiver) = sync_channel(WAITING_MAX);
        let thread = std::thread::Builder::new()
            .name("verify".into())
            .spawn(move || run(&receiver, &handle))?;
        Ok(Self {
            sender: Some(sender),
            thread: Some(thread),
            held: None,
        })
    }

    /// Hands over as many checks as fit.
    pub(super) fn feed(&mut self, mut next: impl FnMut() -> Option<Verify>) {
        let Some(sender) = &self.sender else { return };
        while let Some(verify) = self.held.take().or_else(&mut next) {
            match sender.try_send(verify) {
                Ok(()) => {}
                Err(TrySendError::Full(verify) | TrySendError::Disconnected(verify)) => {
                    self.held = Some(verify);
                    return;
                }
            }
        }
    }
}

impl Drop for Verifier {
    fn drop(&mut self) {
        self.sender = None;
        if let Some(thread) = self.thread.take() {
            // A panic there was told already.
            let _ = thread.join();
        }
    }
}

fn run(receiver: &Receiver<Verify>, handle: &Handle) {
    while let Ok(Verify {
        key,
        cid,
        password,
        hash,
    }) = receiver.recv()
    {
        // A hash that is none admits nobody.
        let good = bcrypt::verify(password, &hash).unwrap_or(false);
        // The client's timeout deals with a loop that takes nothing more.
        let _ = handle.send(Command::Verified { key, cid, good });
    }
}
