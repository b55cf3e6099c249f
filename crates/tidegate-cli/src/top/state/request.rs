//! The requests to a monitor, its answers, and the failures of requests.

use std::time::Duration;

use serde_json::Value;

/// The number of rows of a list in one request, while the list stands in the server's order.
pub(crate) const PAGE: u64 = 128;
/// The number of rows of a list in one request, while a search or another order needs all rows.
pub(crate) const SWEEP_PAGE: u64 = 512;

/// A question to the monitor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    /// The general figures of the server.
    Server,
    /// The readiness of the server.
    Health,
    /// The boundaries, with the samples of the last seconds if there is a number.
    Boundaries(Option<u16>),
    /// The counts of streams, and the nodes that keep the directory of streams.
    Storage,
    /// A page of streams.
    Streams(Page),
    /// A page of streams with their consumers.
    Consumers(Page),
    /// A page of the clients' connections.
    Connections(Page),
    /// The connections to the other nodes.
    Routes,
}

/// A part of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Page {
    /// The number of rows before the part.
    pub(crate) offset: u64,
    /// The greatest number of rows in the part.
    pub(crate) limit: u64,
}

impl Request {
    /// Returns the path that answers the request, without parameters, by which notes name it.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Server => "/varz",
            Self::Health => "/healthz",
            Self::Boundaries(_) => "/boundaries",
            Self::Storage | Self::Streams(_) | Self::Consumers(_) => "/jsz",
            Self::Connections(_) => "/connz",
            Self::Routes => "/routez",
        }
    }

    /// Returns the path with its parameters.
    pub(crate) fn path(self) -> String {
        let name = self.name();
        let of = |page: Page| format!("offset={}&limit={}", page.offset, page.limit);
        match self {
            Self::Boundaries(Some(seconds)) => format!("{name}?history={seconds}"),
            Self::Streams(page) => format!("{name}?streams=true&{}", of(page)),
            Self::Consumers(page) => format!("{name}?consumers=true&{}", of(page)),
            Self::Connections(page) => format!("{name}?{}", of(page)),
            Self::Server | Self::Health | Self::Boundaries(None) | Self::Storage | Self::Routes => {
                name.to_owned()
            }
        }
    }
}

/// An answer of the monitor: a status of HTTP, and a body of JSON.
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
    #[error("the answer is not HTTP")]
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
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths() {
        let page = Page {
            offset: 256,
            limit: 128,
        };
        assert_eq!(Request::Server.path(), "/varz");
        assert_eq!(Request::Boundaries(None).path(), "/boundaries");
        assert_eq!(
            Request::Boundaries(Some(60)).path(),
            "/boundaries?history=60"
        );
        assert_eq!(
            Request::Consumers(page).path(),
            "/jsz?consumers=true&offset=256&limit=128"
        );
        assert_eq!(
            Request::Connections(page).path(),
            "/connz?offset=256&limit=128"
        );
    }

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
