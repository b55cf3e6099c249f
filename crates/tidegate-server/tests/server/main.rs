//! Tests a real server on real sockets: stock clients, hostile clients, TLS, the monitor, and the server's
//! end.

#![allow(clippy::unwrap_used)] // Tests throughout, helpers included.

mod boundaries;
mod clients;
mod dashboard;
mod ending;
mod hostile;
mod messages;
mod metrics;
mod monitor;
mod raw;
mod secured;
mod spans;
mod system;

use std::net::SocketAddr;
use std::thread::JoinHandle;

use tidegate_server::config::Settings;
use tidegate_server::config::apply;
use tidegate_server::config::{System, read_nats};
use tidegate_server::{Handle, Server};

/// A server that runs on a thread of its own; it drains when the test drops this value.
struct Running {
    address: SocketAddr,
    handle: Handle,
    thread: Option<JoinHandle<()>>,
}

/// Reads settings from a configuration text, for a server on a free port.
fn settings(text: &str) -> Settings {
    try_settings(text).unwrap()
}

/// Reads settings as [`settings`] does, or returns the error as the operator reads it.
fn try_settings(text: &str) -> Result<Settings, String> {
    let mut settings = Settings {
        port: 0,
        ..Settings::default()
    };
    let directory = std::path::PathBuf::new();
    let map = read_nats(text, &System { directory }).map_err(|e| e.to_string())?;
    apply(&map, &mut settings).map_err(|e| e.to_string())?;
    Ok(settings)
}

fn start(text: &str) -> Running {
    run(settings(text))
}

fn run(settings: Settings) -> Running {
    serve(Server::bind(settings).unwrap())
}

fn serve(server: Server) -> Running {
    Running {
        address: server.address(),
        handle: server.handle(),
        thread: Some(std::thread::spawn(move || server.run().unwrap())),
    }
}

impl Running {
    fn url(&self) -> String {
        format!("nats://{}", self.address)
    }

    /// Waits until the server has ended by itself.
    fn join(mut self) {
        self.thread.take().unwrap().join().unwrap();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take() {
            self.handle.drain().unwrap();
            let outcome = thread.join();
            assert!(
                std::thread::panicking() || outcome.is_ok(),
                "the server panicked"
            );
        }
    }
}
