//! Tests of backups with the `nats` program: of this server, of real nats-servers, and in both directions.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;

use super::server::Server;

/// The backups that real nats-servers made of the stream `ORDERS`, and their version.
const REAL: [(&str, &[u8]); 2] = [
    (
        "2.12",
        include_bytes!("../../../tidegate-stream/src/backup/tests/nats-server-2.12.s2"),
    ),
    (
        "2.15",
        include_bytes!("../../../tidegate-stream/src/backup/tests/nats-server-2.15.s2"),
    ),
];

/// The `nats` program as a client of one server, which makes backups and restores them.
struct Nats {
    program: PathBuf,
    url: String,
}

impl Nats {
    fn of(url: &str) -> Option<Self> {
        Some(Self {
            program: tidegate_testing::nats()?,
            url: url.to_owned(),
        })
    }

    fn run(&self, args: &[&str]) -> (bool, String) {
        let mut command = Command::new(&self.program);
        command.args(["-s", &self.url, "--timeout=20s"]).args(args);
        for variable in ["NATS_URL", "NATS_CONTEXT"] {
            command.env_remove(variable);
        }
        let output = command
            .env("XDG_CONFIG_HOME", env!("CARGO_TARGET_TMPDIR"))
            .env("NO_COLOR", "1")
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned()
            + &String::from_utf8_lossy(&output.stderr);
        (output.status.success(), text)
    }

    #[track_caller]
    fn good(&self, args: &[&str]) -> String {
        let (good, text) = self.run(args);
        assert!(good, "nats {args:?}: {text}");
        text
    }

    #[track_caller]
    fn json(&self, args: &[&str]) -> Value {
        serde_json::from_str(&self.good(args)).unwrap()
    }

    /// Creates a stream with headers, gaps, removed messages and consumers, all of which a backup must keep.
    fn fill(&self) {
        self.good(&[
            "stream",
            "add",
            "ORDERS",
            "--subjects",
            "orders.>",
            "--storage",
            "file",
            "--defaults",
        ]);
        for n in 1..=10 {
            let (subject, body) = (format!("orders.{n}"), format!("message {n}"));
            let id = format!("Nats-Msg-Id:id{n}");
            self.good(&["pub", &subject, &body, "-H", &format!("X-N:{n}"), "-H", &id]);
        }
        let large = "x".repeat(3000);
        self.good(&["pub", "orders.big", "--count", "300", &large]);
        for n in ["3", "7", "310"] {
            self.good(&["stream", "rmm", "ORDERS", n, "-f"]);
        }
        self.good(&["stream", "purge", "ORDERS", "--seq", "2", "-f"]);
        let pull = [
            "consumer", "add", "ORDERS", "PULL", "--pull", "--ack", "explicit",
        ];
        self.good(&[&pull[..], &["--defaults"]].concat());
        let filtered = [
            "consumer",
            "add",
            "ORDERS",
            "FILT",
            "--pull",
            "--filter",
            "orders.big",
        ];
        self.good(&[&filtered[..], &["--ack", "explicit", "--defaults"]].concat());
        self.good(&[
            "consumer", "next", "ORDERS", "PULL", "--count", "4", "--ack",
        ]);
        self.good(&[
            "consumer", "next", "ORDERS", "PULL", "--count", "3", "--no-ack",
        ]);
        self.good(&[
            "consumer", "next", "ORDERS", "FILT", "--count", "5", "--ack",
        ]);
    }

