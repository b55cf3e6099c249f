//! Starts the servers of async-nats's tests by the functions that these call: the `nats-server` in PATH.
//!
//! A server takes a free port, and writes its address into its log. Dropping it kills the process.

use std::io::{BufRead, BufReader};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::Mutex;
use std::time::{Duration, Instant};
use std::{env, fs, process, thread};

const START_LIMIT: Duration = Duration::from_secs(20);
const LISTENING: &str = "client connections on ";

/// A running server.
pub struct Server {
    config: String,
    port: Option<String>,
    /// The cluster's flags; none for a server alone.
    flags: Vec<String>,
    folder: PathBuf,
    child: Mutex<Child>,
}

/// Three servers with routes to each other.
pub struct Cluster {
    pub servers: Vec<Server>,
}

impl Cluster {
    /// Returns the URL of the first server.
    pub fn client_url(&self) -> String {
        self.servers[0].client_url()
    }
}

/// Gives each of the three servers of a cluster its configuration.
pub trait IntoConfig<'a> {
    fn into_config(self) -> [&'a str; 3];
}

impl<'a> IntoConfig<'a> for &'a str {
    fn into_config(self) -> [&'a str; 3] {
        [self; 3]
    }
}

impl<'a> IntoConfig<'a> for [&'a str; 3] {
    fn into_config(self) -> [&'a str; 3] {
        self
    }
}

/// Starts a server without a configuration file.
pub fn run_basic_server() -> Server {
    run_server("")
}

/// Starts a server with a configuration file, or with none if the name is empty.
pub fn run_server(config: &str) -> Server {
    run_server_with_port(config, None)
}

/// Starts a server on `port`, or on a free one.
pub fn run_server_with_port(config: &str, port: Option<&str>) -> Server {
    Server::new(config, port.map(str::to_string), Vec::new())
}

/// Starts a cluster, and returns once each of its servers accepts clients and had time to elect a leader.
pub fn run_cluster<'a, C: IntoConfig<'a>>(configs: C) -> Cluster {
    let routes: Vec<String> = (0..3)
        .map(|_| format!("nats://127.0.0.1:{}", free_port()))
        .collect();
    let servers: Vec<Server> = configs
        .into_config()
        .into_iter()
        .enumerate()
        .map(|(index, config)| {
            let name = format!("node{}", index + 1);
            let flags = [
                "--cluster",
                &routes[index],
                "--cluster_name",
                "cluster",
                "--routes",
                &routes.join(","),
                "-n",
                &name,
            ];
            Server::new(
                config,
                Some(free_port().to_string()),
                flags.map(str::to_string).to_vec(),
            )
        })
        .collect();
    servers.iter().for_each(|server| drop(server.address()));
    // The tests expect a cluster that answers at once.
    thread::sleep(Duration::from_secs(3));
    Cluster { servers }
}

/// Tells a server to enter lame duck mode.
pub fn set_lame_duck_mode(server: &Server) {
    let signal = format!("ldm={}", server.client_pid());
    let status = Command::new("nats-server")
        .args(["--signal", &signal])
        .status()
        .expect("nats-server in PATH");
    assert!(status.success(), "nats-server --signal {signal}: {status}");
}

/// Returns whether nothing listens on a port of this machine.
pub fn is_port_available(port: usize) -> bool {
    TcpListener::bind(("127.0.0.1", u16::try_from(port).expect("a port"))).is_ok()
}

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener
        .local_addr()
        .expect("the address of a listener")
        .port()
}

fn start(folder: &Path, config: &str, port: Option<&str>, flags: &[String]) -> Child {
    let mut command = Command::new("nats-server");
    command
        .arg("--store_dir")
        .arg(folder.join("store"))
        .args(["-p", port.unwrap_or("-1")]);
    command
        .arg("-l")
        .arg(folder.join("log"))
        .arg("-P")
        .arg(folder.join("pid"))
        .args(flags);
    if !config.is_empty() {
        command.args(["-c", config]);
    }
    command.spawn().expect("nats-server in PATH")
}

impl Server {
    fn new(config: &str, port: Option<String>, flags: Vec<String>) -> Server {
        static STARTED: AtomicU32 = AtomicU32::new(0);
        let number = STARTED.fetch_add(1, Ordering::Relaxed);
        let folder = env::temp_dir().join(format!("async-nats-{}-{number}", process::id()));
        fs::create_dir_all(&folder).expect("a folder for the server");
        let child = start(&folder, config, port.as_deref(), &flags);
        Server {
            config: config.to_string(),
            port,
            flags,
            folder,
            child: Mutex::new(child),
        }
    }

    /// Kills the server and starts it on the same port and data.
    pub fn restart(&mut self) {
        self.kill();
        fs::remove_file(self.folder.join("log")).expect("the log of the server");
        *self.child.get_mut().expect("the process") = start(
            &self.folder,
            &self.config,
            self.port.as_deref(),
            &self.flags,
        );
    }

    /// Returns the URL for clients, with the scheme `tls` if the server requires it.
    pub fn client_url(&self) -> String {
        let info = self.info();
        let scheme = if info.contains("\"tls_required\":true") {
            "tls"
        } else {
            "nats"
        };
        format!("{scheme}://localhost:{}", port_of(&info))
    }

    /// Returns the port for clients.
    pub fn client_port(&self) -> u16 {
        port_of(&self.info())
    }

    /// Returns the URL with a user and a password.
    pub fn client_url_with(&self, user: &str, pass: &str) -> String {
        self.client_url()
            .replacen("://", &format!("://{user}:{pass}@"), 1)
    }

    /// Returns the URL with a token.
    pub fn client_url_with_token(&self, token: &str) -> String {
        self.client_url()
            .replacen("://", &format!("://{token}@"), 1)
    }

    /// Returns the process id that the server has written.
    pub fn client_pid(&self) -> usize {
        let text =
            fs::read_to_string(self.folder.join("pid")).expect("the file with the process id");
        text.trim().parse().expect("a process id")
    }

    /// Returns the server's first line.
    fn info(&self) -> String {
        let stream = TcpStream::connect(self.address()).expect("a server that accepts clients");
        let mut line = String::new();
        BufReader::new(stream)
            .read_line(&mut line)
            .expect("the server's first line");
        line
    }

    /// Waits until the log has the address for clients, and returns it.
    fn address(&self) -> String {
        let began = Instant::now();
        while began.elapsed() < START_LIMIT {
            // A server that refuses its settings ends, and the test need not wait.
            let ended = self.child.lock().expect("the process").try_wait();
            if let Ok(Some(status)) = ended {
                panic!("the server has ended: {status}");
            }
            let log = fs::read_to_string(self.folder.join("log")).unwrap_or_default();
            let found = log
                .split_once(LISTENING)
                .and_then(|(_, rest)| rest.split_once('\n'));
            if let Some((address, _)) = found {
                return address.trim().replace("0.0.0.0", "127.0.0.1");
            }
            thread::sleep(Duration::from_millis(10));
        }
        panic!(
            "the server does not listen within {START_LIMIT:?}: {}",
            self.folder.display()
        );
    }

    fn kill(&mut self) {
        let child = self.child.get_mut().expect("the process");
        let _ = child.kill();
        let _ = child.wait();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Returns the port in the server's first line.
fn port_of(info: &str) -> u16 {
    let (_, rest) = info
        .split_once("\"port\":")
        .expect("a port in the server's first line");
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().expect("a port")
}
