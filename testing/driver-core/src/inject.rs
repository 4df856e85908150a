//! What tests make the device do, and ask about it.

use crate::driver::Driver;
use crate::memory::Place;
use crate::refusal::Refusal;
use crate::state::State;
use crate::stream::PER_THREAD;
use crate::work::Op;
use gpu_async_reactor::DurNs;
use gpu_async_reactor::backend::software::Hang;
use std::collections::{HashMap, HashSet};
use std::io::Write;

/// What becomes of a store.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) enum Fate {
    #[default]
    Lands,
    Lost,
    /// It lands this long after its turn, and its stream does not wait for it.
    Late(DurNs),
}

#[derive(Default)]
struct Tally {
    calls: u64,
    /// Failures to come: the call's number, and its code.
    armed: Vec<(u64, i32)>,
}

#[derive(Default)]
pub(crate) struct Injections {
    entries: HashMap<String, Tally>,
    lost: u64,
    late: (u64, DurNs),
    /// Whether status queries stand still, and how many calls do.
    pub(crate) hang: bool,
    pub(crate) hung: u64,
    /// Entry points whose calls stand still before they have an effect.
    standing: HashSet<String>,
    /// Whether work is kept back until a status call or a wait.
    pub(crate) batching: bool,
    /// Whether a fault ends the process.
    fault_aborts: bool,
}

impl Injections {
    /// Counts a call, and answers the code of a failure that was armed for it.
    pub(crate) fn count(&mut self, entry: &str) -> Option<i32> {
        if !self.entries.contains_key(entry) {
            self.entries.insert(entry.to_string(), Tally::default());
        }
        let tally = self.entries.get_mut(entry).expect("put there above");
        tally.calls += 1;
        let now = tally.calls;
        let armed = tally.armed.iter().position(|(call, _)| *call == now)?;
        Some(tally.armed.swap_remove(armed).1)
    }

    fn stands(&self, entry: &str) -> bool {
        self.standing.contains(entry)
    }

    pub(crate) fn next_fate(&mut self) -> Fate {
        if self.lost > 0 {
            self.lost -= 1;
            return Fate::Lost;
        }
        if self.late.0 > 0 {
            self.late.0 -= 1;
            return Fate::Late(self.late.1);
        }
        Fate::Lands
    }
}

/// What can be counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Live {
    /// Pieces of page-locked memory.
    HostAllocations = 0,
    /// Pages of page-locked memory.
    HostPages = 1,
    /// Pieces of device memory.
    DeviceAllocations = 2,
    /// Streams that were created and not destroyed.
    Streams = 3,
    /// Events.
    Events = 4,
    /// References to primary contexts.
    PrimaryReferences = 5,
    /// Contexts that were created and not destroyed.
    Contexts = 6,
    /// Graphs.
    Graphs = 7,
    /// Captures that have begun and not ended.
    Captures = 8,
    /// Stores that were queued and have not landed.
    PendingStores = 9,
}

impl Live {
    /// All of them, by their numbers.
    pub const ALL: [Live; 10] = [
        Live::HostAllocations,
        Live::HostPages,
        Live::DeviceAllocations,
        Live::Streams,
        Live::Events,
        Live::PrimaryReferences,
        Live::Contexts,
        Live::Graphs,
        Live::Captures,
        Live::PendingStores,
    ];
}

impl crate::driver::Call {
    /// Stands still while status queries are made to.
    pub(crate) fn stand_still(&mut self) {
        if self.injections.hang {
            self.injections.hung += 1;
            self.driver.announce();
            self.wait_until(|state| !state.injections.hang);
            self.injections.hung -= 1;
        }
    }

    /// Stands still while calls of this entry point are made to.
    pub(crate) fn stand_at_entry(&mut self) {
        let entry = self.entry;
        if self.injections.stands(entry) {
            self.injections.hung += 1;
            self.driver.announce();
            self.wait_until(|state| !state.injections.stands(entry));
            self.injections.hung -= 1;
        }
    }
}

