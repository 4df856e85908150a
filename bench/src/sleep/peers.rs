//! The raw sleep of the kernel, and the sleeps of others.

use super::{Kind, Slack, Sleeper};
use gpu_async_reactor::host::StdClock;
use gpu_async_reactor::{Clock, DurNs, MonoNs};
use rustix::thread::clock_nanosleep_absolute;
use rustix::time::{ClockId, Timespec};
use std::thread;
use std::time::{Duration, Instant};
use tokio::runtime::{Builder, Runtime};

pub fn all() -> Vec<Box<dyn Sleeper>> {
    let tokio = Builder::new_current_thread().enable_time().build().expect("a runtime");
    vec![
        Box::new(Raw),
        Box::new(Std(Slack::Least)),
        Box::new(Std(Slack::Usual)),
        Box::new(Tokio(tokio)),
        Box::new(AsyncIo),
    ]
}

/// An absolute sleep of the kernel, and nothing else.
struct Raw;

impl Sleeper for Raw {
    fn name(&self) -> &str {
        "raw clock_nanosleep, absolute"
    }

    fn kind(&self) -> Kind {
        Kind::Raw
    }

    fn slack(&self) -> Slack {
        Slack::Least
    }

    fn lateness(&mut self, time: DurNs) -> f64 {
        let clock = StdClock::new();
        let at = clock.monotonic_ns().after(time);
        let until = Timespec {
            tv_sec: (at.0 / 1_000_000_000) as i64,
            tv_nsec: (at.0 % 1_000_000_000) as i64,
        };
        clock_nanosleep_absolute(ClockId::Monotonic, &until).expect("no signal comes");
        signed(clock.monotonic_ns(), at)
    }
}

/// The row that shows how far apart two sleeps by one system call are.
pub const SAME_CALL: &str = "std::thread::sleep";

struct Std(Slack);

impl Sleeper for Std {
    fn name(&self) -> &str {
        match self.0 {
            Slack::Least => SAME_CALL,
            Slack::Usual => "std::thread::sleep, as it is",
        }
    }

    fn kind(&self) -> Kind {
        Kind::Peer
    }

    fn slack(&self) -> Slack {
        self.0
    }

    fn lateness(&mut self, time: DurNs) -> f64 {
        let began = Instant::now();
        thread::sleep(time.into());
        late(began, time)
    }
}

struct Tokio(Runtime);

impl Sleeper for Tokio {
    fn name(&self) -> &str {
        "tokio::time::sleep, current_thread"
    }

    fn kind(&self) -> Kind {
        Kind::Peer
    }

    fn slack(&self) -> Slack {
        Slack::Usual
    }

    fn is_coarse(&self) -> bool {
        true
    }

    fn lateness(&mut self, time: DurNs) -> f64 {
        self.0.block_on(async {
            let began = Instant::now();
            tokio::time::sleep(time.into()).await;
            late(began, time)
        })
    }
}

struct AsyncIo;

impl Sleeper for AsyncIo {
    fn name(&self) -> &str {
        "async_io::Timer, its block_on"
    }

    fn kind(&self) -> Kind {
        Kind::Peer
    }

    fn slack(&self) -> Slack {
        Slack::Usual
    }

    fn lateness(&mut self, time: DurNs) -> f64 {
        async_io::block_on(async {
            let began = Instant::now();
            async_io::Timer::at(began + Duration::from(time)).await;
            late(began, time)
        })
    }
}

fn late(began: Instant, time: DurNs) -> f64 {
    began.elapsed().as_nanos() as f64 - time.0 as f64
}

/// How long `woke` is after `at`; negative where it is before.
pub fn signed(woke: MonoNs, at: MonoNs) -> f64 {
    woke.since(at).0 as f64 - at.since(woke).0 as f64
}
