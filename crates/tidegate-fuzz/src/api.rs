//! The API accepts any subject, headers and body as a request, or refuses them with an answer; a
//! configuration means the same after a round trip.

use tidegate_stream::api::{Refusal, Request, answer, strip};
use tidegate_stream::schema::config::{ConsumerConfig, StreamConfig};

/// Runs the target on one input.
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
