//! Holds idle connections and counts what the server does meanwhile: wake-ups of its loop, CPU time, memory.
//!
//! `cargo run --release -p tidegate-server --example idle_server -- [CONNECTIONS] [SECONDS]`, by default 5000
//! for 30 s.

use std::error::Error;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::Value;
use tidegate_server::config::Settings;
use tidegate_server::{Monitor, Server};

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let mut number = |default| args.next().map_or(Ok(default), |a| a.parse());
    let (connections, seconds) = (number(5000)?, number(30)?);
    let server = Server::bind(Settings {
        port: 0,
        ..Settings::default()
    })?;
    let (address, handle) = (server.address(), server.handle());
    let monitor = Monitor::start("127.0.0.1", 0, handle.clone())?;
    let thread = std::thread::spawn(move || server.run());
    let mut held = Vec::new();
    for i in 0..connections {
        let mut stream = TcpStream::connect(address)?;
        write!(
            stream,
            "CONNECT {{\"verbose\":false}}\r\nSUB idle.{i} 1\r\nPING\r\n"
        )?;
        let mut seen = Vec::new();
        let mut buf = [0; 1024];
        while !seen.ends_with(b"PONG\r\n") {
            let n = stream.read(&mut buf)?;
            if n == 0 {
                return Err("the server closed a connection".into());
            }
            seen.extend_from_slice(&buf[..n]);
        }
        held.push(stream);
    }
    let before = varz(monitor.address())?;
    std::thread::sleep(Duration::from_secs(seconds));
    let after = varz(monitor.address())?;
    let of = |v: &Value, key: &str| v[key].as_f64().unwrap_or(0.0);
    let turns = of(&after, "loop_turns") - of(&before, "loop_turns");
    println!(
        "{} connections held for {seconds} s",
        of(&after, "connections")
    );
    // The example subtracts the turn of its own question, which wakes the loop once.
    println!("{} wake-ups of the loop", turns - 1.0);
    println!(
        "{:.1} ms of CPU",
        (of(&after, "cpu_seconds") - of(&before, "cpu_seconds")) * 1e3
    );
    println!(
        "{:.1} MB of memory, this program's included",
        of(&after, "mem") / 1e6
    );
    handle.drain()?;
    drop(held);
    thread.join().map_err(|_| "the server panicked")??;
    Ok(())
}

fn varz(monitor: SocketAddr) -> Result<Value, Box<dyn Error>> {
    let mut stream = TcpStream::connect(monitor)?;
    stream.write_all(b"GET /varz HTTP/1.0\r\n\r\n")?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    let body = text.split_once("\r\n\r\n").ok_or("no answer")?.1;
    Ok(serde_json::from_str(body)?)
}
