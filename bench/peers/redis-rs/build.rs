//! Passes the locked versions of the rivals to the program, so that each answer names the version that the
//! bench measured.

use std::fs;

const PEERS: [&str; 2] = ["redis", "rustis"];

fn main() {
    println!("cargo::rerun-if-changed=Cargo.lock");
    let lock =
        fs::read_to_string("Cargo.lock").expect("Cargo.lock is written before build scripts run");
    for peer in PEERS {
        let name = format!("name = \"{peer}\"");
        let mut versions = lock
            .split("[[package]]")
            .filter(|entry| entry.lines().any(|line| line == name))
            .filter_map(|entry| {
                entry
                    .lines()
                    .find_map(|line| line.strip_prefix("version = \"")?.strip_suffix('"'))
            });
        let version = versions
            .next()
            .unwrap_or_else(|| panic!("{peer} is not in Cargo.lock"));
        assert!(
            versions.next().is_none(),
            "{peer} is locked twice: which one is measured?"
        );
        println!(
            "cargo::rustc-env=VERSION_{}={version}",
            peer.replace('-', "_").to_uppercase()
        );
    }
}
