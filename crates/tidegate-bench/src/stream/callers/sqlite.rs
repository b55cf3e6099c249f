//! Callers that insert single rows into SQLite, in the process of the bench, each row in a transaction of its
//! own. With a write-ahead log and `synchronous = FULL` SQLite syncs its log before each commit returns.
//!
//! All callers share one connection, because a database of SQLite has one writer at a time anyway. With a
//! connection for each caller they would poll for the lock.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context as _, ensure};
use rusqlite::Connection;

use super::Running;
use super::load::Caller;

/// The statements that create the table: a number for each row and a payload, as in PostgreSQL.
const SETUP: &str = "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;
    CREATE TABLE message (seq INTEGER PRIMARY KEY, payload BLOB NOT NULL)";
const INSERT: &str = "INSERT INTO message (payload) VALUES (?1)";
/// The number by which SQLite reports `synchronous = FULL`.
const FULL: i64 = 2;

/// An open database with an empty table.
pub(super) struct Sqlite {
    connection: Arc<Mutex<Connection>>,
    bytes: usize,
}

impl Sqlite {
    /// Creates the database in `directory`.
    pub(super) fn open(directory: &Path, bytes: usize) -> anyhow::Result<Self> {
        let path = directory.join("sqlite");
        let connection = Connection::open(&path).with_context(|| path.display().to_string())?;
        connection.execute_batch(SETUP)?;
        let setting = |name: &str| format!("PRAGMA {name}");
        let mode: String = connection.query_row(&setting("journal_mode"), [], |row| row.get(0))?;
        let level: i64 = connection.query_row(&setting("synchronous"), [], |row| row.get(0))?;
        ensure!(
            mode == "wal" && level == FULL,
            "expected `wal` and synchronous {FULL}, got `{mode}` and {level}"
        );
        Ok(Self {
            connection: Arc::new(Mutex::new(connection)),
            bytes,
        })
    }
}

impl Running for Sqlite {
    fn caller(&self, _: usize) -> anyhow::Result<Box<dyn Caller>> {
        Ok(Box::new(Inserter {
            connection: Arc::clone(&self.connection),
            payload: vec![b'x'; self.bytes],
        }))
    }

    fn cpu_s(&self) -> anyhow::Result<Option<f64>> {
        Ok(None)
    }
}

struct Inserter {
    connection: Arc<Mutex<Connection>>,
    payload: Vec<u8>,
}

impl Caller for Inserter {
    fn call(&mut self) -> anyhow::Result<()> {
        let connection = self.connection.lock();
        let connection = connection.unwrap_or_else(PoisonError::into_inner);
        let mut insert = connection.prepare_cached(INSERT)?;
        insert.execute([&self.payload])?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_all_callers_are_there() {
        let directory = tempfile::tempdir().unwrap();
        let sqlite = Sqlite::open(directory.path(), 100).unwrap();
        for number in 0..3 {
            sqlite.caller(number).unwrap().call().unwrap();
        }
        let connection = sqlite.connection.lock().unwrap();
        let ask = "SELECT count(*), sum(length(payload)) FROM message";
        let found: (i64, i64) = connection
            .query_row(ask, [], |row| Ok((row.get(0)?, row.get(1)?)))
            .unwrap();
        assert_eq!(found, (3, 300));
    }
}
