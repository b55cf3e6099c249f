//! The figures of a running server, read from the answers of its monitor, pure.

pub(crate) mod boundaries;
pub(crate) mod browse;
mod inside;
pub(crate) mod json;
pub(crate) mod lists;
pub(crate) mod request;
pub(crate) mod server;

use self::request::Page;

/// Returns the page with all streams of a server that does not page them.
const fn whole_page() -> Page {
    Page {
        offset: 0,
        limit: 1024,
    }
}
