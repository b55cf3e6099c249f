//! Any arguments of a command read back unchanged: no argument can break out of its place.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tidegate_redis::{Value, cmd, decode};

fuzz_target!(|args: Vec<Vec<u8>>| {
    let mut command = cmd("ECHO");
    for arg in &args {
        command = command.arg(arg);
    }
    let wire = command.to_bytes();
    let wanted: Vec<Value> = std::iter::once(b"ECHO".to_vec())
        .chain(args)
        .map(|a| Value::Bulk(a.into()))
        .collect();
    assert_eq!(decode(&wire), Ok(vec![Value::Array(wanted)]));
});
