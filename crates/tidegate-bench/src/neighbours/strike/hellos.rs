//! The attack by TLS hellos: many clients without credentials send the first message of a TLS handshake at
//! the same moment, and never finish the handshake. The servers of this bench accept TLS and plain text on
//! the same port.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use super::{Deeds, Job, Strike};
use crate::wire::dial;

/// The longest time for which the attack waits for the greetings on all connections, before it sends all
/// hellos together.
const GREETINGS: Duration = Duration::from_secs(1);
/// The pause between two checks of all connections, so that the attackers leave the core to the neighbours.
const LOOK: Duration = Duration::from_millis(2);

pub(super) fn prepare(job: Job) -> Strike {
    // The preparation opens no connection, because a server closes connections that do not log in within two
    // seconds. The attack itself opens them.
    Box::new(move |until| strike(&job, until))
}

/// One connection of the attack, and the progress of the server on it.
struct Client {
    stream: TcpStream,
    greeted: bool,
    answered: bool,
    closed: bool,
}

impl Client {
    /// Reads the bytes that have arrived, and records if the server has greeted, answered or closed the
    /// connection.
    fn look(&mut self) {
        let mut part = [0; 4096];
        if self.closed {
            return;
        }
        match self.stream.read(&mut part) {
            Ok(0) => self.closed = true,
            Ok(len) => {
                let said = &part[..len];
                // The greeting is a line of text; the answer to the hello is a TLS record.
                self.greeted |= said.contains(&b'\n');
                self.answered |= said[0] == 0x16;
            }
            Err(e) if e.kind() == ErrorKind::WouldBlock => {}
            Err(_) => self.closed = true,
        }
    }
}

fn strike(job: &Job, until: Instant) -> anyhow::Result<Deeds> {
    let mut clients = Vec::new();
    let mut refused = None;
    for _ in 0..job.amount {
        match dial(job.addr, job.source, GREETINGS) {
            Ok(stream) => {
                stream.set_nonblocking(true)?;
                clients.push(Client {
                    stream,
                    greeted: false,
                    answered: false,
                    closed: false,
                });
            }
            Err(e) => refused = Some(format!("{e:#}")),
        }
    }
    let all = |clients: &mut [Client], until: Instant, done: fn(&Client) -> bool| {
        while Instant::now() < until {
            clients.iter_mut().for_each(Client::look);
            if clients.iter().all(|c| done(c) || c.closed) {
                break;
            }
            std::thread::sleep(LOOK);
        }
    };
    all(&mut clients, Instant::now() + GREETINGS, |c| c.greeted);
    let (hello, start) = (hello(), Instant::now());
    for client in &mut clients {
        client.closed |= client.stream.write_all(&hello).is_err();
    }
    all(&mut clients, until, |c| c.answered);
    let count = |of: fn(&Client) -> bool| clients.iter().filter(|c| of(c)).count() as f64;
    let deeds = Deeds::default()
        .put("hellos", clients.len() as f64)
        .put("answered", count(|c| c.answered))
        .put("closed_unanswered", count(|c| c.closed && !c.answered))
        .put("lasted_s", start.elapsed().as_secs_f64());
    Ok(match refused {
        Some(e) => deeds.note(format!(
            "{} of {} connections: {e}",
            clients.len(),
            job.amount
        )),
        None => deeds,
    })
}

/// Returns a ClientHello of TLS 1.2 that offers only ECDHE with an RSA signature, so that the server has to
/// sign with its RSA key for its answer.
fn hello() -> Vec<u8> {
    let extensions: &[&[u8]] = &[
        // The extension supported_groups: x25519, secp256r1.
        &[0, 10, 0, 6, 0, 4, 0, 29, 0, 23],
        // The extension signature_algorithms: rsa_pss_rsae_sha256, rsa_pkcs1_sha256.
        &[0, 13, 0, 6, 0, 4, 8, 4, 4, 1],
    ];
    let extensions = extensions.concat();
    let mut body = vec![3, 3];
    body.extend([7; 32]);
    // The bytes say: no session, the cipher TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256, no compression.
    body.extend([0, 0, 2, 0xc0, 0x2f, 1, 0]);
    body.extend((extensions.len() as u16).to_be_bytes());
    body.extend(extensions);
    let len = body.len() as u16;
    let mut record = vec![0x16, 3, 1];
    record.extend((len + 4).to_be_bytes());
    record.extend([1, 0]);
    record.extend(len.to_be_bytes());
    record.extend(body);
    record
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_in_the_hello_match() {
        let hello = hello();
        let length = |at: usize| usize::from(u16::from_be_bytes([hello[at], hello[at + 1]]));
        assert_eq!(length(3), hello.len() - 5);
        assert_eq!(length(7), hello.len() - 9);
    }
}
