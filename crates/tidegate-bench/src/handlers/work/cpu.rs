//! Two handlers of pure computation, which show cost curves without a disk: one handler pads its batches to
//! certain sizes, the other writes each key of a batch once.

use std::collections::HashMap;
use std::hint::black_box;
use std::sync::{Mutex, PoisonError};

use super::{BlockingWork, Item};
use crate::rounds::Failure;

/// The number of rounds of [`grind`] for a batch, which take about 200 us.
const BATCH_ROUNDS: u64 = 100_000;
/// The number of rounds of [`grind`] for an item of a padded batch, which take about 20 us, more than the few
/// microseconds that an item costs its caller.
const ITEM_ROUNDS: u64 = 10_000;
/// The number of rounds of [`grind`] for each distinct key of a batch. In large batches most items repeat a
/// key, so an item costs less there.
const KEY_ROUNDS: u64 = 30_000;

/// A handler that pads each batch to the next power of two, as accelerators and inference servers do. An item
/// of padding costs as much as any other item.
#[derive(Default)]
pub(super) struct Padded {
    items: Mutex<u64>,
}

impl BlockingWork for Padded {
    fn empty(&self) -> Result<(), Failure> {
        *self.items.lock().unwrap_or_else(PoisonError::into_inner) = 0;
        Ok(())
    }

    fn handle(&self, items: &[Item]) -> Result<(), Failure> {
        let mut stored = self.items.lock().unwrap_or_else(PoisonError::into_inner);
        grind(items[0].id, BATCH_ROUNDS);
        for slot in 0..padded(items.len()) {
            // The padding repeats the last of the batch's own items.
            encode(items[slot.min(items.len() - 1)].id);
        }
        *stored += items.len() as u64;
        Ok(())
    }

    fn stored(&self) -> Result<u64, Failure> {
        Ok(*self.items.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

const fn padded(items: usize) -> usize {
    items.next_power_of_two()
}

/// A handler of upserts, which writes the last item of each key in a batch. The cost follows the number of
/// distinct keys, so items in large batches are cheaper.
#[derive(Default)]
pub(super) struct Upsert {
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    /// For each key, the id that the handler wrote last, and the number computed from this id.
    rows: HashMap<u32, (u64, u64)>,
    items: u64,
    /// For each key in the present batch, the id of the last item with this key.
    last: HashMap<u32, u64>,
}

impl BlockingWork for Upsert {
    fn empty(&self) -> Result<(), Failure> {
        *self.table.lock().unwrap_or_else(PoisonError::into_inner) = Table::default();
        Ok(())
    }

    fn handle(&self, items: &[Item]) -> Result<(), Failure> {
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        let table = &mut *table;
        table
            .last
            .extend(items.iter().map(|item| (item.key, item.id)));
        grind(items[0].id, BATCH_ROUNDS);
        for (key, id) in table.last.drain() {
            table.rows.insert(key, (id, grind(id, KEY_ROUNDS)));
        }
        table.items += items.len() as u64;
        Ok(())
    }

    fn stored(&self) -> Result<u64, Failure> {
        Ok(self
            .table
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .items)
    }
}

/// Computes a number for an item in about 20 us, so that each item costs processor time.
pub(super) fn encode(id: u64) -> u64 {
    grind(id, ITEM_ROUNDS)
}

/// Computes for a time in proportion to `rounds`. Each round needs the result of the previous round, so that
/// the processor cannot run them in parallel.
fn grind(seed: u64, rounds: u64) -> u64 {
    let mut state = black_box(seed | 1);
    for _ in 0..rounds {
        state = (state ^ (state >> 29)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }
    black_box(state)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_is_padded_to_the_next_power_of_two() {
        assert_eq!([1, 2, 3, 64, 65].map(padded), [1, 2, 4, 64, 128]);
    }

    #[test]
    fn the_last_write_of_a_key_wins() {
        let upsert = Upsert::default();
        let item = |id, key| Item { id, key };
        upsert
            .handle(&[item(1, 5), item(2, 6), item(3, 5)])
            .unwrap();
        upsert.handle(&[item(4, 6)]).unwrap();
        {
            let table = upsert.table.lock().unwrap();
            assert_eq!((table.rows[&5].0, table.rows[&6].0), (3, 4));
            assert_eq!(table.rows.len(), 2);
        }
        assert_eq!(upsert.stored().unwrap(), 4);
        upsert.empty().unwrap();
        assert_eq!(upsert.stored().unwrap(), 0);
    }
}
