//! Inserts of many threads into SQLite. The engine decides how many rows one transaction takes.
//!
//! `cargo run -p example-sqlite -- orders.db`

use std::error::Error;
use std::thread;
use std::time::Duration;

use rusqlite::Connection;
use tidegate::batcher::{Builder, CallError, Handle, try_map_batch};

const CALLERS: i64 = 32;
const ORDERS_EACH: i64 = 100;

struct Order {
    customer: i64,
    cents: i64,
}

/// Starts the actor that owns the connection. Each caller gets the id of its own row.
fn orders(path: &str) -> Result<Handle<Order, i64>, Box<dyn Error>> {
    let mut db = Connection::open(path)?;
    db.execute_batch(
        "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;
         CREATE TABLE IF NOT EXISTS orders (id INTEGER PRIMARY KEY, customer INTEGER NOT NULL, cents INTEGER NOT NULL)",
    )?;
    // One call of this closure is one transaction, with one sync of the disk. An error goes to all callers
    // of the batch, and none of its rows is in the table.
    let insert = move |orders: &mut Vec<Order>| {
        let transaction = db.transaction()?;
        let mut ids = Vec::with_capacity(orders.len());
        {
            let mut insert = transaction
                .prepare_cached("INSERT INTO orders (customer, cents) VALUES (?1, ?2)")?;
            for order in orders.drain(..) {
                ids.push(insert.insert((order.customer, order.cents))?);
            }
        }
        transaction.commit()?;
        Ok::<_, rusqlite::Error>(ids)
    };
    Ok(Builder::new().name("orders").spawn(try_map_batch(insert))?)
}

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args().nth(1).unwrap_or_else(|| "orders.db".to_owned());
    let orders = orders(&path)?;

    // Each caller waits until its order is committed, as a request of a web server would.
    let callers = (0..CALLERS).map(|customer| {
        let orders = orders.clone();
        thread::spawn(move || {
            (1..=ORDERS_EACH).try_for_each(|cents| {
                let id = orders.blocking_call(Order { customer, cents })?;
                assert!(id > 0);
                Ok::<_, CallError<Order>>(())
            })
        })
    });
    for caller in callers.collect::<Vec<_>>() {
        caller.join().map_err(|_| "a caller panicked")??;
    }

    println!("{}", orders.stats());
    let controller = orders.blocking_controller()?;
    println!(
        "limit: {} rows, bound by {}",
        controller.limit,
        controller.binding.map_or("nothing", |reason| reason.as_str())
    );
    if let Some(model) = controller.model {
        println!(
            "a transaction costs {:.0} us, and {:.1} us for each row",
            model.a_ns / 1e3,
            model.b_ns / 1e3
        );
    }
    orders.blocking_drain(Duration::from_secs(5))?;
    Ok(())
}
