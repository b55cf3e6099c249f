//! Any text is a configuration, or is refused with a line; the parser neither hangs nor overflows.
#![no_main]

use std::path::PathBuf;

use libfuzzer_sys::fuzz_target;
use tidegate_server::config::Settings;
use tidegate_server::config::apply;
use tidegate_server::config::{System, read_nats, read_toml};

fuzz_target!(|text: &str| {
    // The fuzzer must not read files of this machine.
    if text.contains("include") {
        return;
    }
    let directory = PathBuf::new();
    for map in [read_nats(text, &System { directory }), read_toml(text)].into_iter().flatten() {
        let _ = apply(&map, &mut Settings::default());
    }
});
