//! Running a stream on a worker: one piece of work at a time, in order.

use super::contain;
use super::fault::{Fault, Hang, StoreFault};
use super::queue::{Pending, Queue, State, StreamCore};
use super::work::{Mark, Piece};
use crate::core::time::MonoNs;
use crate::monotonic;
use alloc::{boxed::Box, sync::Arc};
use core::{mem, sync::atomic::Ordering};
use std::sync::MutexGuard;

/// How many pieces a stream runs before other ready streams have their turn.
const TURN: usize = 64;

/// What a worker does after a step.
enum Step {
    Again,
    /// The stream is idle, held, or a timer has it.
    Stop,
    /// Long work, to be run without the queue's lock.
    Call(Box<dyn FnOnce() + Send>),
}

/// A store whose time comes after its status.
pub(super) struct LateStore {
    stream: Arc<StreamCore>,
    mark: Mark,
}

impl LateStore {
    pub(super) fn land(self) {
        let mut queue = self.stream.lock();
        self.stream.store_word(&mut queue, self.mark);
    }
}

impl StreamCore {
    /// Runs the stream until it stops, or has had its turn.
    pub(super) fn run(self: Arc<Self>) {
        for _ in 0..TURN {
            match self.step() {
                Step::Again => {}
                Step::Stop => return,
                Step::Call(code) => {
                    self.device.scheduler.share_before_long_work();
                    let outcome = contain(code);
                    let panicked = outcome.is_err();
                    // The payload's destructor is the user's code too.
                    let _ = contain(|| drop(outcome));
                    self.finish_call(panicked);
                }
            }
        }
        self.give_way();
    }

    fn give_way(self: Arc<Self>) {
        self.lock().state = State::Scheduled;
        self.device.scheduler.push_back_quietly(self.clone());
    }

    fn step(self: &Arc<Self>) -> Step {
        let mut queue = self.lock();
        queue.state = State::Running;
        if let Some(fault) = self.status.fault() {
            let fault = fault.clone();
            return self.discard(queue, &fault);
        }
        if let Some(pending) = queue.pending.take() {
            match pending {
                Pending::Delay { until } => self.finish(&mut queue, until),
                Pending::Status { number, until } => self.finish_mark(&mut queue, number, until),
                Pending::Hang => self.finish(&mut queue, monotonic::now()),
            }
        }
        let Some(queued) = queue.work.pop_front() else {
            queue.state = State::Idle;
            self.give_back(queue);
            return Step::Stop;
        };
        match queued.piece {
            Piece::Mark(mark) => self.mark(queue, mark),
            Piece::Delay(time) => {
                let until = queue.ended.max(queued.at).after(time);
                self.wait(queue, Pending::Delay { until }, until)
            }
            Piece::Call(code) => Step::Call(code),
            Piece::Copy { from, range, to, at } => {
                Step::Call(Box::new(move || from.copy(range, &to, at)))
            }
            Piece::Fault(fault) if fault.is_of_the_device() => {
                // Which locks the queue of each stream, this one too.
                drop(queue);
                self.device.lose(fault);
                Step::Again
            }
            Piece::Fault(fault) => {
                self.status.set_fault(fault);
                self.announce(&mut queue);
                Step::Again
            }
            Piece::Hang(hang) => self.hang(queue, hang),
        }
    }

    fn hang(self: &Arc<Self>, mut queue: MutexGuard<'_, Queue>, hang: Hang) -> Step {
        let step = if !hang.is_released() && self.device.is_closing() {
            // Asked under the queue's lock: a device that begins to close later finds it held.
            self.status.set_fault(Fault::device_closed());
            self.announce(&mut queue);
            Step::Again
        } else if hang.hold(self) {
            queue.pending = Some(Pending::Hang);
            queue.state = State::Held;
            Step::Stop
        } else {
            self.finish(&mut queue, monotonic::now());
            Step::Again
        };
        // The last handle of a hang may drop other streams, and with them the user's closures.
        drop(queue);
        drop(hang);
        step
    }