    /// Returns the facts about the stream that a backup must keep. Times are in microseconds, because this
    /// server keeps no nanoseconds.
    fn facts(&self) -> Value {
        let info = self.json(&["stream", "info", "ORDERS", "--json"]);
        let micros = |v: &Value| {
            let text = v.as_str().unwrap_or_default().trim_end_matches('Z');
            let (secs, part) = text.split_once('.').unwrap_or((text, ""));
            let part: String = part.chars().chain("000000".chars()).take(6).collect();
            format!("{secs}.{part}")
        };
        let state = &info["state"];
        let numbers = [
            "messages",
            "bytes",
            "first_seq",
            "last_seq",
            "num_deleted",
            "num_subjects",
        ];
        let numbers: Vec<&Value> = numbers.iter().map(|name| &state[name]).collect();
        let get = |seq: u64| {
            let seq = seq.to_string();
            let m = self.json(&["stream", "get", "ORDERS", &seq, "--json"]);
            json!([
                m["subject"],
                m["seq"],
                m["hdrs"],
                m["data"],
                micros(&m["time"])
            ])
        };
        let messages: Vec<Value> = [2, 4, 5, 6, 8, 9, 10, 11].map(get).to_vec();
        let consumer = |name: &str| {
            let c = self.json(&["consumer", "info", "ORDERS", name, "--json"]);
            json!([
                c["config"]["filter_subject"],
                c["delivered"]["consumer_seq"],
                c["delivered"]["stream_seq"],
                c["ack_floor"]["consumer_seq"],
                c["ack_floor"]["stream_seq"],
                c["num_ack_pending"],
                c["num_pending"],
            ])
        };
        json!([
            numbers,
            micros(&state["first_ts"]),
            micros(&state["last_ts"]),
            messages,
            consumer("PULL"),
            consumer("FILT"),
        ])
    }

    fn backup(&self, directory: &Path) {
        let directory = directory.to_str().unwrap();
        self.good(&["stream", "backup", "ORDERS", directory, "--consumers"]);
    }

    #[track_caller]
    fn restore(&self, directory: &Path) {
        self.good(&["stream", "restore", directory.to_str().unwrap()]);
    }

    fn names(&self) -> String {
        self.good(&["stream", "ls", "--names"])
    }
}

/// Writes a backup with this data into a directory, in the form in which the `nats` program keeps backups.
fn kept(data: &[u8]) -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    let config = json!({
        "name": "ORDERS", "subjects": ["orders.>"], "retention": "limits", "max_consumers": -1,
        "max_msgs": -1, "max_bytes": -1, "max_age": 0, "max_msg_size": -1, "storage": "file",
        "discard": "old", "num_replicas": 1, "duplicate_window": 120_000_000_000_u64,
        "max_msgs_per_subject": -1, "allow_direct": true, "metadata": {"_nats.req.level": "0"},
    });
    let state = json!({"messages": 36, "bytes": 88787, "first_seq": 2, "last_seq": 40});
    let meta = json!({"config": config, "state": state}).to_string();
    std::fs::write(directory.path().join("backup.json"), meta).unwrap();
    std::fs::write(directory.path().join("stream.tar.s2"), data).unwrap();
    directory
}

#[test]
fn a_backup_comes_back() {
    let (from, to) = (Server::start(), Server::start());
    let Some(nats) = Nats::of(&from.url) else {
        return;
    };
    nats.fill();
    let facts = nats.facts();
    let directory = tempfile::tempdir().unwrap();
    nats.backup(directory.path());
    let other = Nats::of(&to.url).unwrap();
    other.restore(directory.path());
    assert_eq!(other.facts(), facts);
    // The name is in use now, so a second restore must fail.
    let path = directory.path().to_str().unwrap();
    let (good, text) = other.run(&["stream", "restore", path]);
    assert!(!good && text.contains("already exist"), "{text}");
    // The restored stream must survive a crash and accept messages.
    let to = to.restart();
    let other = Nats::of(&to.url).unwrap();
    assert_eq!(other.facts(), facts);
    other.good(&["pub", "orders.new", "one more", "--jetstream"]);
    let info = other.json(&["stream", "info", "ORDERS", "--json"]);
    assert_eq!(info["state"]["last_seq"], json!(311));
    // The stream must recognise a duplicate of a restored message.
    let id = "Nats-Msg-Id:id9";
    other.good(&["pub", "orders.9", "again", "-H", id, "--jetstream"]);
    let info = other.json(&["stream", "info", "ORDERS", "--json"]);
    assert_eq!(info["state"]["last_seq"], json!(311));
}

#[test]
fn an_account_comes_back() {
    let (from, to) = (Server::start(), Server::start());
    let Some(nats) = Nats::of(&from.url) else {
        return;
    };
    nats.fill();
    nats.good(&[
        "stream",
        "add",
        "EMPTY",
        "--subjects",
        "e",
        "--storage",
        "file",
        "--defaults",
    ]);
    let facts = nats.facts();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("account");
    let path = path.to_str().unwrap();
    nats.good(&["account", "backup", path, "--consumers", "--force"]);
    let other = Nats::of(&to.url).unwrap();
    other.good(&["account", "restore", path]);
    assert_eq!(other.facts(), facts);
    assert_eq!(other.names(), "EMPTY\nORDERS\n");
}

