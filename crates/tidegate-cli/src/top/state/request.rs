//! The requests of `tidegate top` to a monitor.

pub(crate) use crate::monitor::{Failure, Reply};

/// The number of rows of a list in one request, while the list stands in the server's order.
pub(crate) const PAGE: u64 = 128;
/// The number of rows of a list in one request, while a search or another order needs all rows.
pub(crate) const SWEEP_PAGE: u64 = 512;

/// The path of the overview, by which the state knows that a server has none.
pub(crate) const OVERVIEW: &str = "/overview";
/// The seconds of samples that a request for the overview wants: enough for two samples.
const THREADS_S: u16 = 5;

/// A question to the monitor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    /// The general figures of the server.
    Server,
    /// The readiness of the server; a server with an overview is not asked.
    Health,
    /// The overview of a Tidegate server, with the samples of the last seconds.
    Overview,
    /// The boundaries, with the samples of the last seconds if there is a number.
    Boundaries(Option<u16>),
    /// The counts of streams, and the nodes that keep the directory of streams; a server with an overview is
    /// not asked.
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
            Self::Overview => OVERVIEW,
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
            Self::Overview => format!("{name}?history={THREADS_S}"),
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
        assert_eq!(Request::Overview.path(), "/overview?history=5");
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
}
