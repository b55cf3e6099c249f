//! Runs several batches at once and keeps the items of each key in order: payments into accounts, on a server
//! with four slots.
//!
//! `cargo run --release -p tidegate --features tokio --example shared_keys`

use std::collections::HashMap;
use std::error::Error;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tidegate::batcher::Builder;
use tokio::sync::Semaphore;

/// A payment into an account, where the account is the key that keeps payments in order.
struct Payment {
    account: u32,
    amount: i64,
}

/// A server that works on four requests at once; the other requests wait in the server.
struct Server {
    slots: Semaphore,
    balances: Mutex<HashMap<u32, i64>>,
}

impl Server {
    /// Applies the payments in one request, and answers the balance after each of them.
    async fn apply(
        &self,
        payments: Vec<Payment>,
    ) -> Result<Vec<i64>, Box<dyn Error + Send + Sync>> {
        let _slot = self.slots.acquire().await?;
        tokio::time::sleep(Duration::from_millis(2)).await;
        let mut balances = self.balances.lock().unwrap_or_else(PoisonError::into_inner);
        let after = payments.into_iter().map(|payment| {
            let balance = balances.entry(payment.account).or_default();
            *balance += payment.amount;
            *balance
        });
        Ok(after.collect())
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_time()
        .build()?;
    runtime.block_on(async {
        let server = Arc::new(Server {
            slots: Semaphore::new(4),
            balances: Mutex::default(),
        });
        // The example sets no number of batches in flight: the controller measures how much batches slow each
        // other down.
        let payments = Builder::new()
            .key(|payment: &Payment| payment.account)
            .spawn_shared(move |payments| {
                let server = Arc::clone(&server);
                async move { server.apply(payments).await }
            })
            .await?;
        let callers = (0..256).map(|account| {
            let payments = payments.clone();
            tokio::spawn(async move {
                for amount in 1..=20 {
                    payments.call(Payment { account, amount }).await?;
                }
                Ok::<_, Box<dyn Error + Send + Sync>>(())
            })
        });
        for caller in callers.collect::<Vec<_>>() {
            caller.await?.map_err(|error| error.to_string())?;
        }
        payments.drain(Duration::from_secs(5)).await?;
        println!("{}", payments.stats());
        Ok(())
    })
}
