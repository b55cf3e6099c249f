//! Reads the server's bytes for a sender: the answer to the hello, and acknowledgements. An impossible reply
//! is an error.

use tidegate::Time;

use super::{Doubt, Event, Phase, Sender};
use crate::Seq;
use crate::frame::{self, Layout, REPLY_BYTES, Reply};
use crate::hello::{Answer, VERSION, Welcome};
use crate::proto::SenderError;

impl Sender {
    pub(super) fn read(&mut self, now: Time, mut bytes: &[u8]) -> Result<(), SenderError> {
        if let Phase::Opening { .. } = self.phase {
            // The sender takes a complete answer off the front of the input; the rest of the input consists
            // of replies.
            let before = self.input.len();
            self.input
                .extend_from_slice(&bytes[..bytes.len().min(crate::hello::HANDSHAKE_MAX)]);
            let Some((answer, len)) =
                Answer::decode(&self.input).map_err(SenderError::Handshake)?
            else {
                return Ok(());
            };
            self.input.clear();
            bytes = &bytes[len - before..];
            match answer {
                Answer::Welcome(welcome) => self.welcomed(now, &welcome)?,
                Answer::Refused(refused) => return Err(SenderError::Refused(refused)),
            }
        }
        while !bytes.is_empty() && !matches!(self.phase, Phase::Left | Phase::Ended | Phase::Apart)
        {
            if self.input.is_empty()
                && let Some((unit, rest)) = bytes.split_first_chunk::<REPLY_BYTES>()
            {
                bytes = rest;
                self.reply(now, Reply::decode(self.layout, unit))?;
                continue;
            }
            let take = (REPLY_BYTES - self.input.len()).min(bytes.len());
            self.input.extend_from_slice(&bytes[..take]);
            bytes = &bytes[take..];
            if let Some(unit) = self.input.first_chunk::<REPLY_BYTES>() {
                let reply = Reply::decode(self.layout, unit);
                self.input.clear();
                self.reply(now, reply)?;
            }
        }
        Ok(())
    }

    fn welcomed(&mut self, now: Time, w: &Welcome) -> Result<(), SenderError> {
        let Some(session) = &self.config.session else {
            unreachable!("plain says no hello")
        };
        if w.version != VERSION {
            return Err(SenderError::Version(w.version));
        }
        let wrong = if w.session != session.id {
            Some("names another session")
        } else if w.checked != session.checked {
            Some("does not agree on checksums")
        } else if w.frame_max < session.frame_max {
            Some("allows smaller messages than were asked for")
        } else if w.window < u64::from(w.frame_max) + self.layout.overhead() as u64 {
            Some("names a window that does not hold its largest message")
        } else {
            None
        };
        if let Some(wrong) = wrong {
            return Err(SenderError::Welcome(wrong));
        }
        let (acked, sent) = (self.confirmed(), self.outbox.sent_ever());
        let known = self.epoch != 0;
        if known && (w.received < acked || w.received > sent) {
            let received = w.received;
            return Err(SenderError::Gap {
                received,
                acked,
                sent,
            });
        }
        self.dropped = self.dropped.filter(|d| w.received < d.last);
        let resumed = self.dropped.map_or(w.received, |d| d.last);
        // The client does not hold the messages of an earlier client of the session, so it cannot send them
        // again.
        if known && resumed < self.outbox.gone() {
            let (received, acked) = (w.received, self.outbox.gone());
            return Err(SenderError::Gap {
                received,
                acked,
                sent,
            });
        }
        let lost = known && w.epoch != self.epoch;
        if !known {
            self.outbox.begin(w.received.next());
        }
        self.epoch = w.epoch;
        self.window = w.window;
        self.idle_ns = u64::from(w.idle_ms) * 1_000_000;
        self.previous = w.acked;
        self.acknowledge(now, w.acked);
        self.outbox.rewind(resumed);
        self.tell(Event::Opened {
            received: w.received,
            when_done: w.when_done,
            frame_max: w.frame_max,
        });
        if lost && resumed < sent {
            let doubt = Doubt {
                first: resumed.next(),
                last: sent,
            };
            self.phase = Phase::Doubtful(doubt);
            self.tell(Event::Doubt(doubt));
        } else {
            self.go_on();
        }
        Ok(())
    }

    /// Returns the number of the last message that the server has acknowledged. Messages that the client gave
    /// up since do not count.
    pub(super) fn confirmed(&self) -> Seq {
        self.dropped
            .map_or(self.acked, |d| Seq::new(d.first.get() - 1))
    }

    /// Opens the connection for messages. If the client gave up messages, the sender first tells the server
    /// to skip them.
    pub(super) fn go_on(&mut self) {
        self.phase = Phase::Open;
        if let Some(d) = self.dropped {
            self.control.extend_from_slice(&frame::skip(d.last.next()));
        }
        self.reclose();
    }

    fn reply(&mut self, now: Time, reply: Reply) -> Result<(), SenderError> {
        match reply {
            Reply::Ack { latest, omitted } => {
                let latest = match self.layout {
                    Layout::Plain => frame::plain_seq(latest),
                    _ => Seq::new(latest),
                };
                self.acked_to(now, latest, omitted)
            }
            Reply::Pong { .. } => Ok(()),
            Reply::Bye(code) => {
                self.phase = Phase::Left;
                self.tell(Event::Bye(code));
                Ok(())
            }
            Reply::Unknown(n) => Err(SenderError::Reply(n)),
        }
    }

    fn acked_to(&mut self, now: Time, latest: Seq, omitted: u32) -> Result<(), SenderError> {
        let previous = self.previous;
        if latest <= previous {
            return Err(SenderError::Repeated { latest, previous });
        }
        if !self.outbox.has_left(latest) {
            let sent = self.outbox.sent_now();
            return Err(SenderError::Impossible { latest, sent });
        }
        let expected = previous.plus(u64::from(omitted) + 1);
        if latest != expected {
            return Err(SenderError::Missing { latest, expected });
        }
        self.previous = latest;
        self.acks += 1;
        self.dropped = self.dropped.filter(|d| latest < d.last);
        self.acknowledge(now, latest);
        Ok(())
    }

    pub(super) fn acknowledge(&mut self, now: Time, seq: Seq) {
        if seq > self.acked {
            self.acked = seq;
            self.progress = now;
            self.outbox.release(seq);
        }
    }
}
