//! Answers the line protocol by which a bench controls one load at a time: `hello`, `load`, `measure`,
//! `rest`.

use std::io::{self, BufRead, Write};

use serde_json::{Value, json};

use crate::request::{Ask, Request};
use crate::running::{Allocated, Running};

/// A client that this process offers to the bench.
#[derive(Clone, Copy, Debug)]
pub struct System {
    /// The client's name, by which requests and reports name it.
    pub name: &'static str,
    /// The version of the client, as this program was built with it.
    pub version: &'static str,
    /// The function [`Running::start`] for this client's type.
    pub start: fn(&Ask) -> Result<Running, String>,
}

/// Answers the bench's requests until the input ends, each with one line.
///
/// # Errors
/// The input cannot be read, or the reader of the answers is gone.
pub fn serve(
    requests: impl BufRead,
    mut answers: impl Write,
    systems: &[System],
    allocated: Allocated,
) -> io::Result<()> {
    let mut running = None;
    for line in requests.lines() {
        let line = line?;
        if line.trim().is_empty() {
            continue;
        }
        let answer = answer(&line, systems, allocated, &mut running);
        let answer = answer.unwrap_or_else(|error| json!({ "error": error }));
        writeln!(answers, "{answer}")?;
        answers.flush()?;
    }
    Ok(())
}

fn answer(
    line: &str,
    systems: &[System],
    allocated: Allocated,
    running: &mut Option<Running>,
) -> Result<Value, String> {
    let request = Request::parse(line)?;
    match request.verb {
        "hello" => {
            let list = systems
                .iter()
                .map(|system| json!({"system": system.name, "version": system.version}));
            Ok(json!({ "systems": list.collect::<Vec<_>>() }))
        }
        "load" if running.is_some() => Err("there is a load already: rest first".into()),
        "load" => {
            let ask = request.ask()?;
            let system = systems.iter().find(|system| system.name == ask.system);
            let system = system.ok_or_else(|| format!("unknown system: {}", ask.system))?;
            *running = Some((system.start)(&ask)?);
            Ok(json!({}))
        }
        "measure" => {
            let window = request.seconds()?;
            let running = running.as_ref();
            running
                .ok_or("nothing to measure: load first")?
                .measure(window, allocated)
        }
        "rest" => {
            *running = None;
            Ok(json!({}))
        }
        verb => Err(format!("unknown request: {verb}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::running::Client;

    /// A client for tests that answers itself after a while. If the address asks for it, its GET answers a
    /// value that is too short, which the load must notice.
    #[derive(Clone)]
    struct Echo {
        bytes: usize,
    }

    impl Client for Echo {
        async fn connect(ask: &Ask) -> Result<Self, String> {
            if ask.addr == "nowhere" {
                return Err("cannot connect to nowhere".into());
            }
            Ok(Self {
                bytes: ask.value_bytes - usize::from(ask.addr == "bad"),
            })
        }

        async fn publish(&mut self, _: &str, _: &str) -> Result<(), String> {
            tokio::task::yield_now().await;
            Ok(())
        }

        async fn get(&mut self, _: &str) -> Result<usize, String> {
            tokio::task::yield_now().await;
            Ok(self.bytes)
        }

        async fn set(&mut self, _: &str, _: &str) -> Result<(), String> {
            tokio::task::yield_now().await;
            Ok(())
        }
    }

    fn talk(lines: &str) -> Vec<Value> {
        let system = System {
            name: "echo",
            version: "1",
            start: Running::start::<Echo>,
        };
        let mut answers = Vec::new();
        serve(lines.as_bytes(), &mut answers, &[system], || (0, 0)).unwrap();
        let answers = String::from_utf8(answers).unwrap();
        let answers = answers
            .lines()
            .map(|line| serde_json::from_str(line).unwrap());
        answers.collect()
    }

    fn error(answer: &Value) -> &str {
        answer["error"].as_str().unwrap_or_default()
    }

    const LOAD: &str = "load system=echo addr=here command=mix value=64 callers=3 warm_up=0.01";

    #[test]
    fn a_load_is_measured_until_it_rests() {
        for more in [
            "",
            " workers=2",
            " threads=1",
            " rate=20000",
            " rate=20000 workers=2",
        ] {
            let lines = format!(
                "hello\n\n{LOAD}{more}\n{LOAD}\nmeasure seconds=0.05\nrest\nrest\nmeasure seconds=1\n"
            );
            let answers = talk(&lines);
            assert_eq!(answers[0]["systems"][0]["system"], "echo");
            assert_eq!(error(&answers[2]), "there is a load already: rest first");
            assert!(answers[3]["ops_per_s"].as_f64().unwrap() > 0.0, "{more}");
            assert!(answers[3]["p50_us"].as_f64().is_some(), "{more}");
            assert_eq!(error(&answers[6]), "nothing to measure: load first");
        }
    }

    #[test]
    fn what_goes_wrong_is_told() {
        let bad = LOAD.replace("here", "bad").replace("mix", "get");
        let answers = talk(&format!(
            "fly\n{}\n{}\n{bad}\nmeasure seconds=0.05\n",
            LOAD.replace("echo", "other"),
            LOAD.replace("here", "nowhere"),
        ));
        assert_eq!(error(&answers[0]), "unknown request: fly");
        assert_eq!(error(&answers[1]), "unknown system: other");
        assert_eq!(error(&answers[2]), "cannot connect to nowhere");
        assert!(
            answers[3..]
                .iter()
                .any(|answer| error(answer) == "GET answered 63 bytes, not 64")
        );
    }
}
