//! Tasks of executors that another thread wakes.

use super::{Kind, Subject};
use crate::trigger::{Action, Trigger};
use async_executor::LocalExecutor;
use futures_util::task::AtomicWaker;
use gpu_async_reactor::host::{ParkPolicy, StdClock, StdIdle};
use gpu_async_reactor::{
    CompletionLine, Doorbell, DurNs, Executor, OwnedDescriptor, Reactor, Slot,
};
use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{Notify, oneshot};

pub fn all() -> Vec<Box<dyn Subject>> {
    let tokio = || Builder::new_current_thread().build().expect("a runtime without drivers");
    vec![
        Box::new(TokioNotify { runtime: tokio(), notify: Arc::new(Notify::new()) }),
        Box::new(TokioOneshot { runtime: tokio(), sender: Arc::new(Mutex::new(None)) }),
        Woken::boxed("a waker, async-executor", Kind::Peer, AsyncExecutor),
        Woken::boxed("a waker, futures LocalPool", Kind::Peer, LocalPool),
        Woken::boxed("a waker, our executor asleep", Kind::Ours, Ours::new(false)),
        Woken::boxed("a waker, our executor spinning on a word", Kind::Ours, Ours::new(true)),
    ]
}

struct TokioNotify {
    runtime: Runtime,
    notify: Arc<Notify>,
}

impl Subject for TokioNotify {
    fn name(&self) -> &str {
        "tokio Notify, current_thread"
    }

    fn kind(&self) -> Kind {
        Kind::Peer
    }

    fn action(&self) -> Action {
        let notify = self.notify.clone();
        Arc::new(move || notify.notify_one())
    }

    fn wait(&mut self, trigger: &mut Trigger, waits: usize) -> Vec<f64> {
        let TokioNotify { runtime, notify } = self;
        runtime.block_on(async {
            let mut all = Vec::with_capacity(waits);
            for _ in 0..waits {
                trigger.fire();
                notify.notified().await;
                all.push(trigger.since());
            }
            all
        })
    }
}

struct TokioOneshot {
    runtime: Runtime,
    sender: Arc<Mutex<Option<oneshot::Sender<()>>>>,
}

impl Subject for TokioOneshot {
    fn name(&self) -> &str {
        "tokio oneshot, current_thread"
    }

    fn kind(&self) -> Kind {
        Kind::Peer
    }

    fn action(&self) -> Action {
        let sender = self.sender.clone();
        Arc::new(move || {
            let sender = sender.lock().expect("no panic under the lock").take();
            sender.expect("a wait").send(()).expect("it is waited for");
        })
    }

    fn wait(&mut self, trigger: &mut Trigger, waits: usize) -> Vec<f64> {
        let TokioOneshot { runtime, sender } = self;
        runtime.block_on(async {
            let mut all = Vec::with_capacity(waits);
            for _ in 0..waits {
                let (new, receiver) = oneshot::channel();
                *sender.lock().expect("no panic under the lock") = Some(new);
                trigger.fire();
                receiver.await.expect("it is sent");
                all.push(trigger.since());
            }
            all
        })
    }
}

/// A flag and the waker of the task that waits for it.
#[derive(Default)]
struct Bell {
    rung: AtomicBool,
    waker: AtomicWaker,
}

impl Bell {
    fn ring(&self) {
        self.rung.store(true, Ordering::Release);
        self.waker.wake();
    }

    async fn wait(&self) {
        poll_fn(|cx| {
            self.waker.register(cx.waker());
            match self.rung.swap(false, Ordering::Acquire) {
                true => Poll::Ready(()),
                false => Poll::Pending,
            }
        })
        .await;
    }
}

/// Runs one future to its end on the calling thread.
trait BlockOn {
    fn block_on<T: 'static>(&mut self, future: impl Future<Output = T>) -> T;
}

struct Woken<E> {
    name: &'static str,
    kind: Kind,
    executor: E,
    bell: Arc<Bell>,
}

impl<E: BlockOn + 'static> Woken<E> {
    fn boxed(name: &'static str, kind: Kind, executor: E) -> Box<dyn Subject> {
        Box::new(Woken { name, kind, executor, bell: Arc::default() })
    }
}

impl<E: BlockOn> Subject for Woken<E> {
    fn name(&self) -> &str {
        self.name
    }

    fn kind(&self) -> Kind {
        self.kind
    }

    fn action(&self) -> Action {
        let bell = self.bell.clone();
        Arc::new(move || bell.ring())
    }

    fn wait(&mut self, trigger: &mut Trigger, waits: usize) -> Vec<f64> {
        let bell = &self.bell;
        self.executor.block_on(async {
            let mut all = Vec::with_capacity(waits);
            for _ in 0..waits {
                trigger.fire();
                bell.wait().await;
                all.push(trigger.since());
            }
            all
        })
    }
}

struct AsyncExecutor;

impl BlockOn for AsyncExecutor {
    fn block_on<T: 'static>(&mut self, future: impl Future<Output = T>) -> T {
        let executor = LocalExecutor::new();
        let task = executor.spawn(future);
        futures_executor::block_on(executor.run(task))
    }
}

struct LocalPool;

impl BlockOn for LocalPool {
    fn block_on<T: 'static>(&mut self, future: impl Future<Output = T>) -> T {
        futures_executor::block_on(future)
    }
}

/// Asleep where nothing but the waker can wake it; spinning by its policy where it waits for a word too.
struct Ours {
    idle: StdIdle,
    reactor: Reactor<'static, StdClock>,
    waits: bool,
}

impl Ours {
    fn new(waits: bool) -> Self {
        let idle = StdIdle::with(StdClock::new(), ParkPolicy::SPIN);
        let reactor = Reactor::with_doorbell(StdClock::new(), &Doorbell::new());
        Ours { idle, reactor, waits }
    }
}

impl BlockOn for Ours {
    fn block_on<T: 'static>(&mut self, future: impl Future<Output = T>) -> T {
        let never =
            OwnedDescriptor { line: CompletionLine::shared(), slot: Slot::ALL[0], target: 1 };
        let mut executor = Executor::new();
        if self.waits {
            executor.spawn(self.reactor.ready_owned(never, None));
        }
        let ran = executor.run_until(&self.reactor, &mut self.idle, DurNs::from_ms(1), future);
        ran.expect("the other thread holds a waker").0
    }
}
