//! What the fake device knows: contexts, streams, events, captures, memory, threads, and its log.
//!
//! One lock guards it all. It is never held while a function of the program runs.

use crate::capture::{Capture, Mode};
use crate::inject::Injections;
use crate::memory::{Memory, Target, Value};
use crate::refusal::{Outcome, Refusal};
use crate::rules::{Rules, Traits};
use gpu_async_reactor::backend::software::{Hang, SoftwareDevice, SoftwareStream};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::thread::ThreadId;

/// How many worker threads run the streams. A host function occupies one.
const WORKERS: usize = 4;

/// A point in a stream: the first `count` pieces of its work.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Point {
    pub(crate) stream: u64,
    pub(crate) count: u64,
}

pub(crate) struct Context {
    pub(crate) device: i32,
    pub(crate) primary: bool,
    /// References to a primary context.
    pub(crate) references: u64,
    /// Its number, which no other context has: a new one after a reset.
    pub(crate) id: u64,
    /// The code that everything answers from now on.
    pub(crate) fault: Option<i32>,
    /// Whether it was reset, and nobody has retained it since.
    pub(crate) reset: bool,
    pub(crate) destroyed: bool,
    pub(crate) legacy: Option<u64>,
    pub(crate) per_thread: HashMap<ThreadId, u64>,
}

pub(crate) struct Stream {
    pub(crate) context: u64,
    pub(crate) queue: SoftwareStream,
    pub(crate) queued: u64,
    pub(crate) done: u64,
    /// Whether it synchronises with the legacy stream.
    pub(crate) blocking: bool,
    pub(crate) legacy: bool,
    pub(crate) destroyed: bool,
    /// Whether a reset has ended its work: what is left of it has no effect.
    pub(crate) reset: bool,
    pub(crate) capture: Option<u64>,
    /// Work that stands until released.
    pub(crate) holds: Vec<Hang>,
}

pub(crate) struct Event {
    pub(crate) context: u64,
    pub(crate) point: Option<Point>,
    /// The capture that it was last recorded in.
    pub(crate) capture: Option<u64>,
    pub(crate) flags: u32,
    /// The stream of the last record, captured or not.
    pub(crate) last_stream: Option<u64>,
}

/// An entry of a thread's stack of contexts.
#[derive(Clone, Copy)]
pub(crate) struct Entry {
    pub(crate) context: u64,
    /// By a push, which asks for a pop.
    pub(crate) pushed: bool,
}

#[derive(Default)]
pub(crate) struct Thread {
    pub(crate) stack: Vec<Entry>,
    pub(crate) device: i32,
    pub(crate) mode: Mode,
    /// The status that a later call asks for, by the rules of [`LastError`](crate::LastError).
    pub(crate) last_error: i32,
}

/// Work of one stream that waits for a point of another.
pub(crate) struct Waiter {
    pub(crate) point: Point,
    pub(crate) context: u64,
    pub(crate) hang: Hang,
}

/// Everything, under the lock.
pub struct State {
    pub(crate) rules: &'static Rules,
    pub(crate) initialized: bool,
    pub(crate) devices: i32,
    pub(crate) version: i32,
    pub(crate) attributes: HashMap<(i32, i32), Option<i32>>,
    pub(crate) threads: HashMap<ThreadId, Thread>,
    pub(crate) contexts: BTreeMap<u64, Context>,
    pub(crate) streams: BTreeMap<u64, Stream>,
    pub(crate) events: BTreeMap<u64, Event>,
    pub(crate) captures: BTreeMap<u64, Capture>,
    pub(crate) graphs: BTreeMap<u64, u64>,
    pub(crate) waiters: Vec<Waiter>,
    pub(crate) memory: Memory,
    pub(crate) injections: Injections,
    /// Work that a driver that batches has not submitted yet.
    pub(crate) batched: Vec<Hang>,
    /// Streams of green contexts, each with its context.
    pub(crate) green: HashMap<u64, u64>,
    /// Late stores that land when released.
    pub(crate) late_holds: Vec<Hang>,
    /// Stores that the host does not see before it synchronises.
    pub(crate) withheld: Vec<(Target, Value)>,
    pub(crate) violations: Vec<String>,
    pub(crate) software: Option<SoftwareDevice>,
    next: Arc<AtomicU64>,
}

impl State {
    pub(crate) fn new(rules: &'static Rules, next: Arc<AtomicU64>) -> Self {
        State {
            rules,
            initialized: rules.by_device,
            devices: 1,
            version: rules.version,
            attributes: HashMap::new(),
            threads: HashMap::new(),
            contexts: BTreeMap::new(),
            streams: BTreeMap::new(),
            events: BTreeMap::new(),
            captures: BTreeMap::new(),
            graphs: BTreeMap::new(),
            waiters: Vec::new(),
            memory: Memory::default(),
            injections: Injections::default(),
            batched: Vec::new(),
            green: HashMap::new(),
            late_holds: Vec::new(),
            withheld: Vec::new(),
            violations: Vec::new(),
            software: None,
            next,
        }
    }

    /// A handle that was never given before, by this process, for any object: never an address of
    /// memory, never one of the special handles.
    pub(crate) fn new_handle(&self) -> u64 {
        FIRST_HANDLE + self.next.fetch_add(1, std::sync::atomic::Ordering::Relaxed) * 0x10
    }

    /// Whether `handle` once named an object.
    pub(crate) fn was_handle(&self, handle: u64) -> bool {
        let given = self.next.load(std::sync::atomic::Ordering::Relaxed);
        handle >= FIRST_HANDLE && handle < FIRST_HANDLE + given * 0x10
    }

    /// What the version that the driver has now does.
    pub(crate) fn traits(&self) -> Traits {
        (self.rules.traits)(self.version)
    }

    /// Submits what a driver that batches has kept back.
    pub(crate) fn submit_batched(&mut self) {
        self.batched.drain(..).for_each(|batch| batch.release());
    }

    pub(crate) fn log(&mut self, violation: impl Into<String>) {
        self.violations.push(violation.into());
    }

    pub(crate) fn software(&mut self) -> Outcome<&SoftwareDevice> {
        if self.software.is_none() {
            let device = SoftwareDevice::builder().workers(WORKERS).build();
            self.software = Some(device.map_err(|_| Refusal::OutOfMemory)?);
        }
        Ok(self.software.as_ref().expect("made above"))
    }

    pub(crate) fn thread(&mut self) -> &mut Thread {
        self.threads.entry(std::thread::current().id()).or_default()
    }

    pub(crate) fn check_device(&self, device: i32) -> Outcome {
        if (0..self.devices).contains(&device) { Ok(()) } else { Err(Refusal::InvalidDevice) }
    }

    /// An attribute's value, as told to the driver or as the vendor's rules have it.
    pub(crate) fn attribute(&self, device: i32, attribute: i32) -> Outcome<i32> {
        let told = self.attributes.get(&(device, attribute)).copied();
        let known = || self.rules.attributes.iter().find(|(number, _)| *number == attribute);
        let value = told.unwrap_or_else(|| known().map(|(_, value)| *value));
        value.ok_or(Refusal::InvalidValue)
    }
}

/// Far above what a process can map.
const FIRST_HANDLE: u64 = 0x6a00_0000_0000_0000;
