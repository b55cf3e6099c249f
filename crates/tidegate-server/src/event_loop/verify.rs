//! Checks passwords against bcrypt hashes on a thread of its own: one check takes tens of milliseconds on
//! purpose.
//!
//! The thread has one check at a time. All others wait in the node, which knows the next one and
//! the connections that have ended.

use std::io;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use tidegate::Time;

use super::handle::Handle;
use crate::party::ClientKey;
use crate::sessions::{Node, Verify};

/// The outcome of a check.
#[derive(Debug)]
struct Verified {
    key: ClientKey,
    cid: u64,
    good: bool,
}

/// The thread and the channels to it and back.
#[derive(Debug)]
pub(super) struct Verifier {
    /// `None` stops the thread.
    sender: Option<SyncSender<Verify>>,
    outcomes: Receiver<Verified>,
    thread: Option<JoinHandle<()>>,
    /// The thread has a check.
    busy: bool,
}

impl Verifier {
    pub(super) fn start(handle: Handle) -> io::Result<Self> {
        // A malformed hash admits no client.
        Self::start_with(handle, |password, hash| {
            bcrypt::verify(password, hash).unwrap_or(false)
        })
    }

    fn start_with(
        handle: Handle,
        check: impl Fn(&str, &str) -> bool + Send + 'static,
    ) -> io::Result<Self> {
        let (sender, checks) = sync_channel::<Verify>(1);
        let (answer, outcomes) = sync_channel(1);
        let run = move || {
            for Verify {
                key,
                cid,
                password,
                hash,
            } in checks
            {
                let good = check(&password, &hash);
                // Fails only where the loop is gone.
                let _ = answer.send(Verified { key, cid, good });
                handle.wake();
            }
        };
        let thread = std::thread::Builder::new().name("verify".into());
        Ok(Self {
            sender: Some(sender),
            outcomes,
            thread: Some(thread.spawn(run)?),
            busy: false,
        })
    }

    /// Reports the outcome of the last check to the node, and sends the thread the next one.
    pub(super) fn turn(&mut self, now: Time, node: &mut Node) {
        if let Ok(Verified { key, cid, good }) = self.outcomes.try_recv() {
            self.busy = false;
            node.handle_verified(now, key, cid, good);
        }
        if !self.busy
            && let Some(sender) = &self.sender
            && let Some(verify) = node.poll_verify()
        {
            // Without the thread the server checks nothing: the client's timeout closes the connection.
            self.busy = sender.try_send(verify).is_ok();
        }
    }
}

impl Drop for Verifier {
    fn drop(&mut self) {
        self.sender = None;
        if let Some(thread) = self.thread.take() {
            // The thread has reported its panic already.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tidegate::controller::Load;

    use super::*;
    use crate::config::Settings;
    use tidegate_nats::connect::Info;
    use tidegate_nats::session::CloseReason;
    use tidegate_nats::settings::{Secret, SessionSettings, User};

    const NOW: Time = Time::from_nanos(1);

    fn node() -> Node {
        let user = User {
            name: "u".into(),
            secret: Secret::new("$2a$04$"),
            permissions: None,
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

    /// Writes the last bytes to closing connections.
    fn write(node: &mut Node) {
        while let Some(key) = node.poll_dirty() {
            let len = node.outbox(key).len();
            node.handle_written(NOW, key, len);
        }
        while node.poll_closed().is_some() {}
    }

    /// 40 clients give a wrong password and hang up. The thread finishes only the check that had
    /// begun by then, and the next one is for the user who is still connected.
    #[test]
    fn passwords_of_connections_that_are_over_are_never_checked() {
        let (begun, begins) = sync_channel(64);
        let (go, goes) = sync_channel(1);
        let poll = mio::Poll::new().unwrap();
        let waker = mio::Waker::new(poll.registry(), mio::Token(0)).unwrap();
        let check = move |password: &str, _: &str| {
            begun.send(password.to_owned()).unwrap();
            goes.recv().unwrap();
            password == "right"
        };
        let mut verifier = Verifier::start_with(Handle::new(waker), check).unwrap();
        let mut node = node();
        let wrong: Vec<ClientKey> = (0..40)
            .map(|n| log_in(&mut node, 1, &format!("wrong{n}")))
            .collect();
        verifier.turn(NOW, &mut node);
        let first = begins.recv().unwrap();
        assert!(first.starts_with("wrong"), "{first}");
        for key in wrong {
            node.handle_closed(NOW, key, CloseReason::ClientClosed);
        }
        write(&mut node);
        let user = log_in(&mut node, 1, "right");
        let mut computed = vec![first];
        while !node.reads(user) {
            // One is enough, if the thread has not taken the last one yet.
            let _ = go.try_send(());
            verifier.turn(NOW, &mut node);
            while let Ok(next) = begins.try_recv() {
                computed.push(next);
            }
            std::thread::yield_now();
        }
        computed.extend(begins.try_iter());
        assert_eq!(computed[1..], ["right"]);
    }

    /// One address sends many wrong passwords. A user at another address waits for one of them.
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