/// The control interface, as [`control!`](crate::control) exports it.
impl Driver {
    /// Forgets everything but the handles that were given, and returns how many violations there
    /// were. What stands is released, and what is queued runs to its end first.
    pub fn reset(&'static self) -> u64 {
        self.release();
        self.hang_queries(false);
        self.enter("reset").injections.standing.clear();
        self.announce();
        let software = {
            let mut call = self.enter("reset");
            call.settle_log();
            call.injections.batching = false;
            call.submit_batched();
            let contexts: Vec<u64> = call.contexts.keys().copied().collect();
            contexts.into_iter().for_each(|context| call.release_holds(context));
            call.wait_until(|state| {
                state.streams.values().all(|stream| stream.done == stream.queued)
            });
            call.software.take()
        };
        if let Some(software) = software {
            software.close();
        }
        let mut old = {
            let mut call = self.enter("reset");
            call.wait_until(|state| state.injections.hung == 0);
            let fresh = self.fresh_state();
            std::mem::replace(&mut *call, fresh)
        };
        old.violations.extend(self.forked().take());
        let violations = old.violations.len() as u64;
        old.withheld.clear();
        old.memory.clear();
        self.announce();
        violations
    }

    /// Has the `nth` call of `entry` from now, 1 for the next, answer `code` without effect.
    pub fn fail(&'static self, entry: &str, nth: u64, code: i32) {
        let mut call = self.enter("fail");
        let tally = call.injections.entries.entry(entry.to_string()).or_default();
        let number = tally.calls + nth;
        tally.armed.push((number, code));
    }

    /// How often `entry` was called.
    pub fn calls(&'static self, entry: &str) -> u64 {
        self.enter("calls").injections.entries.get(entry).map_or(0, |tally| tally.calls)
    }

    /// Makes `code` the answer of every context there is on device 0, and ends their work.
    pub fn fault(&'static self, code: i32) {
        let mut call = self.enter("fault");
        if call.injections.fault_aborts {
            // It cannot fail in a way that matters any more.
            let _ = writeln!(std::io::stderr(), "Memory access fault by the device: {code}");
            std::process::abort();
        }
        if call.rules.by_device {
            call.primary(0);
        }
        let contexts = call.contexts.iter().filter(|(_, context)| context.device == 0);
        let contexts: Vec<u64> = contexts.map(|(&handle, _)| handle).collect();
        for handle in contexts {
            let context = call.contexts.get_mut(&handle).expect("listed above");
            context.fault.get_or_insert(code);
            call.release_holds(handle);
        }
        self.announce();
    }

    /// The next `stores` stores of memory operations never land.
    pub fn lose_stores(&'static self, stores: u64) {
        self.enter("lose").injections.lost = stores;
    }

    /// The next `stores` stores of memory operations land `late` after their turn, while the status
    /// of their streams goes on; with [`DurNs::MAX`] they land when released.
    pub fn delay_stores(&'static self, stores: u64, late: DurNs) {
        self.enter("delay").injections.late = (stores, late);
    }

    /// Has status queries stand still, or go on.
    pub fn hang_queries(&'static self, on: bool) {
        self.enter("hang").injections.hang = on;
        self.announce();
    }

    /// Has calls of `entry` stand still before they have an effect, or go on.
    pub fn hang(&'static self, entry: &str, on: bool) {
        let mut call = self.enter("hang");
        let standing = &mut call.injections.standing;
        if on {
            standing.insert(entry.to_string())
        } else {
            standing.remove(entry)
        };
        self.announce();
    }

    /// How many calls stand still.
    pub fn hung(&'static self) -> u64 {
        self.enter("hung").injections.hung
    }

    /// Sets an attribute of a device, or makes it unknown.
    pub fn set_attribute(&'static self, device: i32, attribute: i32, value: Option<i32>) {
        self.enter("attribute").attributes.insert((device, attribute), value);
    }

    /// Sets the driver's version.
    pub fn set_version(&'static self, version: i32) {
        self.enter("version").version = version;
    }

    /// Sets how many devices there are.
    pub fn set_devices(&'static self, devices: i32) {
        self.enter("devices").devices = devices;
    }

    /// Has work be kept back until a status call or a wait, as a driver does that batches submissions.
    pub fn batching(&'static self, on: bool) {
        let mut call = self.enter("batching");
        call.injections.batching = on;
        if !on {
            call.submit_batched();
        }
    }

    /// Has a fault end the process, as AMD's runtime does until 6.x.
    pub fn fault_aborts(&'static self, on: bool) {
        self.enter("fault aborts").injections.fault_aborts = on;
    }

    /// Makes a created stream one of a green context.
    pub fn green(&'static self, stream: u64) {
        let mut call = self.enter("green");
        let context = call.new_handle();
        call.green.insert(stream, context);
    }

