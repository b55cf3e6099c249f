//! A fuzz target for the parser of JetStream API requests. The target gives the parser any subject, headers
//! and body. The parser must return a request, or refuse it with a well-formed answer. The configuration in
//! a parsed request must stay the same when the target writes it as JSON and reads it again.

use tidegate_stream::api::{Refusal, Request, answer, strip};
use tidegate_stream::schema::config::{ConsumerConfig, StreamConfig};

/// Runs the fuzz target on one input. Panics if the tested code breaks a promise.
pub fn run(data: &[u8]) {
    let mut parts = data.splitn(3, |b| *b == 0);
    let [subject, headers, body] = [(); 3].map(|()| parts.next().unwrap_or_default());
    let asked = strip(subject, Some("hub")).unwrap_or(subject);
    match Request::parse(asked, headers, body) {
        Ok(Request::StreamCreate { config, .. } | Request::StreamUpdate { config, .. }) => {
            let json = serde_json::to_vec(&config).expect("strings and numbers");
            let again: StreamConfig = serde_json::from_slice(&json).expect("its own JSON");
            assert_eq!(again, *config);
        }
        Ok(Request::ConsumerCreate { config, .. }) => {
            let json = serde_json::to_vec(&config).expect("strings and numbers");
            let again: ConsumerConfig = serde_json::from_slice(&json).expect("its own JSON");
            assert_eq!(again, *config);
        }
        Ok(_) => {}
        Err(Refusal::Error(kind, error)) => {
            let json = answer::refused(kind, &error);
            serde_json::from_slice::<serde_json::Value>(&json).expect("an answer is JSON");
        }
        Err(Refusal::Status(block)) => assert!(block.ends_with(b"\r\n\r\n")),
    }
}
