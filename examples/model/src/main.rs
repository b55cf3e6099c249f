//! An HTTP endpoint that batches the calls to a model. The engine decides how many texts one pass takes.
//!
//! `cargo run -p example-model`, then
//! `seq 2000 | xargs -P 32 -I{} curl -s -d 'text {}' 127.0.0.1:8080/embed` and `curl 127.0.0.1:8080/batching`

use std::error::Error;
use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::{get, post};
use axum::{Json, Router};
use tidegate::batcher::{Builder, CallError, Full, Handle, SendError, map_batch_async};
use tidegate::controller::Bounds;
use tokio::net::TcpListener;

type Vector = [f32; 8];
type Model = Handle<String, Vector>;

/// Stands in for a model on an accelerator. A pass costs what such a model's would: a fixed part for the
/// launch, and a part for each text. The vectors are sums of bytes, and mean nothing.
async fn stand_in_model(texts: Vec<String>) -> Vec<Vector> {
    tokio::time::sleep(Duration::from_micros(8000 + 250 * texts.len() as u64)).await;
    let vector = |text: &String| {
        let mut vector = Vector::default();
        for (place, byte) in text.bytes().enumerate() {
            vector[place % 8] += f32::from(byte);
        }
        vector
    };
    texts.iter().map(vector).collect()
}

async fn embed(
    State(model): State<Model>,
    text: String,
) -> Result<Json<Vector>, (StatusCode, String)> {
    // A caller that waits longer has given up: the actor then skips its text.
    let answer = model.call_timeout(text, Duration::from_secs(2)).await;
    answer.map(Json).map_err(|error| {
        let status = match &error {
            CallError::Send(SendError::Full(_)) => StatusCode::SERVICE_UNAVAILABLE,
            CallError::TimedOut => StatusCode::GATEWAY_TIMEOUT,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        (status, error.to_string())
    })
}

async fn batching(State(model): State<Model>) -> String {
    let limit = match model.controller().await {
        Ok(now) => format!(
            "{} texts, bound by {}",
            now.limit,
            now.binding.map_or("nothing", |reason| reason.as_str())
        ),
        Err(error) => error.to_string(),
    };
    format!("{}\nlimit: {limit}\n", model.stats())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:8080".to_owned());
    // The accelerator's memory bounds a pass. A full queue refuses requests instead of adding latency.
    let bounds = Bounds { items_max: 64, ..Bounds::default() };
    let model = Builder::new().bounds(bounds).capacity(1024).full(Full::Reject);
    let model = model.spawn_task(map_batch_async(stand_in_model)).await?;

    let routes = Router::new().route("/embed", post(embed)).route("/batching", get(batching));
    let listener = TcpListener::bind(address).await?;
    println!("listening on {}", listener.local_addr()?);
    let interrupted = async { _ = tokio::signal::ctrl_c().await };
    axum::serve(listener, routes.with_state(model.clone()))
        .with_graceful_shutdown(interrupted)
        .await?;
    println!("{}", model.stats());
    model.drain(Duration::from_secs(5)).await?;
    Ok(())
}