    /// Resets the primary context of `device`, as another library of the process may do.
    pub fn reset_device(&'static self, device: i32) -> i32 {
        let mut call = self.enter("reset of a device");
        call.reset_primary(device).map_or_else(call.rules.code, |()| 0)
    }

    /// Queues work that takes `time`, as a kernel would.
    pub fn work(&'static self, stream: u64, time: DurNs) -> i32 {
        self.queue_for_test(stream, Op::Pass(time), None)
    }

    /// Queues work that stands until [`release`](Self::release).
    pub fn hold(&'static self, stream: u64) -> i32 {
        let hang = Hang::new();
        self.queue_for_test(stream, Op::Stand(hang.clone()), Some(hang))
    }

    fn queue_for_test(&'static self, handle: u64, op: Op, hold: Option<Hang>) -> i32 {
        let mut call = self.enter("a test's work");
        // Whatever is current to the calling thread, a created stream is found.
        let stream = match handle > PER_THREAD {
            true if call.streams.get(&handle).is_some_and(|stream| !stream.destroyed) => Ok(handle),
            true => Err(Refusal::InvalidHandle),
            false => call.stream(handle),
        };
        let queued = stream.and_then(|stream| {
            let queued = call.enqueue(stream, vec![op])?;
            let holds = &mut call.streams.get_mut(&stream).expect("found above").holds;
            holds.extend(hold.filter(|_| queued.is_some()));
            Ok(())
        });
        queued.map_or_else(call.rules.code, |()| 0)
    }

    /// Releases everything that stands, late stores included.
    pub fn release(&'static self) {
        let mut call = self.enter("release");
        let streams = call.streams.values_mut();
        streams.flat_map(|stream| stream.holds.drain(..)).for_each(|hold| hold.release());
        call.late_holds.drain(..).for_each(|hold| hold.release());
    }

    /// What programs did wrong so far, one line each.
    pub fn violations(&'static self) -> Vec<String> {
        let forked = self.forked().take();
        let mut call = self.enter("violations");
        call.violations.extend(forked);
        call.violations.clone()
    }

    /// Logs what should have been undone by now: contexts pushed and not popped, threads left in
    /// another capture mode.
    pub fn settle(&'static self) {
        self.enter("settle").settle_log();
    }

    /// How many there are of something.
    pub fn live(&'static self, what: Live) -> u64 {
        self.enter("live").count(what)
    }
}

impl State {
    /// Logs each thread that did not leave things as it found them, once.
    fn settle_log(&mut self) {
        let mut found = Vec::new();
        for thread in self.threads.values_mut() {
            let pushed = thread.stack.iter().filter(|entry| entry.pushed).count();
            if pushed > 0 {
                found.push(format!("a thread pushed {pushed} context(s) and did not pop them"));
                thread.stack.iter_mut().for_each(|entry| entry.pushed = false);
            }
            let mode = std::mem::take(&mut thread.mode);
            if mode != Default::default() {
                found.push(format!("a thread was left in the capture mode {mode:?}"));
            }
        }
        self.violations.extend(found);
    }

    fn count(&self, what: Live) -> u64 {
        let pieces =
            |place| self.memory.live().filter(move |(_, piece)| piece.request.place == place);
        let primaries = self.contexts.values().filter(|context| context.primary);
        let created =
            self.contexts.values().filter(|context| !context.primary && !context.destroyed);
        let special: Vec<u64> = self
            .contexts
            .values()
            .flat_map(|context| context.legacy.iter().chain(context.per_thread.values()))
            .copied()
            .collect();
        let streams = self
            .streams
            .iter()
            .filter(|(handle, stream)| !stream.destroyed && !special.contains(handle));
        match what {
            Live::HostAllocations => pieces(Place::Host).count() as u64,
            Live::HostPages => pieces(Place::Host).map(|(_, piece)| piece.pages() as u64).sum(),
            Live::DeviceAllocations => pieces(Place::Device).count() as u64,
            Live::Streams => streams.count() as u64,
            Live::Events => self.events.len() as u64,
            Live::PrimaryReferences => primaries.map(|context| context.references).sum(),
            Live::Contexts => created.count() as u64,
            Live::Graphs => self.graphs.len() as u64,
            Live::Captures => self.captures.len() as u64,
            Live::PendingStores => self.memory.pending(),
        }
    }
}
