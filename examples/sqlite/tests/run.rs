//! Runs the example, and looks into the database that it leaves.

use example_servers::{batches, run};
use rusqlite::Connection;

#[test]
fn every_order_is_committed_and_transactions_are_shared() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("orders.db");
    let said = run(env!("CARGO_BIN_EXE_example-sqlite"), &[path.to_str().unwrap()]);

    let db = Connection::open(&path).unwrap();
    let count = |query: &str| db.query_row(query, [], |row| row.get::<_, i64>(0)).unwrap();
    assert_eq!(count("SELECT count(*) FROM orders"), 3200);
    assert_eq!(count("SELECT count(*) FROM (SELECT DISTINCT customer, cents FROM orders)"), 3200);
    assert!(batches(&said, 3200) < 3200, "no two orders shared a transaction:\n{said}");
    for subject in ["batches by reason: ", "limit: ", "a transaction costs "] {
        assert!(said.contains(subject), "{subject} is missing in:\n{said}");
    }
}
