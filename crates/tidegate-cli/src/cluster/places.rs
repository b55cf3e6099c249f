//! Chooses the addresses and the directories of the nodes of a cluster on one machine, and makes the
//! `tidegate serve` arguments that set them.

use std::ffi::OsString;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail};

use crate::Usage;
use crate::face;

/// The addresses and the directory that the user wants for the whole cluster.
#[derive(Debug)]
pub(super) struct Wanted<'a> {
    pub(super) nodes: u16,
    /// The host part of the addresses at which the nodes listen for clients.
    pub(super) host: &'a str,
    /// The first port for clients, for HTTP and for the other nodes; 0 lets the system choose free ports.
    pub(super) ports: [u16; 3],
    pub(super) data: &'a Path,
}

/// The addresses and the directory of one node, from which `tidegate cluster` makes its arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) name: String,
    pub(super) data: PathBuf,
    client: SocketAddr,
    pub(super) http: SocketAddr,
    route: SocketAddr,
}

const KINDS: [&str; 3] = ["clients", "HTTP", "the other nodes"];

/// Returns a place for each node, with ports on which no other program listens at the moment.
///
/// # Errors
/// Some ports are taken or do not exist; the error names all of them.
pub(super) fn places(wanted: &Wanted<'_>) -> anyhow::Result<Vec<Place>> {
    let loopback = Ipv4Addr::LOCALHOST.to_string();
    let hosts = [wanted.host, &loopback, &loopback];
    // The listeners keep every port bound until the search has found all ports, so that no two nodes get the
    // same port.
    let (mut held, mut taken) = (Vec::new(), Vec::new());
    let mut places = Vec::new();
    for node in 0..wanted.nodes {
        let name = format!("n{}", node + 1);
        let mut found = Vec::new();
        for (kind, first) in wanted.ports.into_iter().enumerate() {
            let port = match first {
                0 => 0,
                first => first.checked_add(node).ok_or_else(|| {
                    let kind = KINDS[kind];
                    Usage::new(format!("no port for {kind} of {name}: {first} is too high"))
                })?,
            };
            let mut addrs = (hosts[kind], port)
                .to_socket_addrs()
                .with_context(|| format!("cannot look up {}", hosts[kind]))?;
            let addr = addrs
                .next()
                .with_context(|| format!("{} has no address", hosts[kind]))?;
            match TcpListener::bind(addr) {
                Ok(listener) => {
                    found.push(listener.local_addr()?);
                    held.push(listener);
                }
                Err(e) => taken.push(format!("{addr} ({} of {name}): {e}", KINDS[kind])),
            }
        }
        if let [client, http, route] = found[..] {
            places.push(Place {
                data: wanted.data.join(&name),
                name,
                client,
                http,
                route,
            });
        }
    }
    if !taken.is_empty() {
        bail!(
            "cannot listen on {}; stop the programs that listen there, or give other ports with --listen, --http-port and --cluster-port",
            taken.join(", ")
        );
    }
    Ok(places)
}

impl Place {
    /// Returns the URL by which clients connect to the node.
    pub(super) fn url(&self) -> String {
        format!("nats://{}", self.client)
    }

    /// Returns the arguments with which `tidegate serve` runs this node. `all` has the nodes of its cluster,
    /// for the routes between them.
    pub(super) fn arguments(&self, all: &[Self]) -> Vec<OsString> {
        let routes = all
            .iter()
            .map(|place| format!("nats-route://{}", place.route));
        let routes: Vec<_> = routes.collect();
        let words = [
            "serve".into(),
            "--name".into(),
            self.name.clone(),
            "--cluster-name".into(),
            "tidegate".into(),
            "--cluster".into(),
            format!("nats://{}", self.route),
            "--routes".into(),
            routes.join(","),
            "-a".into(),
            self.client.ip().to_string(),
            "-p".into(),
            self.client.port().to_string(),
            "-m".into(),
            self.http.port().to_string(),
            "--data".into(),
        ];
        let data = self.data.clone().into_os_string();
        let verbose = face::is_verbose().then(|| "--verbose".into());
        let words = words.map(OsString::from).into_iter();
        words.chain([data]).chain(verbose).collect()
    }
}

/// Returns whether a process listens at `at`, which shows that the node runs.
pub(super) fn answers(at: SocketAddr) -> bool {
    TcpStream::connect_timeout(&at, Duration::from_secs(1)).is_ok()
}

/// Returns whether the node at `at` answers `/healthz` with success, so that clients can use the node.
pub(super) fn is_healthy(at: SocketAddr) -> bool {
    let ask = || -> std::io::Result<bool> {
        let mut socket = TcpStream::connect(at)?;
        socket.set_read_timeout(Some(Duration::from_secs(5)))?;
        socket.write_all(b"GET /healthz HTTP/1.0\r\nHost: localhost\r\n\r\n")?;
        let mut answer = String::new();
        socket.take(1 << 16).read_to_string(&mut answer)?;
        Ok(answer.starts_with("HTTP/1.0 200") || answer.starts_with("HTTP/1.1 200"))
    };
    ask().unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(nodes: u16, ports: [u16; 3]) -> anyhow::Result<Vec<Place>> {
        places(&Wanted {
            nodes,
            host: "127.0.0.1",
            ports,
            data: Path::new("d"),
        })
    }

    #[test]
    fn any_free_ports_are_all_different() {
        let places = wanted(5, [0; 3]).unwrap();
        let ports = places.iter().flat_map(|p| [p.client, p.http, p.route]);
        let ports: std::collections::BTreeSet<_> = ports.collect();
        assert_eq!((places.len(), ports.len()), (5, 15));
        assert_eq!(places[4].data, Path::new("d/n5"));
        let words = places[0].arguments(&places);
        let routes = words[8].to_str().unwrap();
        assert!(
            places.iter().all(|p| routes.contains(&p.route.to_string())),
            "{routes}"
        );
    }

    #[test]
    fn taken_ports_are_named() {
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = taken.local_addr().unwrap();
        let error = wanted(3, [0, addr.port(), 0]).unwrap_err().to_string();
        assert!(error.contains(&format!("{addr} (HTTP of n1)")), "{error}");
        let error = wanted(3, [0, 0, 65_534]).unwrap_err();
        assert!(error.is::<Usage>());
        assert_eq!(
            error.to_string(),
            "no port for the other nodes of n3: 65534 is too high"
        );
    }
}
