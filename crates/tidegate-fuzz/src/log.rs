//! A fuzz target for the log's handling of damaged files. The target changes the files of a log at any
//! place. The inspection, the repair and the opening must return a result, and the log must return no record
//! that the target never wrote.

use std::sync::{Arc, OnceLock};

use tidegate_log::{Append, Log, Options, Record, SimDisk, Storage, inspect, repair, verify};

const LEN: usize = 200;

/// Returns a simulated disk with a small closed log of two segments, without damage, which the target then
/// changes.
fn sound() -> &'static SimDisk {
    static DISK: OnceLock<SimDisk> = OnceLock::new();
    DISK.get_or_init(|| {
        let disk = SimDisk::new();
        let opened = Log::open(Arc::new(disk.clone()), options(), |_| ()).expect("an empty disk");
        let mut appender = opened.appender;
        for index in 0..70u64 {
            let record = Record {
                group: index as u32 % 3,
                index,
                payload: payload(index),
                ..Record::default()
            };
            let mut append = Append::new(vec![record]);
            while let Err((back, _)) = appender.append(append) {
                append = back;
                let _ = appender.wait_for_room(&append, None);
            }
        }
        appender.close().expect("a disk without faults");
        disk.copy()
    })
}

fn options() -> Options {
    Options::default().segment_bytes(16 << 10).seed(3)
}

fn payload(index: u64) -> bytes::Bytes {
    vec![index as u8; LEN].into()
}

/// Runs the fuzz target on one input. Panics if the tested code breaks a promise.
pub fn run(bytes: &[u8]) {
    let disk = sound().copy();
    let names = disk.list().expect("the simulated disk lists");
    for change in bytes.chunks_exact(5) {
        let name = &names[change[0] as usize % names.len()];
        let at = usize::from(u16::from_le_bytes([change[1], change[2]]));
        let mut content = disk.content(name);
        match change[4] % 8 {
            0 => content.truncate(at),
            1 => drop(disk.remove(name)),
            2 if at.max(255) + 64 <= content.len() => {
                content.copy_within(at..at + 64, usize::from(change[3]))
            }
            _ if at < content.len() => content[at] = change[3],
            _ => {}
        }
        if change[4] % 8 != 1 {
            disk.put(name, content);
        }
    }
    let _ = inspect(&disk.copy());
    let _ = verify(&disk.copy());
    for mended in [false, true] {
        let disk = disk.copy();
        if mended && repair(&disk, &SimDisk::new()).is_err() {
            return;
        }
        let mut entries = Vec::new();
        let Ok(opened) = Log::open(Arc::new(disk.copy()), options(), |e| entries.push(e)) else {
            continue;
        };
        for entry in entries.iter().filter(|e| e.kind != tidegate_log::KIND_LOST) {
            if let Ok(read) = opened.log.reader().read(entry.lsn, None) {
                assert_eq!(read.payload, payload(read.index));
            }
        }
    }
}
