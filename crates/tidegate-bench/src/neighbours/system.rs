//! Starts the servers that the bench `neighbours` attacks: ours and nats-server. Each server has two users
//! and keeps streams in files. For some attacks it has TLS beside plain text, or three nodes.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use serde_json::json;
use tidegate_cli::interrupt;

use crate::stream::{Membership, Server, product};
use crate::systems::System;
use crate::wire::Wire;

/// The name of the neighbours' stream.
pub(super) const STREAM: &str = "NEIGHBOURS";
/// The longest time that the nodes may take to form a cluster, before the bench gives up.
const FORM_MAX: Duration = Duration::from_secs(30);
/// The time after which the bench repeats a request, because a forming cluster may lose an answer.
const ATTEMPT: Duration = Duration::from_secs(2);

/// The name and password with which a client logs in.
pub(super) type Login = (String, String);

/// The users and programs that all servers of a run share.
#[derive(Clone, Debug)]
pub(super) struct Setting {
    /// The login of a user with a plain password.
    pub(super) plain: Login,
    /// The login of a user with a password hash in the configuration.
    pub(super) hashed: Login,
    pub(super) hash: String,
    pub(super) nats_server: Option<PathBuf>,
}

impl Setting {
    /// Returns the text of the configuration file for a node, which both our server and nats-server read.
    fn config(&self, system: System, data: &Path, certificate: Option<&Certificate>) -> String {
        let ((plain, password), (hashed, _), hash) = (&self.plain, &self.hashed, &self.hash);
        let mut text = format!(
            "authorization {{ users: [\n  {{ user: \"{plain}\", password: \"{password}\" }}\n  \
             {{ user: \"{hashed}\", password: \"{hash}\" }}\n] }}\n"
        );
        if let Some(Certificate { cert, key }) = certificate {
            let (cert, key) = (cert.display(), key.display());
            let _ = writeln!(
                text,
                "tls {{ cert_file: \"{cert}\", key_file: \"{key}\" }}\nallow_non_tls: true"
            );
        }
        let sync = match system {
            System::Ours => return text,
            System::Nats => "",
            System::NatsAlways => ", sync_interval: always",
        };
        let data = data.display();
        let _ = writeln!(text, "jetstream {{ store_dir: \"{data}\"{sync} }}");
        text
    }
}

/// The paths of a certificate file and its key file, for attacks on TLS.
#[derive(Clone, Debug)]
pub(super) struct Certificate {
    cert: PathBuf,
    key: PathBuf,
}

impl Certificate {
    /// Returns a certificate with an RSA key of `bits` bits. Makes the certificate at the first call.
    ///
    /// # Errors
    ///
    /// The program `openssl` is missing or fails.
    pub(super) fn rsa(directory: &Path, bits: u32) -> anyhow::Result<Self> {
        let file = |kind: &str| directory.join(format!("{kind}-{bits}.pem"));
        let (cert, key) = (file("cert"), file("key"));
        if !cert.exists() {
            let status = Command::new("openssl")
                .args(["req", "-x509", "-nodes", "-days", "2"])
                .args(["-subj", "/CN=localhost", "-newkey", &format!("rsa:{bits}")])
                .args([OsStr::new("-keyout"), key.as_ref()])
                .args([OsStr::new("-out"), cert.as_ref()])
                .stdin(Stdio::null())
                .stderr(Stdio::null())
                .status();
            let status = status.context("the program openssl, for an RSA key")?;
            ensure!(status.success(), "openssl makes no certificate: {status}");
        }
        Ok(Self { cert, key })
    }
}

/// The nodes of one server, which the bench starts for one attack.
pub(super) struct Nodes {
    pub(super) nodes: Vec<Server>,
    /// The addresses of the nodes' monitors.
    http: Vec<SocketAddr>,
    system: System,
}

