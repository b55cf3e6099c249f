//! A handler on tokio that returns a result for each item: a bad row fails its own caller and no other.
//!
//! `cargo run -p tidegate --features tokio --example async_results`

use std::convert::Infallible;
use std::error::Error;
use std::time::Duration;

use tidegate::batcher::{AsyncHandler, Batch, Builder, Cause, Flow, Handled};

/// A handler that stands for a table of a database. A real handler would hold a connection.
struct Table {
    rows: u64,
    items: Vec<String>,
}

impl AsyncHandler for Table {
    type Item = String;
    /// The reply to a caller: the number of the inserted row.
    type Reply = u64;
    type Info = Infallible;

    async fn handle_batch(&mut self, batch: &mut Batch<String, u64>) -> Handled {
        batch.take_items(&mut self.items);
        // One statement inserts all rows of the batch. An error of that statement would go to every caller of
        // the batch by `?`.
        tokio::time::sleep(Duration::from_millis(1)).await;
        let results = self.items.drain(..).map(|row| {
            if row.is_empty() {
                let why = Box::<dyn Error + Send + Sync>::from("the row is empty: give it a value");
                return Err(Cause::from(why));
            }
            self.rows += 1;
            Ok(self.rows)
        });
        // The handler returns one result an item, in the order of the items, so that each caller gets its
        // own.
        batch.answer_each(results);
        Ok(Flow::Continue)
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_time()
        .build()?;
    runtime.block_on(async {
        let table = Table {
            rows: 0,
            items: Vec::new(),
        };
        let rows = Builder::new().spawn_task(table).await?;
        let callers = (0..64).map(|caller| {
            let rows = rows.clone();
            tokio::spawn(async move {
                let row = if caller == 7 { "" } else { "a row" };
                rows.call(row.to_owned()).await
            })
        });
        for caller in callers.collect::<Vec<_>>() {
            if let Err(error) = caller.await? {
                println!("refused: {error}");
            }
        }
        rows.drain(Duration::from_secs(5)).await?;
        println!("{}", rows.stats());
        Ok(())
    })
}
