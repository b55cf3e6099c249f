//! Shows many callers on one connection: the example of the README, to paste into a program.

use tidegate_redis::Client;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let client = Client::connect("redis://localhost:6379").await?;
    let callers: Vec<_> = (0..256)
        .map(|i| {
            let client = client.clone();
            // All tasks share one connection. The engine decides which commands the client writes together,
            // and when.
            tokio::spawn(async move { client.set(format!("key:{i}"), "value").await })
        })
        .collect();
    for caller in callers {
        caller.await??;
    }
    let value: Option<String> = client.get("key:7").await?;
    println!("{value:?}");
    Ok(())
}
