//! Decides whether the loop looks for further messages before its own thread syncs the log.
//!
//! The acknowledgements of a sync wake the callers, and each caller needs a moment to send its next message.
//! If the loop syncs with the first of them, the others wait for that sync and for the next one. Another look
//! costs a call of the poller, and a lone caller sends nothing meanwhile. So the loop goes on looking as long
//! as looks bring messages, and tries a look now and then if they do not.

/// The most looks before a sync, so that callers that send all the time do not delay it.
const LOOKS_MAX: u32 = 3;
/// The number of syncs without a look before the loop tries one.
const TRY_EVERY: u32 = 16;
/// The number of looks without a message after which the loop only tries looks.
const FRUITLESS_MAX: u32 = 4;

/// The state by which the loop decides about looks, see the [module](self).
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::event_loop) struct Looks {
    /// The end of the log when the loop began the present look; `None` if it does not look.
    from: Option<u64>,
    /// The looks since the last sync.
    made: u32,
    /// The looks in a row that brought nothing.
    fruitless: u32,
    /// The syncs since the last look.
    without: u32,
}

impl Looks {
    /// Returns whether the loop runs one more turn, without a wait, before it syncs a log that ends at `end`.
    /// The loop asks again after that turn.
    pub(in crate::event_loop) fn wants(&mut self, end: u64) -> bool {
        if let Some(from) = self.from.take() {
            if end == from {
                self.fruitless += 1;
                return false;
            }
            self.fruitless = 0;
        }
        let tries = self.fruitless < FRUITLESS_MAX || self.without >= TRY_EVERY;
        let wants = self.made < LOOKS_MAX && tries;
        if wants {
            (self.from, self.made, self.without) = (Some(end), self.made + 1, 0);
        }
        wants
    }

    /// Notes a sync.
    pub(in crate::event_loop) const fn handle_synced(&mut self) {
        (self.from, self.made) = (None, 0);
        self.without = self.without.saturating_add(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the looks that the loop makes in `syncs` syncs if the first `brings` looks before each sync
    /// bring a message.
    fn looks(syncs: u32, brings: u32) -> u32 {
        let (mut looks, mut made, mut end) = (Looks::default(), 0, 0);
        for _ in 0..syncs {
            let mut left = brings;
            while looks.wants(end) {
                made += 1;
                end += u64::from(left > 0);
                left = left.saturating_sub(1);
            }
            looks.handle_synced();
        }
        made
    }

    #[test]
    fn a_lone_caller_pays_for_few_looks() {
        assert!(looks(1600, 0) <= 110, "{}", looks(1600, 0));
    }

    #[test]
    fn looks_go_on_while_they_bring_messages_up_to_a_bound() {
        assert_eq!(looks(100, 1), 200);
        assert_eq!(looks(100, u32::MAX), 300);
    }
}
