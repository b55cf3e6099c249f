//! Gives each node a network namespace, and joins the namespaces with a bridge that also reaches the clients.
//! A test can cut each direction between two nodes: the network then drops the frames, and neither node gets
//! an error.

use std::process::Command;

use super::nodes::{Place, other};

/// The network of the nodes under test. The test needs root to make it, and removes it at its end.
pub(crate) struct Net {
    /// The prefix of the names of the namespaces and interfaces.
    name: String,
    /// The prefix of all addresses of the network: `10.A.B`.
    subnet: String,
    nodes: usize,
}

/// The MAC address to which a cut direction sends its frames. No interface has the address, so the frames get
/// lost.
const NOWHERE: &str = "02:00:00:00:00:01";

impl Net {
    /// Creates a network for this many nodes. Returns `None` if the test has no permission for that.
    pub(crate) fn new(nodes: usize) -> Option<Self> {
        let id = std::process::id();
        let net = Self {
            name: format!("tg{id}"),
            subnet: format!("10.{}.{}", 64 + id / 250 % 64, id % 250),
            nodes,
        };
        let bridge = net.bridge();
        if let Err(e) = ip(&["link", "add", &bridge, "type", "bridge"]) {
            tidegate_testing::missing(&format!("network namespaces (root, iproute2): {e}"));
            return None;
        }
        let subnet = &net.subnet;
        good(&["addr", "add", &format!("{subnet}.254/24"), "dev", &bridge]);
        good(&["link", "set", &bridge, "up"]);
        for node in 0..nodes {
            let (space, ours) = (net.space(node), format!("{}v{node}", net.name));
            if let Err(e) = ip(&["netns", "add", &space]) {
                tidegate_testing::missing(&format!("network namespaces (root, iproute2): {e}"));
                return None;
            }
            good(&[
                "link", "add", &ours, "type", "veth", "peer", "name", "eth0", "netns", &space,
            ]);
            good(&["link", "set", &ours, "master", &bridge, "up"]);
            good(&[
                "-n",
                &space,
                "addr",
                "add",
                &format!("{}/24", net.host(node)),
                "dev",
                "eth0",
            ]);
            good(&["-n", &space, "link", "set", "lo", "up"]);
            good(&["-n", &space, "link", "set", "eth0", "up"]);
        }
        Some(net)
    }

    fn bridge(&self) -> String {
        format!("{}b", self.name)
    }

    fn space(&self, node: usize) -> String {
        format!("{}n{node}", self.name)
    }

    fn host(&self, node: usize) -> String {
        format!("{}.{}", self.subnet, node + 1)
    }

    /// Returns the addresses and settings of the nodes in this network.
    pub(crate) fn places(&self) -> Vec<Place> {
        let place = |node| Place {
            name: format!("n{}", node + 1),
            host: self.host(node),
            ports: [4222, 8222, 6222],
            under: ["ip", "netns", "exec", &self.space(node)]
                .map(String::from)
                .into(),
            credentials: "net:secret@".into(),
            data: None,
            server: other(),
            flags: Vec::new(),
        };
        (0..self.nodes).map(place).collect()
    }

    /// Makes the network drop all frames from node `from` to node `to`.
    pub(crate) fn cut(&self, from: usize, to: usize) {
        let (space, to) = (self.space(from), self.host(to));
        let wrong = ["lladdr", NOWHERE, "dev", "eth0", "nud", "permanent"];
        good(&[&["-n", &space, "neigh", "replace", &to][..], &wrong].concat());
    }

    /// Cuts both directions between `node` and each of `others`.
    pub(crate) fn isolate(&self, node: usize, others: &[usize]) {
        for &other in others.iter().filter(|other| **other != node) {
            self.cut(node, other);
            self.cut(other, node);
        }
    }

    /// Ends every cut, so that all nodes reach each other again.
    pub(crate) fn heal(&self) {
        for from in 0..self.nodes {
            for to in (0..self.nodes).filter(|to| *to != from) {
                // The command fails for directions that are not cut.
                let _ = ip(&[
                    "-n",
                    &self.space(from),
                    "neigh",
                    "del",
                    &self.host(to),
                    "dev",
                    "eth0",
                ]);
            }
        }
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        for node in 0..self.nodes {
            // The system removes the interfaces of a namespace together with it.
            let _ = ip(&["netns", "del", &self.space(node)]);
        }
        let _ = ip(&["link", "del", &self.bridge()]);
    }
}

fn ip(args: &[&str]) -> Result<(), String> {
    let output = Command::new("ip")
        .args(args)
        .output()
        .map_err(|e| format!("ip: {e}"))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(format!(
            "ip {}: {}",
            args.join(" "),
            String::from_utf8_lossy(&output.stderr)
        )),
    }
}

#[track_caller]
fn good(args: &[&str]) {
    ip(args).unwrap();
}
