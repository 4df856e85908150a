//! What a worker of the software device runs: one piece of a stream's work at a time.
//!
//! Behind a sticky fault every piece is over at once and without effect: nothing is stored, copied
//! or called.

use crate::abi::{HostAddress, HostData, HostFunction};
use crate::driver::Driver;
use crate::inject::Fate;
use crate::memory::{self, Target, Value};
use crate::state::State;
use gpu_async_reactor::DurNs;
use gpu_async_reactor::backend::software::{Hang, Work};
use std::cell::Cell;

/// A piece of work.
pub(crate) enum Op {
    /// Work that takes this long.
    Pass(DurNs),
    /// Work that stands until released.
    Stand(Hang),
    Host(HostFunction, HostData),
    Store {
        to: Target,
        value: Value,
        fate: Fate,
    },
    Copy {
        from: Bytes,
        to: Bytes,
        len: usize,
    },
    Fill {
        to: Target,
        value: u8,
        len: usize,
    },
    /// Nothing but a point to record.
    Mark,
}

/// One end of a copy.
pub(crate) enum Bytes {
    /// Memory of the driver.
    Piece(Target),
    /// The program's own memory.
    Program(HostAddress),
    /// Taken from the program when the copy was queued.
    Taken(Vec<u8>),
}

thread_local! {
    static IN_HOST_FUNCTION: Cell<bool> = const { Cell::new(false) };
}

/// Whether the calling thread is inside a host function.
pub(crate) fn in_host_function() -> bool {
    IN_HOST_FUNCTION.get()
}

impl Op {
    /// The work of a software stream that runs `ops`, and how many there are.
    pub(crate) fn work(
        driver: &'static Driver,
        stream: u64,
        ops: impl Iterator<Item = Op>,
    ) -> (Work, u64) {
        let mut work = Work::new();
        let mut pieces = 0;
        for op in ops {
            pieces += 1;
            work = match op {
                Op::Pass(time) => work.delay(time),
                Op::Stand(hang) => work.hang(&hang),
                op => work.run(move || op.run(driver, stream)),
            };
            work = work.run(move || driver.finish(stream));
        }
        (work, pieces)
    }

    fn run(self, driver: &'static Driver, stream: u64) {
        if !driver.lock().is_sound(stream) {
            return;
        }
        match self {
            Op::Host(function, data) => {
                IN_HOST_FUNCTION.set(true);
                function.call(data);
                IN_HOST_FUNCTION.set(false);
            }
            Op::Store { fate: Fate::Lost, .. } => {}
            Op::Store { to, value, fate: Fate::Late(after) } => {
                driver.lock().land_late(driver, to, value, after);
            }
            Op::Store { to, value, fate: Fate::Lands } => driver.lock().land(to, value),
            Op::Copy { from, to, len } => driver.lock().copy(&from, &to, len),
            Op::Fill { to, value, len } => {
                let state = &mut *driver.lock();
                if state.check_landing(&to, "a fill") {
                    memory::set(to.host, value, len);
                }
            }
            Op::Pass(_) | Op::Stand(_) | Op::Mark => {}
        }
    }
}

impl Driver {
    /// A piece of `stream` is over.
    fn finish(&self, stream: u64) {
        let mut state = self.lock();
        let entry = state.streams.get_mut(&stream).expect("there while it has work");
        entry.done += 1;
        if entry.destroyed && entry.done == entry.queued {
            state.streams.remove(&stream);
        }
        if !state.waiters.is_empty() {
            state.release_waiters();
        }
        drop(state);
        self.announce();
    }
}

impl State {
    /// Whether work of `stream` has an effect.
    fn is_sound(&self, stream: u64) -> bool {
        let stream = &self.streams[&stream];
        !stream.reset && self.contexts[&stream.context].fault.is_none()
    }

    /// Whether a write can be made; logged where its memory was freed.
    fn check_landing(&mut self, to: &Target, what: &str) -> bool {
        let live = self.memory.is_live(to.key);
        if !live {
            self.log(format!("{what} landed in freed memory"));
        }
        live
    }

    /// A store's time has come.
    pub(crate) fn land(&mut self, to: Target, value: Value) {
        if !self.check_landing(&to, "a store") {
            return;
        }
        let coherent = self.memory.piece(to.key).is_some_and(|piece| piece.request.coherent);
        if coherent {
            memory::store(to.host, value);
        } else {
            // Until the host synchronises.
            self.withheld.push((to, value));
        }
    }

    /// Has `value` land later, whatever its stream does meanwhile: after a time, or when released.
    fn land_late(&mut self, driver: &'static Driver, to: Target, value: Value, after: DurNs) {
        let work = if after == DurNs::MAX {
            let hang = Hang::new();
            self.late_holds.push(hang.clone());
            Work::new().hang(&hang)
        } else {
            Work::new().delay(after)
        };
        let Ok(software) = self.software() else { return };
        let Ok(stream) = software.stream() else { return };
        let work = work.run(move || {
            driver.lock().land(to, value);
            driver.announce();
        });
        // It is queued or, on a device that is closing, lost.
        let _ = stream.queue(work);
    }

    /// The host has synchronised with `context`: what was stored in memory that is not coherent
    /// becomes visible.
    pub(crate) fn flush(&mut self, context: u64) {
        for (to, value) in std::mem::take(&mut self.withheld) {
            let piece = self.memory.piece(to.key);
            if piece.is_some_and(|piece| piece.context != context) {
                self.withheld.push((to, value));
            } else if self.check_landing(&to, "a store") {
                memory::store(to.host, value);
            }
        }
    }

    fn copy(&mut self, from: &Bytes, to: &Bytes, len: usize) {
        let Some(from) = self.end_of_copy(from) else { return };
        let Some(to) = self.end_of_copy(to) else { return };
        memory::copy(from, to, len);
    }

    fn end_of_copy(&mut self, bytes: &Bytes) -> Option<HostAddress> {
        match bytes {
            Bytes::Piece(piece) => self.check_landing(piece, "a copy").then_some(piece.host),
            Bytes::Program(address) => Some(*address),
            // Read only, as the source of a copy.
            Bytes::Taken(bytes) => Some(HostAddress::of(bytes.as_ptr().cast_mut())),
        }
    }
}
