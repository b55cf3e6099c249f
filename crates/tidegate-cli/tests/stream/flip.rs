//! Damages the files of a server as a bad disk does, so that tests can check the scrub.

use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

/// Flips a bit at this offset in one of the log's segments. `segment` counts the segments from the oldest on.
pub(crate) fn flip(data: &Path, segment: usize, offset: u64) {
    let log = data.join("tidegate/log");
    let files = std::fs::read_dir(log).unwrap().map(|e| e.unwrap().path());
    let is_segment = |path: &PathBuf| path.extension().is_some_and(|e| e == "seg");
    let mut files: Vec<_> = files.filter(is_segment).collect();
    files.sort();
    let open = std::fs::OpenOptions::new().read(true).write(true).clone();
    let file = open.open(&files[segment]).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, offset).unwrap();
    file.write_all_at(&[byte[0] ^ 16], offset).unwrap();
}
