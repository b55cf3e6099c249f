//! Moves bytes out of the receiver's file into a file beside it at a start, because another program may have
//! written them and the receiver must not destroy them.

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::PathBuf;

use crate::ship::disk::{Bytes, Disk};

/// The greatest number of bytes that one step of a copy moves, so that a long copy takes little memory.
const BLOCK: u64 = 64 * 1024;
/// The greatest number of files with bytes cut at one offset of the receiver's file, so that the search for a
/// free name ends.
const NAMES_MAX: u32 = 100;

/// Copies the bytes of `data` from `start` to `end` into a file beside `name`, durably, and returns the path
/// of that file. Completes a copy that a crash interrupted. If a file with other bytes has the name, the copy
/// gets another name.
pub(super) fn keep<D: Disk>(
    disk: &D,
    name: &OsStr,
    data: &D::File,
    start: u64,
    end: u64,
) -> Result<PathBuf, (PathBuf, io::Error)> {
    let mut path = PathBuf::new();
    for at in 1..=NAMES_MAX {
        let mut kept = OsString::from(name);
        kept.push(format!(".tidegate-cut-{start}"));
        if at > 1 {
            kept.push(format!("-{at}"));
        }
        path = disk.path(&kept);
        match copy(disk, &kept, data, start, end) {
            Ok(true) => return Ok(path),
            Ok(false) => {}
            Err(error) => return Err((path, error)),
        }
    }
    let error = "it and all files before it have other bytes: move them away";
    Err((path, io::Error::other(error)))
}

/// Copies bytes of `data` into the file `kept`. Leaves the file unchanged and returns false if it has other
/// bytes.
fn copy<D: Disk>(disk: &D, kept: &OsStr, data: &D::File, start: u64, end: u64) -> io::Result<bool> {
    let file = disk.open(kept)?;
    let has = file.bytes()?.unwrap_or_default();
    if has > end - start {
        return Ok(false);
    }
    let (mut from, mut to) = (Vec::new(), Vec::new());
    let mut offset = start;
    while offset < end {
        let already = (start + has).saturating_sub(offset).min(BLOCK);
        let bytes = if already > 0 {
            already
        } else {
            BLOCK.min(end - offset)
        };
        from.resize(bytes as usize, 0);
        data.read_at(offset, &mut from)?;
        if already > 0 {
            to.resize(bytes as usize, 0);
            file.read_at(offset - start, &mut to)?;
            if from != to {
                return Ok(false);
            }
        } else {
            file.write_at(offset - start, &from)?;
        }
        offset += bytes;
    }
    file.sync()?;
    disk.sync_names()?;
    Ok(true)
}
