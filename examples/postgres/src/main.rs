//! Inserts of many tasks into PostgreSQL. The engine decides how many rows a transaction takes, and how many
//! connections of the pool work at once.
//!
//! `cargo run -p example-postgres -- postgresql://me@localhost/shop`

use std::error::Error;
use std::time::Duration;

use deadpool_postgres::{Manager, Pool};
use tidegate::batcher::{Builder, Handle};
use tokio::task::JoinSet;
use tokio_postgres::NoTls;

type Failure = Box<dyn Error + Send + Sync>;

const CONNECTIONS: u32 = 4;
const CALLERS: i64 = 64;
const ORDERS_EACH: i64 = 50;
const TABLE: &str =
    "CREATE TABLE IF NOT EXISTS orders (customer int8 NOT NULL, cents int8 NOT NULL)";
/// Takes the rows as two arrays, so that one prepared statement serves batches of any size.
const INSERT: &str =
    "INSERT INTO orders (customer, cents) SELECT * FROM unnest($1::int8[], $2::int8[])";

#[derive(Clone, Copy)]
struct Order {
    customer: i64,
    cents: i64,
}

/// Inserts a batch by one statement, which is a transaction of its own.
async fn insert(pool: Pool, orders: Vec<Order>) -> Result<(), Failure> {
    let db = pool.get().await?;
    let insert = db.prepare_cached(INSERT).await?;
    let (customers, cents): (Vec<i64>, Vec<i64>) =
        orders.iter().map(|order| (order.customer, order.cents)).unzip();
    db.execute(&insert, &[&customers, &cents]).await?;
    Ok(())
}

/// Starts the actor. Several batches run at once, each on a connection of its own.
async fn orders(pool: Pool) -> Result<Handle<Order, ()>, Failure> {
    let batch = move |orders: Vec<Order>| {
        let pool = pool.clone();
        // A batch that hangs would keep its place for ever, so it has a deadline.
        async { tokio::time::timeout(Duration::from_secs(10), insert(pool, orders)).await? }
    };
    let builder = Builder::new().in_flight_max(CONNECTIONS);
    Ok(builder.spawn_shared(batch).await?)
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let url = std::env::args().nth(1).ok_or("expected the URL of a database")?;
    let manager = Manager::new(url.parse()?, NoTls);
    let pool = Pool::builder(manager).max_size(CONNECTIONS as usize).build()?;
    pool.get().await?.batch_execute(TABLE).await?;
    let orders = orders(pool).await?;

    // Each caller waits until its order is committed, as a request of a web server would.
    let mut callers = JoinSet::new();
    for customer in 0..CALLERS {
        let orders = orders.clone();
        callers.spawn(async move {
            for cents in 1..=ORDERS_EACH {
                orders.call(Order { customer, cents }).await?;
            }
            Ok::<_, Failure>(())
        });
    }
    while let Some(caller) = callers.join_next().await {
        caller??;
    }

    println!("{}", orders.stats());
    let controller = orders.controller().await?;
    let binding = controller.binding.map_or("nothing", |reason| reason.as_str());
    println!("limit: {} rows, bound by {binding}", controller.limit);
    orders.drain(Duration::from_secs(10)).await?;
    Ok(())
}
