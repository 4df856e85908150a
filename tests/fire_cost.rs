//! What a `fire` reads: the clock only where a timer or a bound needs it.

use gpu_async_reactor::{
    Clock, CompletionLine, Doorbell, DurNs, MemoryDescriptor, MonoNs, Reactor, Slot,
};
use std::cell::Cell;
use std::pin::{Pin, pin};
use std::task::{Context, Waker};

/// A clock that counts its reads and stands still.
#[derive(Default)]
struct CountedClock(Cell<u64>);

impl Clock for CountedClock {
    fn monotonic_ns(&self) -> MonoNs {
        self.0.set(self.0.get() + 1);
        MonoNs(1_000_000)
    }
}

fn register(wait: Pin<&mut impl Future>) {
    assert!(wait.poll(&mut Context::from_waker(Waker::noop())).is_pending());
}

/// Clock reads of one `fire` that finds nothing.
fn reads_of_a_fire(reactor: &Reactor<'_, &CountedClock>) -> u64 {
    let before = reactor.clock().0.get();
    assert!(!reactor.fire());
    reactor.clock().0.get() - before
}

#[test]
fn without_timer_and_doorbell_a_fire_reads_no_clock() {
    let (clock, line) = (CountedClock::default(), CompletionLine::default());
    let reactor = Reactor::new(&clock);
    let descriptor = MemoryDescriptor::new(&line, Slot::ALL[0], 1);
    let mut wait = pin!(reactor.ready(descriptor, None));
    register(wait.as_mut());
    assert_eq!(reads_of_a_fire(&reactor), 0);

    let later = MonoNs(1_000_000).after(DurNs::from_ms(1));
    let mut alarm = pin!(reactor.alarm(later));
    register(alarm.as_mut());
    assert_eq!(reads_of_a_fire(&reactor), 1);

    line.store(Slot::ALL[0], 1);
    assert!(reactor.fire());
}

#[test]
fn with_a_doorbell_a_fire_reads_the_clock_once_for_the_look_at_all_slots() {
    let (clock, line) = (CountedClock::default(), CompletionLine::default());
    let reactor = Reactor::with_doorbell(&clock, &Doorbell::new());
    let descriptor = MemoryDescriptor::new(&line, Slot::ALL[0], 1);
    let mut wait = pin!(reactor.ready(descriptor, None));
    register(wait.as_mut());
    assert_eq!(reads_of_a_fire(&reactor), 1);
}

#[test]
fn with_nothing_registered_a_fire_reads_no_clock() {
    let clock = CountedClock::default();
    assert_eq!(reads_of_a_fire(&Reactor::new(&clock)), 0);
    assert_eq!(reads_of_a_fire(&Reactor::with_doorbell(&clock, &Doorbell::new())), 0);
}
