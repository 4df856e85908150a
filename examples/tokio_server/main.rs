//! An HTTP server that streams tokens while a device makes them, on tokio.
//!
//! ```text
//! cargo run --release --example tokio_server --features tokio                       # measures itself
//! cargo run --release --example tokio_server --features tokio -- 127.0.0.1:8080     # serves until ended
//! curl -N 'http://127.0.0.1:8080/generate?tokens=20'
//! ```
//!
//! Each request is a decode loop: queue a step on a stream of its own, await its number, send a token. How
//! the number is awaited is the one difference between the servers that are measured: by a `Watcher`, whose
//! one thread looks at the words of all requests; by a predicted sleep of the task and then a `Watcher`; or
//! by the device's blocking wait on a thread of tokio's blocking pool, one for each request.

mod load;
mod server;

use load::Load;
use server::{Engine, Waiting};
use std::net::SocketAddr;
use std::time::Duration;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Result<()> {
    match std::env::args().nth(1) {
        Some(address) => {
            let engine = Engine::new(Waiting::predicted()?)?;
            let (at, served) = server::start(engine, address.parse()?).await?;
            println!("http://{at}/generate?tokens=20");
            served.await?
        }
        None => compare().await,
    }
}

/// The same load on each server, one after the other, and once more in turn: a table.
async fn compare() -> Result<()> {
    let any_port = SocketAddr::from(([127, 0, 0, 1], 0));
    println!(
        "{:<17} {:>7} {:>10} {:>10} {:>9} {:>14} {:>14} {:>9} {:>8}",
        "awaits by",
        "clients",
        "requests/s",
        "tokens/s",
        "p50 ms",
        "p99 ms",
        "late p50 us",
        "p99 us",
        "CPU"
    );
    for clients in [1, 32] {
        let load =
            Load { clients, requests: clients * 12, tokens: 16, at_most: Duration::from_secs(4) };
        for _ in 0..2 {
            for waiting in Waiting::all()? {
                let name = waiting.name();
                let engine = Engine::new(waiting)?;
                let (at, served) = server::start(engine.clone(), any_port).await?;
                let run = load.run(at, &engine).await?;
                served.abort();
                println!("{name:<17} {clients:>7} {run}");
            }
        }
    }
    println!(
        "\nlate: from the device's store to the handler that sends the token; {}",
        load::CPU_NOTE
    );
    Ok(())
}
