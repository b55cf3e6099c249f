//! A fuzz target for the encoder of Redis commands. The target encodes a command with any arguments. The
//! decoder must read the same arguments from the bytes, so that no argument can pass for another part of the
//! command.

use tidegate_redis::{Value, cmd, decode};

/// Runs the fuzz target on one input: the arguments of a command, each behind its length in one byte. Panics
/// if the tested code breaks a promise.
pub fn run(data: &[u8]) {
    let (mut args, mut rest) = (Vec::new(), data);
    while let Some((&len, tail)) = rest.split_first() {
        let (arg, tail) = tail.split_at(tail.len().min(len.into()));
        args.push(arg.to_vec());
        rest = tail;
    }
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
}
