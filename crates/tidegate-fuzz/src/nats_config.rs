//! Any text is a configuration, or is refused with a line; the parser neither hangs nor overflows.

use std::path::PathBuf;

use tidegate_server::config::Settings;
use tidegate_server::config::apply;
use tidegate_server::config::{System, read_nats, read_toml};

/// Runs the target on one input.
pub fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    // The fuzzer must not read files of this machine.
    if text.contains("include") {
        return;
    }
    let directory = PathBuf::new();
    for map in [read_nats(text, &System { directory }), read_toml(text)]
        .into_iter()
        .flatten()
    {
        let _ = apply(&map, &mut Settings::default());
    }
}
