//! Runs the example against a PostgreSQL of its own, and asks psql for the rows.

use example_servers::{batches, postgres, run};

#[test]
fn every_order_is_committed_and_transactions_are_shared() {
    let Some(server) = postgres() else { return };
    let said = run(env!("CARGO_BIN_EXE_example-postgres"), &[&server.url]);

    let count = "SELECT count(*), count(DISTINCT (customer, cents)), count(DISTINCT xmin::text) FROM orders";
    let rows = run("psql", &[&server.url, "-At", "-c", count]);
    let batches = batches(&said, 3200);
    // PostgreSQL itself counts the transactions: one for each batch.
    assert_eq!(rows.trim(), format!("3200|3200|{batches}"));
    assert!(batches < 3200, "no two orders shared a transaction:\n{said}");
    for subject in ["batches by reason: ", "limit: "] {
        assert!(said.contains(subject), "{subject} is missing in:\n{said}");
    }
}
