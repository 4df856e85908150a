//! Clients on the loopback, a bounded number of requests, and what they saw.

use crate::Result;
use crate::server::Engine;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

pub const CPU_NOTE: &str = "CPU: of the whole process, device and clients included, in one core";

/// How much to ask of a server. It ends by itself, by count or by time.
#[derive(Clone, Copy)]
pub struct Load {
    pub clients: usize,
    pub requests: usize,
    pub tokens: usize,
    /// No request is begun after this.
    pub at_most: Duration,
}

pub struct Run {
    elapsed: Duration,
    tokens: usize,
    request_ns: Vec<u64>,
    late_ns: Vec<u64>,
    cpu: Option<Duration>,
}

impl Load {
    pub async fn run(self, at: SocketAddr, engine: &Engine) -> Result<Run> {
        // The first request pays for threads and tables.
        request(at, self.tokens).await?;
        engine.take_late_ns();
        let begun = Arc::new(AtomicUsize::new(0));
        let (start, cpu) = (Instant::now(), process_cpu());
        let clients: Vec<_> = (0..self.clients)
            .map(|_| {
                let begun = begun.clone();
                tokio::spawn(async move {
                    let (mut all, mut tokens) = (Vec::new(), 0);
                    while start.elapsed() < self.at_most
                        && begun.fetch_add(1, Ordering::Relaxed) < self.requests
                    {
                        let asked = Instant::now();
                        tokens += request(at, self.tokens).await?;
                        all.push(asked.elapsed().as_nanos() as u64);
                    }
                    Result::Ok((all, tokens))
                })
            })
            .collect();
        let (mut request_ns, mut tokens) = (Vec::new(), 0);
        for client in clients {
            let (of_client, made) = client.await??;
            request_ns.extend(of_client);
            tokens += made;
        }
        let elapsed = start.elapsed();
        let cpu = process_cpu().zip(cpu).map(|(now, then)| now - then);
        if tokens != request_ns.len() * self.tokens {
            return Err(format!("{tokens} tokens of {} requests", request_ns.len()).into());
        }
        Ok(Run { elapsed, tokens, request_ns, late_ns: engine.take_late_ns(), cpu })
    }
}

/// One request on a connection of its own; how many tokens came.
async fn request(at: SocketAddr, tokens: usize) -> Result<usize> {
    let mut connection = TcpStream::connect(at).await?;
    connection.set_nodelay(true)?;
    let text = format!(
        "GET /generate?tokens={tokens} HTTP/1.1\r\nHost: {at}\r\nConnection: close\r\n\r\n"
    );
    connection.write_all(text.as_bytes()).await?;
    let mut answer = String::new();
    connection.read_to_string(&mut answer).await?;
    if !answer.starts_with("HTTP/1.1 200") {
        return Err(answer.into());
    }
    Ok(answer.matches("data: token").count())
}

fn percentile(values: &[u64], share: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    let last = sorted.len().saturating_sub(1);
    sorted.get((last as f64 * share).round() as usize).map_or(f64::NAN, |&value| value as f64)
}

impl fmt::Display for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.elapsed.as_secs_f64();
        let cpu = self.cpu.map_or("unknown".to_string(), |cpu| {
            format!("{:.1} %", cpu.as_secs_f64() / seconds * 100.0)
        });
        write!(
            f,
            "{:>10.1} {:>10.0} {:>9.2} {:>14.2} {:>14.1} {:>9.1} {cpu:>8}",
            self.request_ns.len() as f64 / seconds,
            self.tokens as f64 / seconds,
            percentile(&self.request_ns, 0.5) / 1e6,
            percentile(&self.request_ns, 0.99) / 1e6,
            percentile(&self.late_ns, 0.5) / 1e3,
            percentile(&self.late_ns, 0.99) / 1e3,
        )
    }
}

/// The CPU time that this process has used.
#[cfg(target_os = "linux")]
fn process_cpu() -> Option<Duration> {
    let used = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Some(Duration::new(used.tv_sec as u64, used.tv_nsec as u32))
}

#[cfg(not(target_os = "linux"))]
fn process_cpu() -> Option<Duration> {
    None
}
