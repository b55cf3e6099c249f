//! A fuzz target for the parsers of configuration files. The target gives the parsers any text. They must
//! return settings or an error, and must neither hang nor overflow the stack.

use std::path::PathBuf;

use tidegate_server::config::Settings;
use tidegate_server::config::apply;
use tidegate_server::config::{System, read_nats, read_toml};

/// Runs the fuzz target on one input. Panics if the tested code breaks a promise.
pub fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    // The target skips a text with `include`, because the parser would read other files of this machine.
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
