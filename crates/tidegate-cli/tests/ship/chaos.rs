//! Tests that ship a file while they kill the sender, the receiver and the connection at random: the output
//! must equal the input.
//!
//! Each round prints its seed. The seed decides the input, the kinds of faults, and the number of bytes on
//! the wire before each fault. The machine decides the timing of the programs, as in production.
//! `SHIP_ROUNDS=200` runs more rounds, and `SHIP_SEED=7` only the round with this seed.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::program::{DEADLINE, Program};
use super::proxy::Proxy;

/// The number of rounds if `SHIP_ROUNDS` is not set.
const ROUNDS: u64 = 15;

/// The random generator SplitMix64, by which a seed decides the faults of a round.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
}

/// The input of the sender, which decides which programs a fault may kill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// A file under a session name, which a restarted sender reads again.
    File,
    /// Standard input, which a restarted sender would lack, so no fault kills the sender.
    Input,
    /// Standard input with a spool, from which a restarted sender continues.
    Spool,
}

fn lines(random: &mut Random) -> Vec<u8> {
    let mut input = Vec::new();
    for at in 0..100 + random.below(3000) {
        let len = match random.below(50) {
            0 => random.below(20_000),
            1..10 => 0,
            _ => random.below(100),
        };
        input.extend_from_slice(format!("{at} ").as_bytes());
        input.extend((0..len).map(|_| b' ' + random.below(90) as u8));
        input.push(b'\n');
    }
    if random.below(2) == 0 {
        input.pop();
    }
    input
}

struct Round {
    way: Way,
    input: Arc<[u8]>,
    from: PathBuf,
    to: PathBuf,
    spool: PathBuf,
    proxy: Proxy,
    receiver: Program,
    sender: Program,
}

impl Round {
    fn new(directory: &Path, random: &mut Random) -> Self {
        let way = [Way::File, Way::Input, Way::Spool][random.below(3) as usize];
        let (from, to) = (directory.join("from"), directory.join("to"));
        let input: Arc<[u8]> = lines(random).into();
        std::fs::write(&from, &input).unwrap();
        let (receiver, address) = Program::append(&to);
        let proxy = Proxy::new(address);
        let spool = directory.join("spool");
        let sender = send(way, &proxy, &input, &from, &spool);
        Self {
            way,
            input,
            from,
            to,
            spool,
            proxy,
            receiver,
            sender,
        }
    }

    /// Returns the number of bytes that the proxy carries before the next fault. After enough faults the
    /// number has no bound, so that the round ends.
    fn bytes(&self, random: &mut Random, events: u32) -> u64 {
        let most = self.input.len() as u64 / 2 + 500;
        if events < 12 {
            random.below(most)
        } else {
            u64::MAX
        }
    }

    /// Applies a fault: kills the receiver, the sender, both or neither, and always cuts the connection.
    fn act(&mut self, what: u64) {
        if what & 1 != 0 {
            self.receiver.kill();
            let (receiver, address) = Program::append(&self.to);
            self.receiver = receiver;
            self.proxy.lead_to(address);
        }
        if what & 2 != 0 && self.way != Way::Input {
            self.sender.kill();
            self.sender = send(self.way, &self.proxy, &self.input, &self.from, &self.spool);
        }
        self.proxy.cut();
    }
}

fn send(way: Way, proxy: &Proxy, input: &Arc<[u8]>, from: &Path, spool: &Path) -> Program {
    let (from, spool) = (from.to_str().unwrap(), spool.to_str().unwrap());
    let common = ["--wait", "100s", "--session", "chaos"];
    let args: &[&str] = match way {
        Way::File => &[from],
        Way::Input => &["-"],
        Way::Spool => &["--spool", spool],
    };
    let mut sender = Program::send(proxy.address, &[&common, args].concat());
    let done = match way {
        Way::File => return sender,
        Way::Input => 0,
        Way::Spool => {
            let line = sender.line("standard input goes on with record ");
            let next = line.rsplit(' ').next().unwrap();
            next.parse::<usize>().unwrap() - 1
        }
    };
    let mut stdin = sender.stdin.take().unwrap();
    let input = Arc::clone(input);
    std::thread::spawn(move || {
        let rest = input.split_inclusive(|byte| *byte == b'\n').skip(done);
        // A fault may have killed the sender, so the thread ignores a failed write.
        let _ = rest.into_iter().try_for_each(|line| stdin.write_all(line));
    });
    sender
}

fn round(seed: u64) {
    let directory = tempfile::tempdir().unwrap();
    let mut random = Random(seed);
    let mut round = Round::new(directory.path(), &mut random);
    let mut events = 0;
    let end = Instant::now() + DEADLINE;
    round.proxy.allow(round.bytes(&mut random, events));
    while !round.sender.has_ended() {
        assert!(Instant::now() < end, "seed {seed}: it does not end");
        if round.proxy.is_spent(Duration::from_millis(20)) {
            events += 1;
            // The proxy gets its next number of bytes before the fault, so that the next connection makes
            // progress.
            round.proxy.allow(round.bytes(&mut random, events));
            round.act(random.below(4));
        }
    }
    println!(
        "seed {seed}: {:?}, {} bytes, {events} events",
        round.way,
        round.input.len()
    );
    let Round {
        sender,
        receiver,
        to,
        from,
        way,
        proxy,
        input,
        ..
    } = round;
    let (code, _, stderr) = sender.wait();
    assert_eq!(code, 0, "seed {seed}: {stderr}");
    // All acked records are on the disk, so the test may kill the receiver.
    drop(receiver);
    let output = std::fs::read(&to).unwrap();
    assert!(
        output == *input,
        "seed {seed}, {way:?}: {}",
        differ(&output, &input)
    );
    if way == Way::File {
        let (_receiver, address) = Program::append(&to);
        proxy.lead_to(address);
        proxy.allow(u64::MAX);
        let again = send(way, &proxy, &input, &from, &from);
        again.succeed();
        assert!(
            std::fs::read(&to).unwrap() == *input,
            "seed {seed}: sent twice"
        );
    }
}

/// Describes how the output differs from the input.
fn differ(output: &[u8], input: &[u8]) -> String {
    let same = output.iter().zip(input).take_while(|(a, b)| a == b).count();
    let (out, of) = (output.len(), input.len());
    format!("{out} bytes of {of}, equal up to byte {same}")
}

#[test]
fn killing_and_cutting_loses_and_repeats_nothing() {
    let number = |name| {
        std::env::var(name)
            .ok()
            .map(|text| text.parse::<u64>().unwrap())
    };
    match number("SHIP_SEED") {
        Some(seed) => round(seed),
        None => (1..=number("SHIP_ROUNDS").unwrap_or(ROUNDS)).for_each(round),
    }
}
