//! A simulation of both halves of the link on a virtual clock: clients, a server with its sessions, and
//! connections that delay, split, stop and break.
//!
//! The number of a message determines its content, so the simulated handler can check each message as it
//! arrives. The simulation checks all invariants after every step. A seed determines the whole run.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use tidegate::Time;
use tidegate_link::frame::{Code, Layout};
use tidegate_link::hello::Answer;
use tidegate_link::proto::opening::{Kept, Opening, Terms, admit, detect};
use tidegate_link::proto::{
    Block, Decide, Event, Receiver, ReceiverConfig, ReceiverError, Sender, SenderConfig,
    SenderError, SessionConfig, cadence, writes,
};
use tidegate_link::{Seq, SessionId};

pub(crate) const US: u64 = 1_000;
pub(crate) const MS: u64 = 1_000_000;

/// A random generator with a seed, so that a run can be repeated: SplitMix64.
pub(crate) struct Rng(pub(crate) u64);

impl Rng {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.next() % n.max(1)
    }

    pub(crate) fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}

/// Returns the content of message `seq`: 0 to some 40 bytes, now and then 500.
pub(crate) fn payload(seq: u64) -> Vec<u8> {
    let mut rng = Rng(seq);
    let len = match rng.below(32) {
        0 => 500,
        1 => 0,
        n if n < 16 => 5,
        n => n,
    };
    (0..len)
        .map(|i| (seq as u8).wrapping_mul(31).wrapping_add(i as u8))
        .collect()
}

#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub(crate) plain: bool,
    pub(crate) checked: bool,
    pub(crate) when_done: bool,
    pub(crate) window: u64,
    pub(crate) frame_max: u32,
    pub(crate) idle_ms: u32,
    pub(crate) stall: Duration,
    /// The greatest number of bytes that one simulated read or write moves.
    pub(crate) chunk: usize,
    /// The greatest number of bytes that a simulated socket buffers in each direction.
    pub(crate) socket: usize,
    pub(crate) latency_ns: u64,
    /// The time from the handler's receipt of a batch until it reports the batch done.
    pub(crate) done_ns: u64,
    /// The size of the block that the client fills, in bytes.
    pub(crate) block: usize,
    pub(crate) held_max: usize,
    pub(crate) decide: Decide,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            plain: false,
            checked: false,
            when_done: false,
            window: 4096,
            frame_max: 1000,
            idle_ms: 30_000,
            stall: Duration::ZERO,
            chunk: usize::MAX,
            socket: 1 << 16,
            latency_ns: 50 * US,
            done_ns: 0,
            block: 256,
            held_max: 8192,
            decide: Decide::Resend,
        }
    }
}

/// One direction of a simulated connection.
#[derive(Default)]
pub(crate) struct Pipe {
    flight: VecDeque<(Time, Vec<u8>)>,
    len: usize,
    /// The number of bytes that have arrived at the other end.
    pub(crate) delivered: u64,
    /// One direction of a simulated connection, with the bytes on their way.
    closed: bool,
    /// The number of bytes after which the connection breaks: no later byte arrives.
    pub(crate) cut_at: Option<u64>,
    pub(crate) broken: bool,
}

impl Pipe {
    fn write(&mut self, at: Time, bytes: &[u8], socket: usize) -> usize {
        let n = bytes.len().min(socket.saturating_sub(self.len));
        if n > 0 {
            self.flight.push_back((at, bytes[..n].to_vec()));
            self.len += n;
        }
        n
    }

    fn read(&mut self, now: Time, most: usize) -> Vec<u8> {
        let mut out = Vec::new();
        while out.len() < most {
            let Some((at, bytes)) = self.flight.front_mut() else {
                break;
            };
            if *at > now {
                break;
            }
            let n = bytes.len().min(most - out.len());
            out.extend(bytes.drain(..n));
            if bytes.is_empty() {
                self.flight.pop_front();
            }
        }
        self.len -= out.len();
        if let Some(at) = self.cut_at {
            let left = at.saturating_sub(self.delivered) as usize;
            if out.len() >= left {
                out.truncate(left);
                self.broken = true;
            }
        }
        self.delivered += out.len() as u64;
        out
    }

    fn at_end(&self) -> bool {
        self.closed && self.flight.is_empty()
    }

    fn next(&self) -> Option<Time> {
        self.flight.front().map(|f| f.0)
    }
}

