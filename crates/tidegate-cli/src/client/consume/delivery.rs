//! Parses a delivered message's reply subject, which holds the message's place in its stream and its
//! consumer.

/// The parts of a delivered message's reply subject by which `tidegate consume` notices gaps and the end.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Delivery {
    pub(super) stream_seq: u64,
    pub(super) consumer_seq: u64,
    /// The number of messages that the consumer has not delivered yet, by which the command finds the
    /// stream's end.
    pub(super) pending: u64,
}

impl Delivery {
    /// Parses a reply subject of 9 words, or of 11 and more words with a domain and an account in front.
    pub(super) fn parse(reply: &str) -> Option<Self> {
        let words: Vec<&str> = reply.strip_prefix("$JS.ACK.")?.split('.').collect();
        let rest = match words.len() {
            7 => &words[..],
            9.. => &words[2..],
            _ => return None,
        };
        let number = |at: usize| rest.get(at)?.parse().ok();
        Some(Self {
            stream_seq: number(3)?,
            consumer_seq: number(4)?,
            pending: number(6)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_of_a_reply_subject() {
        let found = Some(Delivery {
            stream_seq: 7,
            consumer_seq: 8,
            pending: 9,
        });
        assert_eq!(Delivery::parse("$JS.ACK.S.C.1.7.8.123.9"), found);
        assert_eq!(Delivery::parse("$JS.ACK._.abc.S.C.1.7.8.123.9"), found);
        assert_eq!(Delivery::parse("$JS.ACK._.abc.S.C.1.7.8.123.9.more"), found);
        for wrong in [
            "$JS.ACK.S.C.1.7.8.123",
            "$JS.ACK.S.C.1.7.8.123.9.1",
            "$JS.ACK.S.C.1.x.8.1.9",
            "x",
        ] {
            assert_eq!(Delivery::parse(wrong), None, "{wrong}");
        }
    }
}
