//! Chooses the message of its stream with which a new consumer starts, as the consumer's deliver policy says.
//!
//! The choice takes place once, when the server creates the consumer; from then on the consumer's [`State`]
//! holds the position. The server passes the stream's messages as a [`View`].

use super::seam::View;
use super::state::State;
use crate::schema::config::{ConsumerConfig, DeliverPolicy};

impl State {
    /// Creates the state of a new consumer of this stream: the consumer starts with the message that its
    /// deliver policy names, or with the closest message that the stream has. Every node computes the same
    /// start.
    #[must_use]
    pub fn new(config: &ConsumerConfig, stream: &mut impl View) -> Self {
        let (first, last) = (stream.first_seq(), stream.last_seq());
        let start = match config.deliver_policy {
            DeliverPolicy::All => first,
            DeliverPolicy::New => last.next(),
            DeliverPolicy::Last => stream.last_matching().unwrap_or_else(|| last.next()),
            DeliverPolicy::ByStartSequence => config.opt_start_seq,
            DeliverPolicy::ByStartTime => {
                let time = config.opt_start_time.map_or(0, |t| t.as_micros_up());
                stream.seq_at_time(time)
            }
            DeliverPolicy::LastPerSubject => return Self::starting_last_per_subject(last),
        };
        Self::starting_at(start.clamp(first.min(last.next()), last.next()))
    }
}
