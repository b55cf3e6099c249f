//! Finds the file to which a rotation moved or copied the receiver's file while no receiver ran. The name
//! then belongs to an empty file or to none, and a file beside has every acknowledged byte: it is as long,
//! and its end has the checksum of the state. Without such a file, acknowledged records are missing.

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::PathBuf;

use super::{Cut, State, Tail, aside};
use crate::ship::disk::{Bytes, Disk};

/// A file with all acknowledged bytes, and its name.
pub(super) type Rotated<F> = (OsString, F);

/// Returns the file beside `name` that has every byte which the state covers; `None` if there is none.
pub(super) fn find<D: Disk>(
    disk: &D,
    name: &OsStr,
    state: &State,
) -> io::Result<Option<Rotated<D::File>>> {
    for other in disk.beside(name)? {
        // A file that cannot be opened or read does not count. If no other file has the bytes, the start
        // reports the receiver's file as too short.
        let Ok(file) = disk.open(&other) else {
            continue;
        };
        if has_all(&file, state).unwrap_or(false) {
            return Ok(Some((other, file)));
        }
    }
    Ok(None)
}

fn has_all(file: &impl Bytes, state: &State) -> io::Result<bool> {
    if file.bytes()?.is_none_or(|bytes| bytes < state.bytes) {
        return Ok(false);
    }
    let mut tail = vec![0; state.tail.bytes as usize];
    file.read_at(state.bytes - u64::from(state.tail.bytes), &mut tail)?;
    Ok(Tail::of(&tail) == state.tail)
}

/// Makes the rotated file durable before the receiver leaves it. If its receiver was killed, moves the bytes
/// behind the acknowledged ones aside, because their records come again and would otherwise stand there
/// twice. After an orderly end, such bytes come from another program and stay.
pub(super) fn leave<D: Disk>(
    disk: &D,
    (name, file): &Rotated<D::File>,
    state: &State,
) -> Result<Option<Cut>, (PathBuf, io::Error)> {
    let on = |error| (disk.path(name), error);
    let had = file.bytes().map_err(on)?.unwrap_or_default();
    let mut cut = None;
    if had > state.bytes && !state.closed {
        let path = aside::keep(disk, name, file, state.bytes, had)?;
        file.set_bytes(state.bytes).map_err(on)?;
        cut = Some(Cut {
            bytes: had - state.bytes,
            at: state.bytes,
            path,
            in_doubt: false,
        });
    }
    file.sync().map_err(on)?;
    Ok(cut)
}