pub(crate) struct Conn {
    pub(crate) up: Pipe,
    pub(crate) down: Pipe,
    pub(crate) client: Option<usize>,
    pub(crate) server: Side,
    buf: Vec<u8>,
    session: Option<SessionId>,
    epoch: u64,
    /// The number of the last message that the handler of a plain connection has seen.
    seen: u64,
    pending: VecDeque<(Time, Seq)>,
    /// False if the server does not read.
    pub(crate) server_reads: bool,
}

pub(crate) enum Side {
    Opening,
    Open(Box<Receiver>),
    Refusing(Vec<u8>),
    Gone,
}

/// The state that the simulated server keeps of a session.
#[derive(Clone, Debug, Default)]
pub(crate) struct Session {
    pub(crate) epoch: u64,
    pub(crate) life: Option<u64>,
    pub(crate) received: u64,
    pub(crate) done: u64,
    pub(crate) acked: u64,
    pub(crate) conn: Option<usize>,
    pub(crate) skipped: u64,
    pending: VecDeque<(Time, Seq)>,
}

pub(crate) struct Client {
    pub(crate) sender: Sender,
    pub(crate) conn: Option<usize>,
    pub(crate) next: Option<u64>,
    /// The number of the last message that this client sends.
    pub(crate) until: u64,
    pub(crate) events: Vec<Event>,
    pub(crate) errors: Vec<SenderError>,
    pub(crate) ended: bool,
    filling: Vec<u8>,
    first: u64,
    acked_before: Seq,
    finish: bool,
}

pub(crate) struct World {
    pub(crate) now: Time,
    pub(crate) options: Options,
    pub(crate) clients: Vec<Client>,
    pub(crate) conns: Vec<Conn>,
    pub(crate) sessions: BTreeMap<SessionId, Session>,
    pub(crate) server_errors: Vec<ReceiverError>,
    epochs: u64,
    /// The numbers of bytes after which the next connection breaks, in the direction to the server and in the
    /// direction to the client.
    pub(crate) cut: (Option<u64>, Option<u64>),
    pub(crate) trace: Option<Vec<String>>,
    /// True if the server may have lost messages that it acknowledged, so that its sessions may start again
    /// from the beginning.
    pub(crate) forgetful: bool,
}

pub(crate) const SESSION: SessionId = SessionId(*b"pair's session..");

impl Client {
    /// Keeps the client open after its last message, so that a test can look at an idle connection.
    pub(crate) fn keep_open(&mut self) {
        self.finish = false;
    }
}

impl World {
    pub(crate) fn new(options: Options) -> Self {
        Self {
            now: Time::from_nanos(1),
            options,
            clients: Vec::new(),
            conns: Vec::new(),
            sessions: BTreeMap::new(),
            server_errors: Vec::new(),
            epochs: 100,
            cut: (None, None),
            trace: None,
            forgetful: false,
        }
    }

    fn note(&mut self, text: impl FnOnce() -> String) {
        let now = self.now;
        if let Some(t) = &mut self.trace {
            t.push(format!("{now:?} {}", text()));
        }
    }

    /// Creates a new client of the session, with a new life each time.
    pub(crate) fn client(&mut self, until: u64) -> usize {
        let o = &self.options;
        let life = self.clients.len() as u64 + 1;
        let session = (!o.plain).then(|| SessionConfig {
            id: SESSION,
            life,
            checked: o.checked,
            frame_max: o.frame_max,
            token: Vec::new(),
        });
        let config = SenderConfig {
            session,
            held_max: o.held_max,
            plain_window: o.window,
            write_max: 1 << 16,
            opening: Duration::from_secs(5),
            stall: o.stall,
        };
        self.clients.push(Client {
            sender: Sender::new(self.now, config, writes(1 << 16)),
            conn: None,
            next: None,
            until,
            events: Vec::new(),
            errors: Vec::new(),
            ended: false,
            filling: Vec::new(),
            first: 0,
            acked_before: Seq::NONE,
            finish: true,
        });
        self.clients.len() - 1
    }

    pub(crate) fn connect(&mut self, client: usize) {
        let cut = self.cut;
        self.cut = (None, None);
        let up = Pipe {
            cut_at: cut.0,
            ..Pipe::default()
        };
        let down = Pipe {
            cut_at: cut.1,
            ..Pipe::default()
        };
        self.conns.push(Conn {
            up,
            down,
            client: Some(client),
            server: Side::Opening,
            buf: Vec::new(),
            session: None,
            epoch: 0,
            seen: 0,
            pending: VecDeque::new(),
            server_reads: true,
        });
        let c = &mut self.clients[client];
        c.conn = Some(self.conns.len() - 1);
        c.sender.handle_connected(self.now);
        self.note(|| format!("client {client} connects"));
    }

