//! Group commit: many callers, one sync a batch. The actor finds by itself how many records go together.
//!
//! `cargo run --release --example batcher_wal [FILE]`

use std::convert::Infallible;
use std::fs::File;
use std::io::{self, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tidegate::batcher::{Batch, Builder, Cause, Flow, Handled, Handler, Op, Reply};

/// A log that answers each caller with the number of its record, once the record is durable.
struct Wal {
    file: File,
    records: u64,
    buffer: Vec<u8>,
    waiting: Vec<(u64, Reply<u64>)>,
}

impl Handler for Wal {
    type Item = Vec<u8>;
    type Reply = u64;
    type Info = Infallible;

    fn handle_batch(&mut self, batch: &mut Batch<Vec<u8>, u64>) -> Handled {
        for op in batch.drain() {
            let record = match op {
                Op::Cast(record) => record,
                Op::Call(record, reply) => {
                    self.waiting.push((self.records, reply));
                    record
                }
                _ => continue,
            };
            self.buffer.extend_from_slice(&record);
            self.records += 1;
        }
        let durable = self.file.write_all(&self.buffer);
        self.buffer.clear();
        match durable.and_then(|()| self.file.sync_data()) {
            Ok(()) => {
                for (number, reply) in self.waiting.drain(..) {
                    reply.send(number);
                }
                Ok(Flow::Continue)
            }
            // After a failed sync the contents of the file are uncertain, so the log accepts
            // nothing more. The callers of the batch learn the cause.
            Err(error) => {
                let cause: Cause = Arc::new(error);
                for (_, reply) in self.waiting.drain(..) {
                    reply.fail(Arc::clone(&cause));
                }
                Ok(Flow::Stop(cause))
            }
        }
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args().nth(1);
    let path = path.unwrap_or_else(|| "target/example.wal".to_owned());
    let wal = Builder::new()
        .name("wal")
        .weigh(|record: &Vec<u8>| record.len() as u64)
        .capacity_bytes(8 << 20)
        .spawn(Wal {
            file: File::create(&path)?,
            records: 0,
            buffer: Vec::new(),
            waiting: Vec::new(),
        })?;
    let start = Instant::now();
    std::thread::scope(|s| {
        for _ in 0..32 {
            s.spawn(|| {
                for _ in 0..200 {
                    if let Err(error) = wal.blocking_call(vec![b'x'; 1024]) {
                        let _ = writeln!(io::stderr(), "{error}");
                        return;
                    }
                }
            });
        }
    });
    let took = start.elapsed();
    wal.blocking_drain(Duration::from_secs(5))?;
    let stats = wal.stats();
    println!(
        "{} records durable in {took:.0?} with {} syncs, {:.1} a batch; a batch took {:.0?} (p50)",
        stats.items,
        stats.batches,
        stats.items as f64 / stats.batches as f64,
        Duration::from_nanos(stats.service_ns.quantile(0.5)),
    );
    std::fs::remove_file(path)?;
    Ok(())
}