#[test]
fn backups_of_real_nats_servers_are_restored() {
    for (version, data) in REAL {
        let server = Server::start();
        let Some(nats) = Nats::of(&server.url) else {
            return;
        };
        nats.restore(kept(data).path());
        let info = nats.json(&["stream", "info", "ORDERS", "--json"]);
        let state = &info["state"];
        assert_eq!(
            [&state["messages"], &state["first_seq"], &state["last_seq"]],
            [&json!(36), &json!(2), &json!(40)],
            "{version}"
        );
        let pull = nats.json(&["consumer", "info", "ORDERS", "PULL", "--json"]);
        assert_eq!(pull["ack_floor"]["stream_seq"], json!(6), "{version}");
        assert_eq!(pull["num_ack_pending"], json!(3), "{version}");
        assert_eq!(pull["num_pending"], json!(29), "{version}");
    }
}

#[test]
fn a_cut_or_damaged_backup_leaves_nothing() {
    let server = Server::start();
    let Some(nats) = Nats::of(&server.url) else {
        return;
    };
    for (version, data) in REAL {
        let mut damaged = data.to_vec();
        damaged[data.len() / 2] ^= 0xff;
        for bad in [&data[..data.len() / 2], &damaged, b"no backup", b""] {
            let directory = kept(bad);
            let path = directory.path().to_str().unwrap();
            let (good, text) = nats.run(&["stream", "restore", path]);
            assert!(
                !good && text.contains("restore failed"),
                "{version}: {text}"
            );
            assert!(!nats.names().contains("ORDERS"), "{version}");
        }
    }
}

/// A running nats-server, if `bench/peers` has the program.
pub(super) struct Rival {
    child: Child,
    pub(super) url: String,
    _data: TempDir,
}

impl Rival {
    pub(super) fn start() -> Option<Self> {
        let program = tidegate_testing::nats()?.with_file_name("nats-server");
        if !program.exists() {
            println!("nats-server is not installed (bench/peers/install.sh go-nats)");
            return None;
        }
        let data = tempfile::tempdir().unwrap();
        let child = Command::new(program)
            .args(["-js", "-a", "127.0.0.1", "-p", "-1", "--ports_file_dir"])
            .arg(data.path())
            .arg("-sd")
            .arg(data.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let file = data
            .path()
            .join(format!("nats-server_{}.ports", child.id()));
        // The test waits for this file, because the server writes it once it listens and gives no other sign.
        let ports = loop {
            let text = std::fs::read(&file).unwrap_or_default();
            match serde_json::from_slice::<Value>(&text) {
                Ok(ports) => break ports,
                Err(_) => std::thread::yield_now(),
            }
        };
        let url = ports["nats"][0].as_str().unwrap().to_owned();
        Some(Self {
            child,
            url,
            _data: data,
        })
    }
}

impl Drop for Rival {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_stream_goes_to_nats_server_and_back() {
    let Some(rival) = Rival::start() else {
        return;
    };
    // The test restores a backup of nats-server on this server.
    let theirs = Nats::of(&rival.url).unwrap();
    theirs.fill();
    let facts = theirs.facts();
    let directory = tempfile::tempdir().unwrap();
    theirs.backup(directory.path());
    let server = Server::start();
    let ours = Nats::of(&server.url).unwrap();
    ours.restore(directory.path());
    assert_eq!(ours.facts(), facts);
    // The test restores a backup of this server on another nats-server.
    let directory = tempfile::tempdir().unwrap();
    ours.backup(directory.path());
    let rival = Rival::start().unwrap();
    let theirs = Nats::of(&rival.url).unwrap();
    theirs.restore(directory.path());
    let (mut facts, theirs) = (facts, theirs.facts());
    // nats-server reports the time of the last remaining message, even from a backup of its own.
    facts[2] = theirs[2].clone();
    assert_eq!(theirs, facts);
}