    /// Breaks a connection. `client` and `server` say which side notices it now.
    pub(crate) fn break_up(&mut self, conn: usize, client: bool, server: bool) {
        self.note(|| format!("connection {conn} breaks: client {client}, server {server}"));
        if client && let Some(i) = self.conns[conn].client.take() {
            self.cut_client(i);
        }
        if server {
            self.drop_server(conn);
        }
    }

    fn cut_client(&mut self, i: usize) {
        let c = &mut self.clients[i];
        c.conn = None;
        if let Err(e) = c.sender.handle_cut() {
            c.errors.push(e);
            c.ended = true;
        }
        if self.options.plain || c.sender.is_drained() {
            c.ended = true;
        }
    }

    fn drop_server(&mut self, conn: usize) {
        let k = &mut self.conns[conn];
        k.server = Side::Gone;
        k.down.closed = true;
        if let Some(s) = k.session.and_then(|id| self.sessions.get_mut(&id))
            && s.conn == Some(conn)
        {
            s.conn = None;
        }
    }

    /// Restarts the simulated server, with the state that it kept or with none.
    pub(crate) fn restart(&mut self, keeps: bool) {
        self.note(|| format!("server restarts, keeps its state: {keeps}"));
        for i in 0..self.conns.len() {
            self.drop_server(i);
        }
        if keeps {
            for s in self.sessions.values_mut() {
                // A handler that stores its messages keeps only those that are done, and does not remember
                // the last client of the session.
                if self.options.when_done {
                    s.received = s.done;
                    s.pending.clear();
                }
                s.life = None;
            }
        } else {
            self.sessions.clear();
            self.forgetful = true;
        }
    }

    /// Steps all clients, connections and handlers once; returns whether anything happened.
    pub(crate) fn step(&mut self) -> bool {
        let mut moved = false;
        for i in 0..self.clients.len() {
            moved |= self.step_client(i);
        }
        moved |= self.step_handlers();
        for i in 0..self.conns.len() {
            moved |= self.step_server(i);
        }
        self.check();
        moved
    }

    fn step_client(&mut self, i: usize) -> bool {
        let now = self.now;
        let o = self.options.clone();
        let mut moved = false;
        let c = &mut self.clients[i];
        if c.ended {
            return false;
        }
        // The client reads the replies that have arrived.
        if let Some(conn) = c.conn {
            let k = &mut self.conns[conn];
            let bytes = k.down.read(now, o.chunk);
            moved |= !bytes.is_empty();
            let broken = k.down.broken || k.up.broken;
            let end = k.down.at_end();
            if !bytes.is_empty()
                && let Err(e) = c.sender.handle_read(now, &bytes)
            {
                c.ended |= !e.is_passing();
                c.errors.push(e);
                self.break_up(conn, true, false);
                self.conns[conn].up.closed = true;
                return true;
            }
            while let Some(event) = c.sender.poll_event() {
                match event {
                    Event::Opened { received, .. } => {
                        c.next.get_or_insert_with(|| received.get() + 1);
                    }
                    Event::Doubt(_) => {
                        if let Err(e) = c.sender.decide(now, o.decide) {
                            c.errors.push(e);
                            c.ended = true;
                        }
                    }
                    Event::Bye(code) => c.ended |= !code.is_passing(),
                    other => panic!("{other:?}"),
                }
                c.events.push(event);
            }
            if broken {
                self.break_up(conn, true, true);
                return true;
            }
            if end {
                self.break_up(conn, true, false);
                return true;
            }
        }
        let c = &mut self.clients[i];
        // The client encodes its next messages into blocks.
        while let Some(next) = c.next
            && next <= c.until
            && c.sender.has_room()
            && !c.ended
        {
            if c.filling.capacity() == 0 {
                c.filling = c.sender.take_spare().unwrap_or_default();
                c.filling.reserve(o.block);
                c.first = next;
            }
            let layout = c.sender.layout();
            layout.encode(Seq::new(next), &payload(next), &mut c.filling);
            c.next = Some(next + 1);
            if c.filling.len() + 50 > o.block || next == c.until || next % 7 == 0 {
                let block = Block {
                    bytes: std::mem::take(&mut c.filling),
                    first: Seq::new(c.first),
                    count: next + 1 - c.first,
                };
                c.sender.push(now, block).expect("there is room");
                moved = true;
            }
        }
        if c.finish && c.next.is_some_and(|n| n > c.until) {
            c.sender.close();
        }
        // The client writes as many bytes as the socket takes.
        if let Some(conn) = c.conn {
            let k = &mut self.conns[conn];
            loop {
                let mut slices = [&[][..]; 3];
                let n = c.sender.poll_transmit(now, &mut slices);
                let bytes = slices[..n].concat();
                let bytes = &bytes[..bytes.len().min(o.chunk)];
                let n = k.up.write(now.after(o.latency_ns), bytes, o.socket);
                if n == 0 {
                    break;
                }
                c.sender.wrote(now, n, 5 * US);
                moved = true;
            }
            if o.plain && c.sender.is_closing() && !k.up.closed {
                k.up.closed = true;
                moved = true;
            }
        }
        if c.sender.poll_timeout().is_some_and(|t| t <= now)
            && let Err(e) = c.sender.handle_timeout(now)
        {
            c.ended |= !e.is_passing();
            c.errors.push(e);
            if let Some(conn) = c.conn {
                self.conns[conn].up.closed = true;
                self.break_up(conn, true, false);
            }
            return true;
        }
        moved
    }

