//! Threads that block: what a program without an executor would use.

use super::{Kind, Subject};
use crate::trigger::{Action, Trigger};
use rustix::event::{EventfdFlags, epoll, eventfd};
use rustix::fd::OwnedFd;
use rustix::thread::futex::{self, Flags};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;

pub fn all() -> Vec<Box<dyn Subject>> {
    vec![
        Blocking::boxed("futex", Futex::default()),
        Blocking::boxed("std::thread::park, unpark", Park::default()),
        Blocking::boxed("condvar", Condition::default()),
        Blocking::boxed("eventfd + epoll", Epoll::new()),
    ]
}

/// A flag that one thread waits for and another raises.
trait Flag: Send + Sync + 'static {
    fn raise(&self);
    /// Returns once it was raised, and lowers it.
    fn wait(&self);
}

struct Blocking<F> {
    name: &'static str,
    flag: Arc<F>,
}

impl<F: Flag> Blocking<F> {
    fn boxed(name: &'static str, flag: F) -> Box<dyn Subject> {
        Box::new(Blocking { name, flag: Arc::new(flag) })
    }
}

impl<F: Flag> Subject for Blocking<F> {
    fn name(&self) -> &str {
        self.name
    }

    fn kind(&self) -> Kind {
        Kind::Peer
    }

    fn action(&self) -> Action {
        let flag = self.flag.clone();
        Arc::new(move || flag.raise())
    }

    fn wait(&mut self, trigger: &mut Trigger, waits: usize) -> Vec<f64> {
        let mut one = || {
            trigger.fire();
            self.flag.wait();
            trigger.since()
        };
        (0..waits).map(|_| one()).collect()
    }
}

#[derive(Default)]
struct Futex(AtomicU32);

impl Flag for Futex {
    fn raise(&self) {
        self.0.store(1, Ordering::Release);
        futex::wake(&self.0, Flags::PRIVATE, 1).expect("a valid word");
    }

    fn wait(&self) {
        while self.0.load(Ordering::Acquire) == 0 {
            // Ends with an error where the word has changed already.
            let _ = futex::wait(&self.0, Flags::PRIVATE, 0, None);
        }
        self.0.store(0, Ordering::Relaxed);
    }
}

/// Of the thread that makes it.
struct Park {
    raised: AtomicBool,
    sleeper: thread::Thread,
}

impl Default for Park {
    fn default() -> Self {
        Park { raised: AtomicBool::new(false), sleeper: thread::current() }
    }
}

impl Flag for Park {
    fn raise(&self) {
        self.raised.store(true, Ordering::Release);
        self.sleeper.unpark();
    }

    fn wait(&self) {
        while !self.raised.swap(false, Ordering::Acquire) {
            thread::park();
        }
    }
}

#[derive(Default)]
struct Condition(Mutex<bool>, Condvar);

impl Flag for Condition {
    fn raise(&self) {
        *self.0.lock().expect("no panic under the lock") = true;
        self.1.notify_one();
    }

    fn wait(&self) {
        let raised = self.0.lock().expect("no panic under the lock");
        let mut raised = self.1.wait_while(raised, |raised| !*raised).expect("no panic");
        *raised = false;
    }
}

struct Epoll {
    event: OwnedFd,
    epoll: OwnedFd,
}

impl Epoll {
    fn new() -> Self {
        let event = eventfd(0, EventfdFlags::CLOEXEC).expect("an eventfd");
        let set = epoll::create(epoll::CreateFlags::CLOEXEC).expect("an epoll set");
        let data = epoll::EventData::new_u64(0);
        epoll::add(&set, &event, data, epoll::EventFlags::IN).expect("an eventfd can be polled");
        Epoll { event, epoll: set }
    }
}

impl Flag for Epoll {
    fn raise(&self) {
        rustix::io::write(&self.event, &1_u64.to_ne_bytes()).expect("an eventfd takes a number");
    }

    fn wait(&self) {
        let mut events = [epoll::Event {
            flags: epoll::EventFlags::empty(),
            data: epoll::EventData::new_u64(0),
        }; 1];
        while epoll::wait(&self.epoll, &mut events, None).unwrap_or(0) == 0 {}
        let mut count = [0; 8];
        rustix::io::read(&self.event, &mut count).expect("an eventfd gives a number");
    }
}
