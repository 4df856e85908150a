//! The hardware park on the machine at hand: where the probe finds an instruction it parks, and where it
//! refuses it says why. `scripts/check-word-wait` and `scripts/check-aarch64` run it on emulated CPUs.
#![cfg(all(feature = "wordwait", not(loom)))]

use gpu_async_reactor::backend::wordwait::{SelfTestFault, Unsupported, WordWait};
use gpu_async_reactor::{CompletionLine, DurNs, Slot, reached};
use std::thread;
use std::time::{Duration, Instant};

const SLOT: Slot = Slot::ALL[6];

#[test]
fn a_probe_refuses_with_a_reason_or_the_park_lasts_and_a_store_ends_it() {
    let began = Instant::now();
    let probed = WordWait::probe();
    println!("probed in {:?}: {probed:?}", began.elapsed());
    match probed {
        Ok(word_wait) => {
            lasts_to_its_bound(word_wait);
            ends_by_a_store(word_wait);
        }
        Err(why) => names_its_reason(&why),
    }
}

/// Under an emulator whose waits return at once, which the script that starts it says.
#[test]
fn an_emulated_wait_that_does_not_park_is_refused_with_the_count_it_saw() {
    if std::env::var_os("WORD_WAIT_EMULATED").is_none() {
        println!("skipped: not under an emulator whose waits return at once");
        return;
    }
    match WordWait::probe() {
        Err(Unsupported::SelfTest { fault: SelfTestFault::ReturnsAtOnce, count, of }) => {
            println!("refused: {count} of {of} returned at once");
            assert!(count > of / 2 && count <= of);
        }
        other => panic!("{other:?}"),
    }
}

fn lasts_to_its_bound(word_wait: WordWait) {
    let line = CompletionLine::default();
    let bound = Duration::from_millis(3);
    let began = Instant::now();
    let parked = word_wait.park_counted(&line, |_| false, bound.into());
    assert!(!parked.ready && began.elapsed() >= bound, "{parked:?} {:?}", began.elapsed());
    assert!(!word_wait.park(&line, |line| reached(line, SLOT, 1), DurNs::ZERO));
}

fn ends_by_a_store(word_wait: WordWait) {
    let line = CompletionLine::default();
    let took = thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(Duration::from_millis(2));
            line.store(SLOT, 1);
        });
        let began = Instant::now();
        assert!(word_wait.park(&line, |line| reached(line, SLOT, 1), DurNs::from_ms(60_000)));
        began.elapsed()
    });
    assert!(took >= Duration::from_millis(1) && took < Duration::from_secs(30), "{took:?}");
}

fn names_its_reason(why: &Unsupported) {
    let text = why.to_string();
    println!("refused: {text}");
    match why {
        Unsupported::Missing { any_of, hypervisor } => {
            assert!(!any_of.is_empty());
            for feature in *any_of {
                assert!(text.contains(feature.name()) && text.contains(feature.bit()), "{text}");
            }
            assert_eq!(hypervisor.is_some(), text.contains("signature"), "{text}");
            assert_eq!(hypervisor.is_some(), under_a_hypervisor(), "{text}");
        }
        Unsupported::SelfTest { .. } => assert!(text.starts_with("self-test: "), "{text}"),
        Unsupported::Target { arch, os } => assert!(text.contains(arch) && text.contains(os)),
        other => panic!("an unknown reason: {other:?}"),
    }
}

/// As the kernel sees it, independently of the crate.
fn under_a_hypervisor() -> bool {
    let cpus = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    cpus.lines().any(|line| line.starts_with("flags") && line.contains(" hypervisor"))
}
