//! What parks spend, in virtual time: each read of the clock takes a microsecond, sleeps take what
//! they say and a wake.

use super::*;
use core::cell::Cell;

const SECONDS: u64 = 5;

#[derive(Default)]
struct Virtual {
    now: Cell<u64>,
    slept: Cell<u64>,
    sleeps: Cell<u64>,
}

impl Clock for Virtual {
    fn monotonic_ns(&self) -> MonoNs {
        self.now.set(self.now.get() + 1_000);
        MonoNs(self.now.get())
    }
}

impl Sleeper for Virtual {
    fn take(&self) -> bool {
        false
    }

    fn sleep(&self, at: MonoNs) -> bool {
        let woken = at.0.max(self.now.get()) + 50_000;
        self.slept.set(self.slept.get() + woken - self.now.get());
        self.sleeps.set(self.sleeps.get() + 1);
        self.now.set(woken);
        false
    }
}

impl Virtual {
    /// The share of the time that was neither slept nor spent on going to sleep, in permille.
    fn awake_permille(&self) -> u64 {
        (self.now.get() - self.slept.get()) * 1_000 / self.now.get()
    }
}

/// Waits for something that comes every `period`, by `policy`: what `check` finds then. The clock,
/// and the worst lateness.
fn every(policy: ParkPolicy, period: DurNs, found: Check) -> (Virtual, DurNs) {
    let clock = Virtual::default();
    let line = CompletionLine::default();
    let mut idling = Idling::new(&clock, policy);
    let mut worst = 0;
    let mut due = period.0;
    while due < SECONDS * 1_000_000_000 {
        let check =
            |_: &CompletionLine| if clock.now.get() >= due { found } else { Check::Pending };
        let ready = idling.park(&clock, &line, check, DurNs::MAX);
        assert_eq!(ready, found == Check::Ready);
        worst = worst.max(clock.now.get() - due);
        due = (due + period.0).max(clock.now.get());
        if found == Check::Stirred {
            // What it takes to attend to that.
            clock.now.set(clock.now.get() + 300_000);
            clock.slept.set(clock.slept.get() + 300_000);
        }
    }
    (clock, DurNs(worst))
}

#[test]
fn f28_a_step_every_few_milliseconds_spins_no_more_than_the_stated_share_of_a_core() {
    for policy in [ParkPolicy::BALANCED, ParkPolicy::SAVING] {
        for ms in [2, 5, 20] {
            let (clock, _) = every(policy, DurNs::from_ms(ms), Check::Ready);
            let burst = policy.burst().0 / (SECONDS * 1_000_000);
            let most = u64::from(policy.share_permille) + burst + 3;
            let awake = clock.awake_permille();
            assert!(awake <= most, "a step every {ms} ms: {awake} permille, {most} at most");
        }
    }
}

#[test]
fn f28_what_stirs_a_park_every_few_milliseconds_does_not_begin_its_phases_anew() {
    for ms in [2, 5, 20] {
        let (clock, _) = every(ParkPolicy::BALANCED, DurNs::from_ms(ms), Check::Stirred);
        let awake = clock.awake_permille();
        // The first millisecond is spun and yielded, and a look is made after each sleep.
        let looks = 2 * clock.sleeps.get() / (SECONDS * 1_000) + 2;
        assert!(awake <= looks, "stirred every {ms} ms: {awake} permille, {looks} at most");
        assert!(clock.sleeps.get() <= SECONDS * 1_500, "the slices stay long");
    }
}

#[test]
fn waits_that_are_rare_have_all_of_their_phases() {
    let policy = ParkPolicy::BALANCED;
    let clock = Virtual::default();
    let line = CompletionLine::default();
    let mut idling = Idling::new(&clock, policy);
    for wait in 1..200 {
        // Ten times its phases lie between the ends of two waits.
        let began = clock.now.get() + 10_000_000;
        clock.now.set(began);
        let sleeps = clock.sleeps.get();
        let due = began + 990_000;
        let ready = |_: &CompletionLine| clock.now.get() >= due;
        assert!(idling.park_line(&clock, &line, ready, DurNs::MAX));
        assert_eq!(clock.sleeps.get(), sleeps, "wait {wait} slept");
        assert!(clock.now.get() - due <= 3_000, "wait {wait} was late");
    }
}

#[test]
fn waits_shorter_than_the_phases_are_ended_as_if_spinning_also_if_they_come_back_to_back() {
    for us in [50, 150, 900] {
        let (clock, worst) = every(ParkPolicy::BALANCED, DurNs::from_us(us), Check::Ready);
        assert_eq!(clock.sleeps.get(), 0, "a wait of {us} us slept");
        assert!(worst <= DurNs::from_us(4), "a wait of {us} us ended {worst} late");
    }
}

#[test]
fn a_policy_that_spins_for_ever_sleeps_never() {
    let (clock, worst) = every(ParkPolicy::SPIN, DurNs::from_ms(500), Check::Ready);
    assert_eq!(clock.sleeps.get(), 0);
    assert!(worst <= DurNs::from_us(2), "{worst}");
}

#[test]
fn a_policy_of_extremes_still_sleeps_in_slices_that_take_time() {
    let none = DurNs::ZERO;
    let policy = ParkPolicy {
        spin: none,
        yielding: none,
        min_slice: none,
        max_slice: none,
        share_permille: 0,
    };
    let (clock, _) = every(policy, DurNs::from_ms(500), Check::Ready);
    // Each takes 10 us, and 50 more to wake.
    assert!(clock.sleeps.get() <= SECONDS * 1_000_000 / 60, "{} sleeps", clock.sleeps.get());
    let policy = ParkPolicy { share_permille: u16::MAX, ..ParkPolicy::SPIN };
    let (clock, _) = every(policy, DurNs::from_ms(500), Check::Ready);
    assert_eq!(clock.sleeps.get(), 0);
}
