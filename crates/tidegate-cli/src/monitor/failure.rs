//! The answers of a monitor, and the failures of requests in words.

use std::time::Duration;

use serde_json::Value;

/// An answer of a monitor: a status of HTTP, and a body of JSON.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) body: Value,
}

/// The reason why a request has no JSON for an answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Failure {
    #[error("nothing listens there")]
    Refused,
    #[error("cannot connect: {0}")]
    Unreachable(String),
    #[error("no answer within {} s", .0.as_secs())]
    Silent(Duration),
    #[error("interrupted")]
    Interrupted,
    #[error("the connection broke before the end of the answer: {0}")]
    Cut(String),
    #[error("the peer does not speak HTTP")]
    NotHttp,
    #[error("the server answers {0}: {1}")]
    Status(u16, String),
    #[error("the answer is not JSON: {0}")]
    NotJson(String),
    #[error("the answer has more than {} MiB", .0 >> 20)]
    TooLarge(usize),
}

impl Failure {
    /// Returns whether no further request will fare better until the server or the network is back.
    pub(crate) const fn is_loss(&self) -> bool {
        match self {
            Self::Refused
            | Self::Unreachable(_)
            | Self::Silent(_)
            | Self::Interrupted
            | Self::Cut(_)
            | Self::NotHttp => true,
            Self::Status(..) | Self::NotJson(_) | Self::TooLarge(_) => false,
        }
    }

    /// Returns what the user may do, as the end of a message about the failure; empty if nothing is known.
    pub(crate) const fn hint(&self) -> &'static str {
        match self {
            Self::Refused => {
                "; start the server with `tidegate serve -m 8222`, or give the address of its monitor"
            }
            Self::NotHttp => "; give the port of the monitor (`serve -m`), not the port of clients",
            Self::Status(401 | 403, _) => {
                "; the monitor wants credentials, and this command sends none"
            }
            Self::Status(..) => {
                "; is this the monitor of a server, with its whole path, and is the server as new as this program?"
            }
            _ => "",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_strange_answer_is_no_loss() {
        assert!(Failure::Silent(Duration::from_secs(5)).is_loss());
        assert!(!Failure::Status(404, "no such page".into()).is_loss());
        assert_eq!(
            Failure::TooLarge(16 << 20).to_string(),
            "the answer has more than 16 MiB"
        );
    }
}