    /// Makes handlers report the batches that are due as done. A handler outlives its connections.
    fn step_handlers(&mut self) -> bool {
        let mut moved = false;
        for s in self.sessions.values_mut() {
            while s.pending.front().is_some_and(|p| p.0 <= self.now)
                && let Some((_, seq)) = s.pending.pop_front()
            {
                s.done = s.done.max(seq.get());
                if let Some(Side::Open(r)) = s.conn.map(|i| &mut self.conns[i].server) {
                    r.done(self.now, seq);
                }
                moved = true;
            }
        }
        moved
    }

    fn step_server(&mut self, i: usize) -> bool {
        let now = self.now;
        let o = self.options.clone();
        let mut moved = false;
        let k = &mut self.conns[i];
        while k.pending.front().is_some_and(|p| p.0 <= now)
            && let Some((_, seq)) = k.pending.pop_front()
        {
            if let Side::Open(r) = &mut k.server {
                r.done(now, seq);
            }
            moved = true;
        }
        if let Side::Gone = k.server {
            return moved;
        }
        if k.server_reads && k.buf.len() < (o.frame_max as usize + 12).max(2100) {
            let bytes = k.up.read(now, o.chunk.min(3000));
            moved |= !bytes.is_empty();
            k.buf.extend_from_slice(&bytes);
        }
        if let Side::Opening = k.server {
            moved |= self.open_server(i);
        }
        self.read_server(i);
        // The server writes its replies, as many bytes as the socket takes.
        let k = &mut self.conns[i];
        match &mut k.server {
            Side::Open(r) => {
                if r.poll_timeout().is_some_and(|t| t <= now)
                    && let Err(e) = r.handle_timeout(now)
                {
                    self.server_errors.push(e);
                }
                while let Some(bytes) = r.poll_transmit(now) {
                    let most = bytes.len().min(o.chunk);
                    let n = k
                        .down
                        .write(now.after(o.latency_ns), &bytes[..most], o.socket);
                    if n == 0 {
                        break;
                    }
                    r.wrote(now, n, 10 * US);
                    moved = true;
                }
                let (received, ready) = (r.received().get(), r.ready().get());
                let (acked, finished) = (r.acked().get(), r.is_finished());
                if let Some(s) = k.session.and_then(|id| self.sessions.get_mut(&id))
                    && s.conn == Some(i)
                {
                    // A message given up counts as received, and as done once all messages
                    // before it are done.
                    s.skipped += received - s.received;
                    s.received = received;
                    s.done = s.done.max(ready);
                    s.acked = s.acked.max(acked);
                }
                if finished {
                    self.drop_server(i);
                    moved = true;
                }
            }
            Side::Refusing(bytes) => {
                let n = k.down.write(now.after(o.latency_ns), bytes, o.socket);
                bytes.drain(..n);
                moved |= n > 0;
                if bytes.is_empty() {
                    self.drop_server(i);
                }
            }
            Side::Opening | Side::Gone => {}
        }
        let k = &mut self.conns[i];
        if k.up.at_end() && !matches!(k.server, Side::Gone) {
            let left = k.buf.len();
            match &mut k.server {
                Side::Open(r) if o.plain => {
                    let ended = r.is_closing();
                    if let Err(e) = r.handle_eof(now, left) {
                        self.server_errors.push(e);
                    }
                    moved |= !ended;
                }
                _ => self.drop_server(i),
            }
        }
        moved
    }

