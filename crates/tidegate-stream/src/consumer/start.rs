//! The start of a new consumer.
//!
//! Owns the choice, made once, when the consumer is created; from then on its [`State`] has its position.
//! Leaves the stream's messages to a [`View`].

use super::seam::View;
use super::state::State;
use crate::schema::config::{ConsumerConfig, DeliverPolicy};

impl State {
    /// Creates the state of a new consumer of this stream: it starts with the message that its policy names,
    /// or with the closest message that the stream has.
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
