//! Shows the dashboard of a program's own boundary: `cargo run -p tidegate-monitor --example own_dashboard`,
//! then http://127.0.0.1:9000/dashboard in a browser.
//!
//! The program is an actor that inserts rows: 2 ms a batch and 20 us a row, and some threads that call it.
//! The server is the least that answers a browser on this machine, one request after the other. A program
//! with an HTTP server of its own gives the same answers there.

use std::error::Error;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use tidegate::{Time, batcher, nanos};
use tidegate_monitor::{Observed, Sampler, page};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

type Failure = Box<dyn Error + Send + Sync>;

fn main() -> Result<(), Failure> {
    let inserts = batcher::spawn(|rows: &mut Vec<u64>| {
        thread::sleep(Duration::from_micros(2000 + 20 * rows.len() as u64));
    })?;
    for caller in 0..32 {
        let inserts = inserts.clone();
        thread::spawn(move || {
            while inserts.blocking_call(caller).is_ok() {
                thread::sleep(Duration::from_millis(caller));
            }
        });
    }
    let listener = TcpListener::bind("127.0.0.1:9000")?;
    println!("http://{}/dashboard", listener.local_addr()?);
    let (mut sampler, started) = (Sampler::new(), Instant::now());
    for stream in listener.incoming() {
        let mut stream = stream?;
        stream.set_read_timeout(Some(Duration::from_secs(2)))?;
        let Ok((path, host, origin)) = request(&stream) else {
            continue;
        };
        let answer = match page::check(host.as_deref(), origin.as_deref(), &[]) {
            Err(refusal) => text(
                "403 Forbidden",
                "text/plain",
                refusal.to_string().as_bytes(),
            ),
            Ok(()) if path == "/boundaries" => {
                let now = Time::from_nanos(nanos(started.elapsed()));
                let seen = (
                    inserts.blocking_controller()?,
                    inserts.blocking_size_costs()?,
                );
                let observed = Observed::new("inserts", "rows", seen.0, seen.1);
                let wall = OffsetDateTime::now_utc().format(&Rfc3339)?;
                let json = sampler.observe(now, &wall, [observed]);
                text("200 OK", "application/json", json.as_bytes())
            }
            Ok(()) => match page::file(&path) {
                Some(file) => text("200 OK", file.content_type, file.body),
                None => text("404 Not Found", "text/plain", b"expected /dashboard"),
            },
        };
        // The browser may have closed the connection, which does no harm.
        let _ = stream.write_all(&answer);
    }
    Ok(())
}

/// Reads the path of a request, and its headers `Host` and `Origin`.
fn request(stream: &TcpStream) -> Result<(String, Option<String>, Option<String>), Failure> {
    let mut lines = BufReader::new(stream).lines().take(100);
    let first = lines.next().ok_or("no request")??;
    let target = first.split(' ').nth(1).unwrap_or("/");
    let path = target.split('?').next().unwrap_or("/").to_owned();
    let (mut host, mut origin) = (None, None);
    for line in lines {
        let line = line?;
        match line.split_once(": ") {
            Some((name, value)) if name.eq_ignore_ascii_case("host") => host = Some(value.into()),
            Some((name, value)) if name.eq_ignore_ascii_case("origin") => {
                origin = Some(value.into())
            }
            Some(_) => {}
            None => break,
        }
    }
    Ok((path, host, origin))
}

fn text(status: &str, content_type: &str, body: &[u8]) -> Vec<u8> {
    let mut answer =
        format!("HTTP/1.1 {status}\r\ncontent-type: {content_type}\r\nconnection: close\r\n");
    for (name, value) in page::HEADERS {
        answer += &format!("{name}: {value}\r\n");
    }
    answer += &format!("content-length: {}\r\n\r\n", body.len());
    [answer.as_bytes(), body].concat()
}
