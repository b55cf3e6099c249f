//! Handshakes of many clients at a real server: the tests run its turns one by one, and set the
//! cost of a handshake.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use mio::Events;
use rcgen::{CertifiedKey, generate_simple_self_signed};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, RootCertStore};

use super::super::{Conn, Opening, Server};
use crate::config::{HandshakeFirst, Settings, TlsSettings};
use crate::event_loop::handshakes::BUDGET;

/// A server, and clients that speak TLS with it.
struct World {
    server: Server,
    events: Events,
    trusting: Arc<ClientConfig>,
    clients: Vec<Client>,
    _files: tempfile::TempDir,
}

struct Client {
    socket: TcpStream,
    tls: ClientConnection,
}

impl World {
    /// Returns a world in which each handshake costs `cost`.
    fn new(cost: Duration) -> Self {
        let CertifiedKey { cert, signing_key } =
            generate_simple_self_signed(vec!["localhost".into()]).unwrap();
        let files = tempfile::tempdir().unwrap();
        let file = |name: &str, text: String| -> PathBuf {
            let path = files.path().join(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        let settings = Settings {
            host: "127.0.0.1".into(),
            port: 0,
            tls: Some(TlsSettings {
                cert_file: file("cert.pem", cert.pem()),
                key_file: file("key.pem", signing_key.serialize_pem()),
                ca_file: None,
                verify: false,
                timeout: Duration::from_secs(600),
                handshake_first: HandshakeFirst::Always,
            }),
            ..Settings::default()
        };
        let mut roots = RootCertStore::empty();
        roots.add(cert.der().clone()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let trusting = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let mut server = Server::bind(settings).unwrap();
        server.handshake_cost = Some(cost);
        Self {
            server,
            events: Events::with_capacity(1024),
            trusting: Arc::new(trusting),
            clients: Vec::new(),
            _files: files,
        }
    }

    /// Connects `count` more clients, which send their hello.
    fn say_hello(&mut self, count: usize) {
        for _ in 0..count {
            let socket = TcpStream::connect(self.server.address()).unwrap();
            socket.set_nonblocking(true).unwrap();
            let name = ServerName::try_from("localhost").unwrap();
            let mut tls = ClientConnection::new(Arc::clone(&self.trusting), name).unwrap();
            while tls.wants_write() {
                tls.write_tls(&mut &socket).unwrap();
            }
            self.clients.push(Client { socket, tls });
        }
    }

    /// Runs one turn and returns the number of handshakes that it advanced.
    fn turn(&mut self) -> usize {
        let before = self.server.handshakes_gone_on_with;
        let next = self.server.turn(&mut self.events, Some(Duration::ZERO));
        assert!(next.unwrap().is_continue());
        self.server.handshakes_gone_on_with - before
    }

    /// The number of connections at this point of their opening.
    fn count(&self, at: impl Fn(&Conn) -> bool) -> usize {
        self.server.conns.iter().flatten().filter(|c| at(c)).count()
    }

    /// The number of waiting hellos, each of an open connection.
    fn waiting(&self) -> usize {
        self.count(|c| c.place.is_some() && matches!(c.opening, Opening::Hello { .. }))
    }
}

impl Client {
    /// Reads and writes as far as possible. Returns whether the handshake is over.
    fn go_on(&mut self) -> bool {
        match self.tls.read_tls(&mut self.socket) {
            Ok(_) => drop(self.tls.process_new_packets().unwrap()),
            Err(e) => assert_eq!(e.kind(), ErrorKind::WouldBlock),
        }
        while self.tls.wants_write() {
            self.tls.write_tls(&mut self.socket).unwrap();
        }
        !self.tls.is_handshaking()
    }

    /// Returns whether the client has received the answer to its PING.
    fn is_answered(&mut self) -> bool {
        self.go_on();
        let mut text = [0; 4096];
        let len = self.tls.reader().read(&mut text).unwrap_or(0);
        text[..len].windows(6).any(|w| w == b"PONG\r\n")
    }
}

/// All hellos arrive before the first handshake is over, and the clients send nothing more
/// meanwhile: none of their events wakes a waiting connection.
#[test]
fn hellos_wait_for_the_turns_that_have_room_for_them() {
    for (cost, most) in [
        (BUDGET / 2, 2),
        (BUDGET, 1),
        (3 * BUDGET, 1),
        (BUDGET / 10, 10),
    ] {
        let mut world = World::new(cost);
        world.say_hello(30);
        let mut turns = 0;
        while world.count(|c| matches!(c.opening, Opening::Handshake { .. })) < 30 {
            let done = world.turn();
            assert!(done <= most, "{done} handshakes at {cost:?} each");
            let waits = world.waiting() > 0;
            assert!(!waits || done == most, "{done} handshakes, and others wait");
            assert_eq!(waits, !world.server.handshakes.is_empty());
            // Until the last hello has arrived, turns may find little to do.
            turns += usize::from(done > 0);
            assert!(turns <= 30);
        }
    }
}

/// The handshakes end, and the server answers the clients' next messages.
#[test]
fn clients_that_waited_are_served() {
    let mut world = World::new(BUDGET);
    world.say_hello(12);
    while !world.clients.iter_mut().all(Client::go_on) {
        assert!(world.turn() <= 1);
        world.clients.iter_mut().for_each(|c| _ = c.go_on());
    }
    for client in &mut world.clients {
        client.tls.writer().write_all(b"PING\r\n").unwrap();
    }
    let mut answered = [false; 12];
    while !answered.iter().all(|a| *a) {
        assert!(world.turn() <= 1);
        for (client, answered) in world.clients.iter_mut().zip(&mut answered) {
            *answered |= client.is_answered();
        }
    }
    assert!(world.server.handshakes.is_empty());
    assert_eq!(world.count(|c| c.place.is_some()), 0);
}

#[test]
fn a_client_that_hangs_up_while_it_waits_costs_nothing() {
    let mut world = World::new(BUDGET);
    world.say_hello(10);
    while world.waiting() < 9 {
        world.turn();
    }
    world.clients.clear();
    while world.count(|_| true) > 0 {
        world.turn();
    }
    assert!(world.server.handshakes.is_empty());
    // Their turn came before the loop saw their hangup.
    let gone_on_with = world.server.handshakes_gone_on_with;
    assert!(
        gone_on_with < 5,
        "{gone_on_with} handshakes for 10 that hung up"
    );
}

#[test]
fn an_expired_handshake_costs_nothing() {
    let mut world = World::new(BUDGET);
    world.say_hello(10);
    while world.waiting() < 9 {
        world.turn();
    }
    let before = world.server.handshakes_gone_on_with;
    let late = world.server.clock.now() + Duration::from_secs(601);
    world.server.node.handle_timeouts(late);
    while world.count(|_| true) > 0 {
        world.turn();
    }
    assert!(world.server.handshakes.is_empty());
    assert_eq!(world.server.handshakes_gone_on_with, before);
}