    fn open_server(&mut self, i: usize) -> bool {
        let now = self.now;
        let o = self.options.clone();
        let config = ReceiverConfig {
            frame_max: o.frame_max,
            window: o.window,
            when_done: o.when_done,
            idle: Duration::from_millis(o.idle_ms.into()),
        };
        let (hello, len) = match detect(&self.conns[i].buf) {
            Ok(Opening::More) => return false,
            Ok(Opening::Plain) => {
                let r = Receiver::plain(now, config, cadence());
                self.conns[i].server = Side::Open(Box::new(r));
                return true;
            }
            Ok(Opening::Session { hello, bytes }) => (hello, bytes),
            Err(e) => {
                self.note(|| format!("connection {i}: {e:?}"));
                self.drop_server(i);
                return true;
            }
        };
        let id = hello.session;
        // A new life waits until all received messages are done. If the server could fall back to the last
        // message done, the new life could not send the missing ones.
        if hello.epoch == 0
            && let Some(s) = self.sessions.get(&id)
            && s.done < s.received
        {
            return false;
        }
        self.conns[i].buf.drain(..len);
        let kept = self.sessions.get(&id).map(|s| Kept {
            epoch: s.epoch,
            received: Seq::new(s.received),
            acked: Seq::new(if o.when_done { s.acked } else { s.received }),
            life: s.life,
        });
        let terms = Terms {
            window: o.window,
            frame_max: o.frame_max,
            when_done: o.when_done,
            idle_ms: o.idle_ms,
        };
        self.epochs += 1;
        let answer = admit(&hello, kept, &terms, self.epochs);
        self.note(|| format!("{hello:?}: {answer:?}"));
        let welcome = match answer {
            Ok(welcome) => welcome,
            Err(refused) => {
                let bytes = Answer::Refused(refused).encode();
                self.conns[i].server = Side::Refusing(bytes);
                return true;
            }
        };
        let s = self.sessions.entry(id).or_insert_with(|| Session {
            received: welcome.received.get(),
            done: welcome.acked.get(),
            ..Session::default()
        });
        // The new connection displaces the old one. The old client learns of it if its connection still
        // works.
        let same = s.life == Some(hello.life);
        let old = s.conn.replace(i);
        s.epoch = welcome.epoch;
        s.life = Some(hello.life);
        s.acked = welcome.acked.get();
        let done = s.done;
        let k = &mut self.conns[i];
        k.session = Some(id);
        k.epoch = welcome.epoch;
        let mut r = Receiver::session(now, &welcome, cadence());
        r.done(now, Seq::new(done));
        k.server = Side::Open(Box::new(r));
        let n = k.down.write(
            now.after(o.latency_ns),
            &Answer::Welcome(welcome).encode(),
            1 << 20,
        );
        assert!(n > 0);
        if let Some(old) = old {
            let old = &mut self.conns[old];
            old.session = None;
            match &mut old.server {
                Side::Open(r) if !same => r.close(Code::Displaced),
                side => *side = Side::Gone,
            }
        }
        true
    }

    fn read_server(&mut self, i: usize) {
        let now = self.now;
        let o = &self.options;
        let Some(k) = self.conns.get_mut(i) else {
            return;
        };
        let Side::Open(r) = &mut k.server else { return };
        let mut at = 0;
        loop {
            let batch = match r.handle_read(now, &k.buf[at..]) {
                Ok(batch) => batch,
                Err(e) => {
                    self.server_errors.push(e);
                    at = k.buf.len();
                    break;
                }
            };
            let frames = &k.buf[at..][batch.frames.clone()];
            at += batch.taken;
            if batch.count > 0 {
                let mut seq = batch.first.get();
                for got in r.layout().payloads(frames) {
                    assert_eq!(got, payload(seq), "message {seq}");
                    match k.session.and_then(|id| self.sessions.get_mut(&id)) {
                        Some(s) => {
                            assert!(
                                s.conn == Some(i),
                                "a displaced connection hands out messages"
                            );
                            let skipped = seq - s.received - 1;
                            assert!(
                                skipped == 0 || o.decide == Decide::Drop,
                                "{seq} after {}",
                                s.received
                            );
                            s.skipped += skipped;
                            s.received = seq;
                        }
                        None => {
                            assert_eq!(seq, k.seen + 1);
                            k.seen = seq;
                        }
                    }
                    seq += 1;
                }
                assert_eq!(seq, batch.first.get() + batch.count);
                let last = Seq::new(seq - 1);
                let done_at = now.after(o.done_ns);
                match k.session.and_then(|id| self.sessions.get_mut(&id)) {
                    Some(s) if o.when_done => s.pending.push_back((done_at, last)),
                    Some(s) => s.done = s.received,
                    None => k.pending.push_back((done_at, last)),
                }
            } else if batch.taken == 0 {
                break;
            }
        }
        k.buf.drain(..at);
    }

