//! The server: a handler that is a decode loop, and the ways for it to await the device.

use crate::Result;
use axum::Router;
use axum::extract::{Query, State};
use axum::response::sse::{Event, Sse};
use axum::routing::get;
use futures_util::{Stream, stream};
use gpu_async_reactor::backend::software::{SoftwareDevice, SoftwareStream};
use gpu_async_reactor::host::{PreciseTimer, StdClock, WatchOptions, WatchPolicy, Watcher};
use gpu_async_reactor::{Clock, DeadlinePlan, DeviceStream, DurNs, Outcome, PointEstimate};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// What the device works on one token.
pub const STEP: DurNs = DurNs::from_ms(2);
/// How often the device is asked whether it has failed, while it stores nothing.
const BACKSTOP: DurNs = DurNs::from_ms(5);
const MOST_TOKENS: u64 = 1_000;

/// How a handler awaits the device.
#[derive(Clone)]
pub enum Waiting {
    Watcher(&'static str, Watcher),
    /// Sleeps until shortly before the end that the last steps predict, then watches.
    Predicted {
        watcher: Watcher,
        timer: PreciseTimer,
        estimate: Arc<Mutex<PointEstimate>>,
    },
    BlockingPool,
}

const PREDICTION: DeadlinePlan =
    DeadlinePlan { margin_ns: 150_000, min_sleep_ns: 100_000, max_sleep_ns: 50_000_000, window: 8 };

impl Waiting {
    /// The ways that are compared.
    pub fn all() -> Result<[Self; 4]> {
        Ok([
            Waiting::Watcher("Watcher BALANCED", Watcher::new(WatchPolicy::BALANCED)?),
            Waiting::Watcher("Watcher SAVING", Watcher::new(WatchPolicy::SAVING)?),
            Waiting::predicted()?,
            Waiting::BlockingPool,
        ])
    }

    pub fn predicted() -> Result<Self> {
        let watcher = Watcher::new(WatchPolicy::BALANCED)?;
        let estimate = Arc::new(Mutex::new(PointEstimate::default()));
        Ok(Waiting::Predicted { watcher, timer: PreciseTimer::new()?, estimate })
    }

    pub fn name(&self) -> &'static str {
        match self {
            Waiting::Watcher(name, _) => name,
            Waiting::Predicted { .. } => "Watcher predicted",
            Waiting::BlockingPool => "spawn_blocking",
        }
    }

    /// Resolves once everything before the mark of `number` is done; with the device's error where it
    /// has failed. A request that is given up drops this: the watch is taken back then, while a
    /// thread of the blocking pool stays in the driver until the device is done.
    async fn done(&self, stream: &Arc<SoftwareStream>, number: u64) -> Result<()> {
        let options = WatchOptions::new(BACKSTOP);
        match self {
            Waiting::Watcher(_, watcher) => {
                watcher.watch_stream(stream.clone(), number, options).await?;
            }
            Waiting::Predicted { watcher, timer, estimate } => {
                let start = timer.monotonic_ns();
                let sleep = lock(estimate).sleep_ns(&PREDICTION);
                if let Some(sleep) = sleep {
                    timer.sleep(start.after(sleep)).await;
                }
                let is_late = stream.query_mark(number)?;
                if !is_late {
                    watcher.watch_stream(stream.clone(), number, options).await?;
                }
                let elapsed_ns = timer.monotonic_ns().since(start).0;
                let outcome = match is_late {
                    true => Outcome::Late { woke_ns: elapsed_ns },
                    false => Outcome::Exact { residual_ns: elapsed_ns },
                };
                lock(estimate).observe(&PREDICTION, outcome);
            }
            Waiting::BlockingPool => {
                let stream = stream.clone();
                tokio::task::spawn_blocking(move || stream.synchronize_mark(number)).await??;
            }
        }
        Ok(())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What the handlers share.
#[derive(Clone)]
pub struct Engine {
    device: SoftwareDevice,
    waiting: Waiting,
    /// From the store of each token's number to its handler, in nanoseconds.
    late_ns: Arc<Mutex<Vec<u64>>>,
}

impl Engine {
    pub fn new(waiting: Waiting) -> Result<Self> {
        // Its workers do not spin: the CPU that is measured is that of the waits.
        let device = SoftwareDevice::builder().spin_before(DurNs::ZERO).build()?;
        Ok(Engine { device, waiting, late_ns: Arc::default() })
    }

    /// What was late since this was last asked.
    pub fn take_late_ns(&self) -> Vec<u64> {
        std::mem::take(&mut lock(&self.late_ns))
    }

    /// One step of the device, awaited.
    async fn step(&self, stream: &Arc<SoftwareStream>) -> Result<()> {
        stream.delay(STEP)?;
        let number = stream.mark()?;
        self.waiting.done(stream, number).await?;
        let now = StdClock::new().monotonic_ns();
        if let Some(stored) = stream.stamp_of(number) {
            lock(&self.late_ns).push(now.since(stored).0);
        }
        Ok(())
    }
}

/// Begins to serve. Gives the address, and what ends only by an error or by being aborted.
pub async fn start(engine: Engine, at: SocketAddr) -> Result<(SocketAddr, JoinHandle<Result<()>>)> {
    let listener = TcpListener::bind(at).await?;
    let at = listener.local_addr()?;
    let router = Router::new().route("/generate", get(generate)).with_state(engine);
    let served = tokio::spawn(async move { Ok(axum::serve(listener, router).await?) });
    Ok((at, served))
}

/// `GET /generate?tokens=20`: server-sent events, one a token.
async fn generate(
    State(engine): State<Engine>,
    Query(query): Query<HashMap<String, String>>,
) -> std::result::Result<Sse<impl Stream<Item = Result<Event>>>, String> {
    let tokens = query.get("tokens").map_or(Ok(16), |text| text.parse());
    let tokens: u64 = tokens.map_err(|error| format!("tokens: {error}\n"))?;
    let stream = engine.device.stream().map_err(|error| format!("{error}\n"))?;
    Ok(Sse::new(decode(engine, Arc::new(stream), tokens.min(MOST_TOKENS))))
}

/// The decode loop, as the stream of its tokens. A fault of the device ends it with an event.
fn decode(
    engine: Engine,
    stream: Arc<SoftwareStream>,
    tokens: u64,
) -> impl Stream<Item = Result<Event>> {
    stream::unfold(Some(0), move |made| {
        let (engine, stream) = (engine.clone(), stream.clone());
        async move {
            let token = made.filter(|&made| made < tokens)?;
            let (event, next) = match engine.step(&stream).await {
                Ok(()) => (Event::default().data(format!("token {token}")), Some(token + 1)),
                Err(error) => (Event::default().event("error").data(error.to_string()), None),
            };
            Some((Ok(event), next))
        }
    })
}
