//! What an armed wait has to do, on the real instruction.

use crate::machine;
use gpu_async_reactor::backend::wordwait::{Family, WordWait};
use gpu_async_reactor::{CompletionLine, DurNs, Slot, reached};
use std::thread;
use std::time::{Duration, Instant};

/// What was seen, in words, in both cases.
type Verdict = Result<String, String>;

type Case = (&'static str, fn(WordWait) -> Verdict);

/// By name, in the order of their run.
pub const ALL: [Case; 6] = [
    ("look", look),
    ("bound", bound),
    ("store", store),
    ("other-store", other_store),
    ("stored-before", stored_before),
    ("cap", cap),
];

const FIRST: Slot = Slot::ALL[0];
const LAST: Slot = Slot::ALL[7];

/// A line alone on its page, which is never used again. The emulator notices a store into a monitored
/// line by the page, and only where the storing CPU has not stored to that page before the arm.
#[derive(Default)]
#[repr(C, align(4096))]
struct OwnPage(CompletionLine);

fn own_page() -> &'static CompletionLine {
    &Box::leak(Box::<OwnPage>::default()).0
}

fn judge(holds: bool, seen: String) -> Verdict {
    if holds { Ok(seen) } else { Err(seen) }
}

/// The probe, its self-test included, passes.
pub fn probe() -> Result<(WordWait, String), String> {
    let began = Instant::now();
    let it = WordWait::probe().map_err(|why| why.to_string())?;
    let (took, hz, ppm) = (began.elapsed(), it.counter_hz(), it.counter_error_ppm());
    let family = it.family();
    Ok((it, format!("family={family} counter_hz={hz} error_ppm={ppm} took={took:?}")))
}

/// A bound of 0 looks once and does not wait.
fn look(it: WordWait) -> Verdict {
    let line = own_page();
    let parked = it.park_counted(line, |_| false, DurNs::ZERO);
    judge(!parked.ready && parked.waits == 0, format!("{parked:?}"))
}

/// A park with no store lasts to its bound, asleep: a few waits, none of them short.
fn bound(it: WordWait) -> Verdict {
    let line = own_page();
    let mut seen = String::new();
    let mut holds = true;
    for us in [20, 100, 900, 5_000, 50_000] {
        let mut fewest = u64::MAX;
        let mut shortest = Duration::MAX;
        // Interrupts end waits, and emulated timers come in bursts: the best of some tries.
        for _ in 0..3 {
            let began = Instant::now();
            let parked = it.park_counted(line, |_| false, DurNs::from_us(us));
            let took = began.elapsed();
            holds &= !parked.ready && took >= Duration::from_micros(us);
            fewest = fewest.min(parked.waits);
            shortest = shortest.min(took);
        }
        // The default cap of 100,000 ticks is 20 us at 5 GHz.
        holds &= fewest <= 10 + us / 10 && shortest < Duration::from_micros(us + 2_000);
        seen += &format!("[{us} us: took={shortest:?} waits={fewest}] ");
    }
    judge(holds, seen)
}

/// Lets time pass without the kernel, whose timers interrupt the waiting CPU as well.
fn spin(time: Duration) {
    let began = Instant::now();
    while began.elapsed() < time {
        std::hint::spin_loop();
    }
}

/// A store from the other CPU, into any word of the line, ends a park of a far longer bound, at once.
fn store(it: WordWait) -> Verdict {
    let mut seen = String::new();
    let mut holds = true;
    for slot in [FIRST, LAST] {
        let mut soonest = Duration::MAX;
        let mut waits = 0;
        for _ in 0..3 {
            let line = own_page();
            let (parked, after) = thread::scope(|scope| {
                let storing = scope.spawn(|| {
                    machine::stay_on(machine::STORING_CPU);
                    spin(Duration::from_millis(5));
                    let at = Instant::now();
                    line.store(slot, 1);
                    at
                });
                let parked =
                    it.park_counted(line, |line| reached(line, slot, 1), DurNs::from_ms(60_000));
                let woke = Instant::now();
                let stored = storing.join().map_err(|_| "the storing thread panicked")?;
                Ok::<_, String>((parked, woke.saturating_duration_since(stored)))
            })?;
            holds &= parked.ready;
            soonest = soonest.min(after);
            waits = parked.waits;
        }
        // A wait that the store does not end lasts up to 1 ms longer.
        holds &= soonest < Duration::from_micros(25);
        seen +=
            &format!("[word {}: woke {soonest:?} after the store, waits={waits}] ", slot.index());
    }
    judge(holds, seen)
}

/// Stores that make nothing ready end waits and not the park.
fn other_store(it: WordWait) -> Verdict {
    let line = own_page();
    let parked = thread::scope(|scope| {
        scope.spawn(|| {
            machine::stay_on(machine::STORING_CPU);
            for number in 1..=20 {
                spin(Duration::from_micros(300));
                line.store(FIRST, number);
            }
            line.store(LAST, 1);
        });
        it.park_counted(line, |line| reached(line, LAST, 1), DurNs::from_ms(60_000))
    });
    judge(parked.ready && parked.waits >= 15, format!("{parked:?}"))
}

/// A store before the park, and one between its two looks, end it without a wait.
fn stored_before(it: WordWait) -> Verdict {
    let line = own_page();
    line.store(FIRST, 1);
    let parked = it.park_counted(line, |line| reached(line, FIRST, 1), DurNs::from_ms(60_000));
    // Stored by the look itself, into an armed monitor: the wait returns at once, if it is entered.
    let began = Instant::now();
    let looks = std::cell::Cell::new(0);
    let behind = |line: &CompletionLine| {
        looks.set(looks.get() + 1);
        let seen = reached(line, LAST, 1);
        line.store(LAST, 1);
        seen
    };
    let late = it.park_counted(line, behind, DurNs::from_ms(60_000));
    let holds = parked.ready
        && parked.waits == 0
        && late.ready
        && began.elapsed() < Duration::from_millis(50);
    judge(holds, format!("before: {parked:?}, behind the look: {late:?}"))
}

/// The kernel's cap on `umwait` is re-armed until the bound.
fn cap(it: WordWait) -> Verdict {
    if it.family() != Family::Umwait {
        return Ok(format!("none on {}", it.family()));
    }
    let usual = machine::cap().ok_or("the kernel does not show its cap")?;
    let line = own_page();
    let mut seen = format!("[usual {usual}: ");
    let mut holds = true;
    let mut counts = Vec::new();
    // A cap has no bits 1 and 0.
    for ticks in [usual, (usual / 4) & !3, usual * 4] {
        if ticks != usual {
            machine::set_cap(ticks)?;
            seen += &format!("[cap {ticks}: ");
        }
        let began = Instant::now();
        let parked = it.park_counted(line, |_| false, DurNs::from_ms(20));
        let took = began.elapsed();
        holds &= !parked.ready && took >= Duration::from_millis(20) && parked.waits > 1;
        counts.push(parked.waits);
        seen += &format!("took={took:?} waits={} said={}] ", parked.waits, parked.capped);
    }
    // A shorter cap is re-armed more often, and a longer one less.
    holds &= counts[1] > counts[0] * 2 && counts[2] < counts[0];
    machine::set_cap(usual)?;
    judge(holds, seen)
}