impl Nodes {
    /// Starts the nodes with their files below `directory` and creates the neighbours' stream.
    ///
    /// # Errors
    ///
    /// A node does not come up, or the nodes do not form a cluster.
    pub(super) fn start(
        system: System,
        nodes: usize,
        directory: &Path,
        setting: &Setting,
        certificate: Option<&Certificate>,
    ) -> anyhow::Result<Self> {
        // The bench binds all ports at once, so that the system gives different ports.
        let ports = (0..3 * nodes).map(|_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)));
        let ports: Vec<_> = ports.collect::<Result<_, _>>()?;
        let addrs = ports.iter().map(TcpListener::local_addr);
        let addrs: Vec<SocketAddr> = addrs.collect::<Result<_, _>>()?;
        let routes: Vec<_> = addrs.iter().skip(2).step_by(3).copied().collect();
        drop(ports);
        let mut all = Self {
            nodes: Vec::new(),
            http: Vec::new(),
            system,
        };
        std::fs::create_dir_all(directory)?;
        for (n, of_it) in addrs.chunks(3).enumerate() {
            let membership = (nodes > 1).then(|| Membership {
                name: name(n),
                listen: of_it[2],
                routes: &routes,
            });
            let home = directory.join(name(n));
            let data = home.join("data");
            let config = directory.join(format!("{}.conf", name(n)));
            std::fs::write(&config, setting.config(system, &data, certificate))?;
            let program = match system {
                System::Ours => product()?,
                _ => setting.nats_server.clone().context("no nats-server")?,
            };
            let mut words: Vec<&OsStr> = vec![program.as_ref()];
            if system == System::Ours {
                words.extend([OsStr::new("serve"), "--data".as_ref(), data.as_ref()]);
            }
            words.extend([OsStr::new("-c"), config.as_ref()]);
            let server = Server::start_program(&words, &home, (of_it[0], of_it[1]), membership)?;
            all.nodes.push(server);
            all.http.push(of_it[1]);
        }
        for server in &mut all.nodes {
            server.wait_ready()?;
        }
        all.create_stream(setting)?;
        Ok(all)
    }

    /// Creates the neighbours' stream on all nodes. While the nodes form a cluster, that may need several
    /// attempts.
    fn create_stream(&self, setting: &Setting) -> anyhow::Result<()> {
        let config = json!({
            "name": STREAM, "subjects": [format!("{STREAM}.>")], "storage": "file",
            "num_replicas": self.nodes.len(),
        });
        let until = Instant::now() + FORM_MAX;
        loop {
            let attempt = self.wire(0, setting).and_then(|mut wire| {
                wire.api(
                    &format!("STREAM.CREATE.{STREAM}"),
                    &config,
                    Instant::now() + ATTEMPT,
                )
            });
            match attempt {
                Ok(_) => return Ok(()),
                Err(e) if Instant::now() >= until => return Err(e.context("no stream")),
                Err(_) if interrupt::asked() => bail!("interrupted"),
                Err(_) => std::thread::sleep(Duration::from_millis(20)),
            }
        }
    }

    fn wire(&self, node: usize, setting: &Setting) -> anyhow::Result<Wire> {
        let login = (setting.plain.0.as_str(), setting.plain.1.as_str());
        Wire::open(self.nodes[node].addr(), None, login, ATTEMPT)
    }

    /// Returns two addresses of the node that leads the neighbours' stream, for clients and for the monitor.
    pub(super) fn leader(&self, setting: &Setting) -> anyhow::Result<(SocketAddr, SocketAddr)> {
        let until = Instant::now() + ATTEMPT;
        let at = if self.nodes.len() == 1 {
            0
        } else {
            let info =
                self.wire(0, setting)?
                    .api(&format!("STREAM.INFO.{STREAM}"), &json!({}), until)?;
            let leader = info["cluster"]["leader"].as_str();
            let found = (0..self.nodes.len()).find(|n| Some(name(*n).as_str()) == leader);
            found.context("the stream has no leader")?
        };
        Ok((self.nodes[at].addr(), self.http[at]))
    }

    /// Returns the processor time of all nodes so far, in seconds.
    pub(super) fn cpu_s(&self) -> Option<f64> {
        self.nodes.iter().map(|node| node.cpu_s().ok()).sum()
    }

    /// Returns how many times nodes have become the leader of a group of streams, according to the nodes'
    /// logs.
    pub(super) fn leads(&self) -> usize {
        let mark = match self.system {
            System::Ours => "this node leads the streams",
            _ => "new JetStream cluster metadata leader|new stream leader",
        };
        let leads = |line: &&str| mark.split('|').any(|mark| line.contains(mark));
        let of = |node: &Server| node.said().lines().filter(leads).count();
        self.nodes.iter().map(of).sum()
    }

    /// Returns the last lines of the log of a node that has ended; `None` if all nodes run.
    pub(super) fn ended(&self) -> Option<String> {
        let ended = self.nodes.iter().find(|node| !node.is_running())?;
        let said = ended.said();
        let words = said.lines().rev().take(2).collect::<Vec<_>>().join("; ");
        Some(format!("the server ended: {words}"))
    }
}

fn name(node: usize) -> String {
    format!("n{}", node + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_servers_get_the_same_users() {
        let login = |name: &str| (name.to_owned(), "secret".to_owned());
        let setting = Setting {
            plain: login("plain"),
            hashed: login("hashed"),
            hash: "$2b$04$x".into(),
            nats_server: None,
        };
        let config = |system| setting.config(system, Path::new("/d"), None);
        let (ours, nats) = (config(System::Ours), config(System::Nats));
        assert!(nats.starts_with(&ours), "{nats}");
        assert!(ours.contains("user: \"hashed\", password: \"$2b$04$x\""));
        assert!(
            nats.ends_with("jetstream { store_dir: \"/d\" }\n"),
            "{nats}"
        );
        assert!(config(System::NatsAlways).contains("sync_interval: always"));
        let certificate = Certificate {
            cert: "c".into(),
            key: "k".into(),
        };
        let tls = setting.config(System::Ours, Path::new("/d"), Some(&certificate));
        assert!(tls.contains("allow_non_tls: true"), "{tls}");
    }
}
