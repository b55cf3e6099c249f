//! A handler that inserts batches into SQLite: one transaction a batch, with a write-ahead log and a sync
//! before the answer to each commit.

use std::path::Path;
use std::sync::{Mutex, PoisonError};

use anyhow::Context as _;
use rusqlite::Connection;

use super::{BlockingWork, Item};
use crate::rounds::Failure;

/// The length in bytes of the text in each row, so that a row costs more than its caller.
const TEXT_BYTES: usize = 1000;

/// The handler that inserts each batch into SQLite in one transaction.
pub(super) struct Sqlite {
    connection: Mutex<Connection>,
    text: String,
}

impl Sqlite {
    pub(super) fn open(directory: &Path) -> anyhow::Result<Self> {
        let path = directory.join("sqlite");
        let open = || -> rusqlite::Result<Connection> {
            let connection = Connection::open(&path)?;
            connection.execute_batch(
                "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;
                 CREATE TABLE item (id INTEGER PRIMARY KEY, key INTEGER NOT NULL, text TEXT NOT NULL);
                 CREATE INDEX item_key ON item (key, id)",
            )?;
            Ok(connection)
        };
        let connection = open().with_context(|| path.display().to_string())?;
        Ok(Self {
            connection: Mutex::new(connection),
            text: "x".repeat(TEXT_BYTES),
        })
    }

    fn with<T>(
        &self,
        act: impl FnOnce(&mut Connection) -> rusqlite::Result<T>,
    ) -> Result<T, Failure> {
        let connection = self.connection.lock();
        let mut connection = connection.unwrap_or_else(PoisonError::into_inner);
        act(&mut connection).map_err(|e| format!("SQLite: {e}"))
    }
}

impl BlockingWork for Sqlite {
    fn empty(&self) -> Result<(), Failure> {
        self.with(|connection| {
            connection.execute_batch("DELETE FROM item; PRAGMA wal_checkpoint(TRUNCATE)")
        })
    }

    fn handle(&self, items: &[Item]) -> Result<(), Failure> {
        self.with(|connection| {
            let batch = connection.transaction()?;
            {
                let mut insert =
                    batch.prepare_cached("INSERT INTO item (id, key, text) VALUES (?1, ?2, ?3)")?;
                for item in items {
                    insert.execute((item.id.cast_signed(), item.key, &self.text))?;
                }
            }
            batch.commit()
        })
    }

    fn stored(&self) -> Result<u64, Failure> {
        self.with(|connection| {
            let count = connection.query_row("SELECT count(*) FROM item", [], |row| row.get(0));
            count.map(i64::cast_unsigned)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_is_a_transaction_that_is_synced() {
        let directory = tempfile::tempdir().unwrap();
        let sqlite = Sqlite::open(directory.path()).unwrap();
        let items: Vec<_> = (0..3).map(|id| Item { id, key: 1 }).collect();
        sqlite.handle(&items).unwrap();
        // The store already has an item of this batch, so it refuses the whole batch.
        let twice = [Item { id: 9, key: 1 }, items[1]];
        assert!(sqlite.handle(&twice).is_err());
        assert_eq!(sqlite.stored().unwrap(), 3);
        let synchronous =
            sqlite.with(|c| c.query_row("PRAGMA synchronous", [], |row| row.get::<_, i64>(0)));
        assert_eq!(synchronous.unwrap(), 2, "FULL");
        sqlite.empty().unwrap();
        assert_eq!(sqlite.stored().unwrap(), 0);
    }
}