    /// Leaves the stream to a timer, unless its time has come.
    fn wait(
        self: &Arc<Self>,
        mut queue: MutexGuard<'_, Queue>,
        pending: Pending,
        until: MonoNs,
    ) -> Step {
        queue.pending = Some(pending);
        if monotonic::now() >= until {
            return Step::Again;
        }
        queue.state = State::Waiting;
        self.device.scheduler.wake_stream_at(until, self.clone());
        Step::Stop
    }

    fn mark(self: &Arc<Self>, mut queue: MutexGuard<'_, Queue>, mark: Mark) -> Step {
        match mark.wrong {
            None => self.store_word(&mut queue, mark),
            Some(StoreFault::Silent) => {
                self.store_word(&mut queue, Mark { ring: None, ..mark });
            }
            Some(StoreFault::Lost) => queue.lost = true,
            Some(StoreFault::Late(_)) => {}
            Some(StoreFault::Early(by)) => {
                self.store_word(&mut queue, mark);
                let until = monotonic::now().after(by);
                return self.wait(queue, Pending::Status { number: mark.number, until }, until);
            }
        }
        let now = monotonic::now();
        self.finish_mark(&mut queue, mark.number, now);
        if let Some(StoreFault::Late(by)) = mark.wrong {
            let store = LateStore { stream: self.clone(), mark };
            self.device.scheduler.land_at(now.after(by), store);
        }
        Step::Again
    }

    /// The stamp, the word, the doorbell, in this order.
    fn store_word(&self, queue: &mut Queue, mark: Mark) {
        queue.stamps.make_room();
        let word = &(*self.line).as_ref().words[self.slot.index()];
        queue.stamps.keep(mark.number, monotonic::now());
        // Not a plain store: a late one must not take back what a later mark has stored.
        word.fetch_max(mark.number, Ordering::Release);
        if let (Some((bell, place)), Some(ring)) = (&self.bell, mark.ring) {
            bell.line().store(*place, ring);
        }
    }

    fn finish(&self, queue: &mut Queue, ended: MonoNs) {
        queue.ended = ended;
        self.status.add_done();
        self.announce(queue);
    }

    fn finish_mark(&self, queue: &mut Queue, number: u64, ended: MonoNs) {
        queue.ended = ended;
        self.status.add_done_mark(number);
        self.announce(queue);
    }

    fn finish_call(&self, panicked: bool) {
        let mut queue = self.lock();
        if panicked {
            self.status.set_fault(Fault::closure_panicked());
            self.announce(&mut queue);
        } else if self.status.fault().is_none() {
            self.finish(&mut queue, monotonic::now());
        }
    }

    /// Everything behind a fault: nothing runs, nothing is done, and words are stored only by a
    /// fault that says so.
    fn discard(&self, mut queue: MutexGuard<'_, Queue>, fault: &Fault) -> Step {
        queue.pending = None;
        let mut work = mem::take(&mut queue.work);
        if fault.stores_words() {
            for queued in &work {
                match queued.piece {
                    Piece::Mark(Mark { wrong: Some(StoreFault::Lost), .. }) => {}
                    Piece::Mark(mark) => self.store_word(&mut queue, mark),
                    _ => {}
                }
            }
        }
        queue.state = State::Idle;
        self.give_back(queue);
        // Closures are dropped here, without a lock; their destructors are the user's code.
        while let Some(queued) = work.pop_front() {
            let _ = contain(|| drop(queued));
        }
        Step::Stop
    }

    /// The device's last worker has ended: what is not finished never will be.
    pub(super) fn abandon(self: &Arc<Self>) {
        if self.is_unfinished() {
            self.fail(Fault::device_closed());
        }
        let Some(fault) = self.status.fault().cloned() else { return };
        self.discard(self.lock(), &fault);
    }
}
