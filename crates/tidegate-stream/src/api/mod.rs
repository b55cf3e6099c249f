//! The JetStream API, by which clients use streams and consumers, as pure code without clock, socket or file:
//! requests go in, answers come out.
//!
//! [`strip`] recognises the subject of a request, and [`Request::parse`] reads the request into one closed
//! enum or refuses it with the answer to send. [`view`] makes answers from the views of streams and
//! consumers; [`direct`] reads messages step by step. Answers to publishers have a writer of their own
//! ([`puback`]), because the server writes one for each message.
//!
//! [`schema`](crate::schema) holds the configurations and the errors, and [`status`] holds the answers that
//! are not JSON.

pub mod answer;
pub mod body;
pub mod direct;
mod json;
mod limits;
mod listing;
pub mod pedantic;
pub mod puback;
pub mod republish;
mod request;
mod shown;
pub mod status;
mod subjects;
pub mod view;

pub use limits::Limits;
pub use listing::Listing;
pub use request::{NAME_BYTES_MAX, Refusal, Request, strip};
pub use shown::LiveConsumer;
pub use subjects::{SubjectList, SubjectPage};