    /// Checks the invariants that hold after every step.
    fn check(&mut self) {
        let o = &self.options;
        for c in &mut self.clients {
            c.sender.check_invariants();
            let acked = c.sender.acked();
            assert!(acked >= c.acked_before, "acknowledgements only go up");
            c.acked_before = acked;
            // The sender may accept one block more when it has just less than its limit, and the block's
            // memory may be twice the size asked for.
            assert!(
                c.sender.held_bytes() < o.held_max + 2 * o.block + 2048,
                "{}",
                c.sender.held_bytes()
            );
            if !o.plain
                && !self.forgetful
                && let Some(s) = self.sessions.get(&SESSION)
            {
                assert!(
                    acked.get() <= s.received,
                    "{acked} acknowledged of {}",
                    s.received
                );
                assert!(
                    !o.when_done || acked.get() <= s.done,
                    "acknowledged before it was done"
                );
            }
        }
        for k in &self.conns {
            assert!(k.buf.len() <= (o.frame_max as usize + 12).max(2100) + 3000);
            if let Side::Open(r) = &k.server {
                r.check_invariants();
                if r.layout() == Layout::Plain {
                    assert_eq!(r.received().get(), k.seen);
                }
            }
        }
    }

    /// Returns the time of the next event, to which the simulation may jump.
    pub(crate) fn next_time(&self) -> Option<Time> {
        let clients = self
            .clients
            .iter()
            .filter(|c| !c.ended)
            .filter_map(|c| c.sender.poll_timeout());
        let servers = self.conns.iter().filter_map(|k| match &k.server {
            Side::Open(r) => r.poll_timeout(),
            _ => None,
        });
        let pipes = self.conns.iter().flat_map(|k| {
            let up =
                k.up.next()
                    .filter(|_| k.server_reads && !matches!(k.server, Side::Gone));
            let down = k.down.next().filter(|_| k.client.is_some());
            [up, down]
        });
        let handlers = self
            .sessions
            .values()
            .filter_map(|s| s.pending.front().map(|p| p.0));
        let plain = self
            .conns
            .iter()
            .filter_map(|k| k.pending.front().map(|p| p.0));
        clients
            .chain(servers)
            .chain(pipes.flatten())
            .chain(handlers)
            .chain(plain)
            .min()
    }

    /// Steps the simulation until no more happens at the present time.
    pub(crate) fn settle(&mut self) {
        for _ in 0..1_000_000 {
            if !self.step() {
                return;
            }
        }
        panic!("it never settles");
    }

    /// Advances the time until `done`, and reconnects clients without a connection at once.
    pub(crate) fn run_until(&mut self, mut done: impl FnMut(&Self) -> bool) {
        let mut still = 0;
        for _ in 0..20_000 {
            self.settle();
            if done(self) {
                return;
            }
            for i in 0..self.clients.len() {
                let c = &self.clients[i];
                if c.conn.is_none() && !c.ended {
                    self.connect(i);
                }
            }
            self.settle();
            if let Some(t) = self.next_time() {
                still = if t <= self.now { still + 1 } else { 0 };
                assert!(still < 1000, "time stands still");
                self.now = self.now.max(t);
            }
        }
        for line in self.trace.iter().flatten() {
            println!("{line}");
        }
        panic!(
            "it never gets there: {:?}",
            self.clients
                .iter()
                .map(|c| (&c.sender, &c.errors))
                .collect::<Vec<_>>()
        );
    }

    /// Runs the simulation until every client has ended.
    pub(crate) fn run(&mut self) {
        self.run_until(|w| w.clients.iter().all(|c| c.ended));
    }
}
