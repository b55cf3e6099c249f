//! Tests the TLS handshakes of many clients with a real server. The tests run the server's turns one by one,
//! and pause its pool of threads.

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
use crate::config::{HandshakeFirst, Settings, StreamSettings, TlsSettings};
use crate::event_loop::pool::OF_SOURCE_MAX;

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
    fn new() -> Self {
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
                connection_rate_limit: 0,
                only_tls13: false,
                maps_users: false,
                cipher_suites: Vec::new(),
                curves: Vec::new(),
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
        let server = Server::bind(settings).unwrap();
        Self {
            server,
            events: Events::with_capacity(1024),
            trusting: Arc::new(trusting),
            clients: Vec::new(),
            _files: files,
        }
    }

    /// Connects `count` more clients to the server, and lets each client send its TLS hello.
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

    /// Runs one turn of the server's event loop.
    fn turn(&mut self) {
        let next = self.server.turn(&mut self.events, Some(Duration::ZERO));
        assert!(next.unwrap().is_continue());
    }

    /// Runs one turn of the server's event loop, and returns the number of its connections.
    fn turn_and_count(&mut self) -> usize {
        self.turn();
        self.count(|_| true)
    }

    /// Returns the number of the server's connections for which `at` returns true.
    fn count(&self, at: impl Fn(&Conn) -> bool) -> usize {
        self.server.conns.iter().flatten().filter(|c| at(c)).count()
    }

    /// Returns the number of hellos that wait in the queue, each from an open connection.
    fn waiting(&self) -> usize {
        self.count(|c| c.place.is_some() && matches!(c.opening, Opening::Hello { .. }))
    }
}

impl Client {
    /// Lets the client read and write as far as its socket allows. Returns whether the client's handshake is
    /// over.
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

/// Many clients say hello at once. The pool answers all of them, at most [`OF_SOURCE_MAX`] of one address at
/// the same moment, and the server answers the clients' next messages.
#[test]
fn clients_that_waited_are_served() {
    let mut world = World::new();
    world.say_hello(30);
    while !world.clients.iter_mut().all(Client::go_on) {
        world.turn();
        assert!(world.count(|c| c.socket.is_away()) <= OF_SOURCE_MAX);
        world.clients.iter_mut().for_each(|c| _ = c.go_on());
    }
    for client in &mut world.clients {
        client.tls.writer().write_all(b"PING\r\n").unwrap();
    }
    let mut answered = [false; 30];
    while !answered.iter().all(|a| *a) {
        world.turn();
        for (client, answered) in world.clients.iter_mut().zip(&mut answered) {
            *answered |= client.is_answered();
        }
    }
    assert!(world.server.handshakes.is_empty());
    assert_eq!(world.count(|c| c.place.is_some()), 0);
}

#[test]
fn a_client_that_hangs_up_while_it_waits_costs_nothing() {
    let mut world = World::new();
    world.server.pool.paused = true;
    world.say_hello(10);
    while world.waiting() < 10 {
        world.turn();
    }
    world.clients.clear();
    while world.count(|_| true) > 0 {
        world.turn();
    }
    assert!(world.server.handshakes.is_empty());
    assert_eq!(world.server.pool.steps(), 0);
}

/// Tests a client that closes its connection while a thread has the connection's TLS session.
#[test]
fn a_session_of_a_connection_that_ended_is_dropped() {
    let mut world = World::new();
    world.say_hello(10);
    while world.count(|c| c.socket.is_away()) == 0 {
        world.turn();
    }
    world.server.pool.paused = true;
    world.clients.clear();
    while world.count(|_| true) > 0 {
        world.turn();
    }
    // The thread returns the session, the server drops it, and the thread is free again.
    while !world.server.pool.is_idle() {
        world.turn();
    }
    world.server.pool.paused = false;
    world.say_hello(1);
    while !world.clients[0].go_on() {
        world.turn();
    }
}

/// Checks that the time of a client's handshake runs only while the server waits for the client.
#[test]
fn waiting_for_the_pool_does_not_count() {
    let mut world = World::new();
    world.server.pool.paused = true;
    world.say_hello(10);
    while world.waiting() < 10 {
        world.turn();
    }
    let late = world.server.clock.now() + Duration::from_secs(601);
    world.server.node.handle_timeouts(late);
    assert_eq!(world.turn_and_count(), 10);
    world.server.pool.paused = false;
    let begun = |c: &Conn| matches!(c.opening, Opening::Handshake { .. }) && !c.socket.is_away();
    while world.count(begun) < 10 {
        world.turn();
    }
    let late = late + Duration::from_secs(601);
    world.server.node.handle_timeouts(late);
    while world.count(|_| true) > 0 {
        world.turn();
    }
    assert!(world.server.handshakes.is_empty());
}

/// Tests that each turn sends a waiting page of subjects to a free thread, because no event would wake the
/// loop for the page.
#[test]
fn no_page_of_subjects_waits_after_a_turn_for_a_thread_that_is_free() {
    let directory = tempfile::tempdir().unwrap();
    let mut server = Server::bind(Settings {
        host: "127.0.0.1".into(),
        port: 0,
        streams: Some(StreamSettings::new(directory.path().into())),
        ..Settings::default()
    })
    .unwrap();
    let mut events = Events::with_capacity(1024);
    let mut client = TcpStream::connect(server.address()).unwrap();
    client.set_nonblocking(true).unwrap();
    let request = |what: &str, body: &str| {
        format!("PUB $JS.API.STREAM.{what}.S r {}\r\n{body}\r\n", body.len())
    };
    let create = request(
        "CREATE",
        r#"{"name":"S","subjects":["s.>"],"storage":"memory"}"#,
    );
    let messages: String = (0..100)
        .map(|n| format!("PUB s.{n} r 1\r\nx\r\n"))
        .collect();
    let info = request("INFO", r#"{"subjects_filter":">"}"#);
    let (mut heard, mut turns) = (String::new(), 0);
    let start = format!("CONNECT {{\"verbose\":false}}\r\nSUB r 1\r\n{create}");
    for (text, answer, times) in [
        (start, "stream_create_response", 1),
        (messages, "\"seq\":100", 1),
        (info.repeat(3), "stream_info_response", 3),
    ] {
        client.write_all(text.as_bytes()).unwrap();
        while heard.matches(answer).count() < times {
            turns += 1;
            assert!(turns < 10_000, "no {answer}: {heard}");
            let next = server.turn(&mut events, Some(Duration::from_millis(10)));
            assert!(next.unwrap().is_continue());
            let waits = server.node.has_page() && server.pool.may_encode();
            assert!(!waits, "a page waits, and a thread is free");
            let mut bytes = [0; 1 << 16];
            match client.read(&mut bytes) {
                Ok(len) => heard += &String::from_utf8_lossy(&bytes[..len]),
                Err(e) => assert_eq!(e.kind(), ErrorKind::WouldBlock, "{e}"),
            }
        }
    }
    assert_eq!(heard.matches("\"total\":100").count(), 3, "{heard}");
}
