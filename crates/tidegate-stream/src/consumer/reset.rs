//! Decides to which message of its stream a client's reset may move a consumer, so that the leader can refuse
//! a reset before it proposes the reset.
//!
//! This module owns the rule: a reset never moves a consumer to a message that the consumer's deliver policy
//! skips, because a client relies on that policy. [`State::reset`] carries out the reset.
//!
//! [`State::reset`]: super::State::reset

use super::seam::View;
use super::state::{Position, RESET_RANGE};
use crate::schema::config::{ConsumerConfig, DeliverPolicy};
use crate::schema::error::ApiError;
use crate::schema::sequence::StreamSeq;

/// Returns the message to which a reset moves a consumer of this stream: `asked` or, if `asked` is 0, the
/// first message after the ack floor, so that the consumer delivers every unacknowledged message again.
///
/// # Errors
///
/// Returns [`ApiError::invalid_reset`] if the consumer's deliver policy does not allow `asked`, or if `asked`
/// is beyond [`RESET_RANGE`]. The server answers the client's request with it.
pub fn reset_to(
    config: &ConsumerConfig,
    ack_floor: Position,
    asked: StreamSeq,
    stream: &mut impl View,
) -> Result<StreamSeq, ApiError> {
    if asked == StreamSeq::ZERO {
        return Ok(ack_floor.stream_seq.next());
    }
    match config.deliver_policy {
        DeliverPolicy::All => {}
        DeliverPolicy::ByStartSequence if asked < config.opt_start_seq => {
            return Err(ApiError::invalid_reset("below start seq"));
        }
        DeliverPolicy::ByStartSequence => {}
        DeliverPolicy::ByStartTime => {
            let time = config.opt_start_time.map_or(0, |t| t.as_micros_up());
            if asked < stream.seq_at_time(time) {
                return Err(ApiError::invalid_reset("below start time"));
            }
        }
        DeliverPolicy::Last | DeliverPolicy::New | DeliverPolicy::LastPerSubject => {
            return Err(ApiError::invalid_reset("not allowed"));
        }
    }
    match RESET_RANGE.contains(&asked) {
        true => Ok(asked),
        false => Err(ApiError::invalid_reset(format_args!(
            "beyond sequence {}",
            RESET_RANGE.end()
        ))),
    }
}
