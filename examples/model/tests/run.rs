//! Starts the endpoint, and asks it from many clients at once.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};

use example_servers::batches;

const CLIENTS: u64 = 16;
const TEXTS_EACH: u64 = 20;

/// The endpoint, which ends with the test.
struct Endpoint(Child);

impl Drop for Endpoint {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn each_client_gets_its_vector_and_passes_are_shared() {
    let mut endpoint = Command::new(env!("CARGO_BIN_EXE_example-model"))
        .arg("127.0.0.1:0")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(endpoint.stdout.take().unwrap());
    let _endpoint = Endpoint(endpoint);
    let mut line = String::new();
    said.read_line(&mut line).unwrap();
    let address = line.trim().strip_prefix("listening on ").unwrap();

    std::thread::scope(|threads| {
        for client in 0..CLIENTS {
            threads.spawn(move || {
                for n in 0..TEXTS_EACH {
                    // The first byte of the text decides the first number of its vector.
                    let text = char::from(b'a' + (client + n) as u8).to_string();
                    let mut answer =
                        ureq::post(format!("http://{address}/embed")).send(&text).unwrap();
                    let vector: Vec<f32> = answer.body_mut().read_json().unwrap();
                    assert_eq!(vector[0], f32::from(text.as_bytes()[0]));
                    assert_eq!(vector.len(), 8);
                }
            });
        }
    });

    let mut answer = ureq::get(format!("http://{address}/batching")).call().unwrap();
    let batching = answer.body_mut().read_to_string().unwrap();
    let texts = CLIENTS * TEXTS_EACH;
    assert!(batches(&batching, texts) < texts, "no two texts shared a pass:\n{batching}");
    for subject in ["batches by reason: ", "limit: "] {
        assert!(batching.contains(subject), "{subject} is missing in:\n{batching}");
    }
}
