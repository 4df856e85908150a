//! The executor against a naive model, under random tasks that wake themselves and others from this
//! thread and from another one, finish, panic, abort and spawn, over several runs with a main future
//! each. The model is two queues and two flags a task; the order of every poll is compared.

mod common;

use common::limit_memory;
use gpu_async_reactor::{
    CompletionLine, DurNs, ErrorCode, Executor, Idle, JoinHandle, ManualClock, MonoNs, Reactor,
    Spawner,
};
use proptest::prelude::*;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

const BOUND: DurNs = DurNs::from_us(50);
/// The tasks that are there from the start; others are spawned.
const TASKS: usize = 4;
/// Tasks are named by their number, the main future of each run by this.
const MAIN: usize = 99;

/// What a poll of a task does before it ends.
#[derive(Clone, Copy, Debug)]
enum Act {
    /// Wakes a task, or main, by a waker of its last poll, on this thread.
    Wake(usize),
    /// The same on another thread, which has ended before the poll goes on.
    WakeFromAfar(usize),
    Abort(usize),
    /// A task that finishes in its first poll.
    Spawn,
}

#[derive(Clone, Copy, Debug)]
enum Last {
    Pending,
    WakeSelf,
    Finish,
    /// Wakes itself, then finishes: a wake that nobody is left for.
    WakeSelfAndFinish,
    Panic,
}

type Script = VecDeque<(Vec<Act>, Last)>;

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let name = || prop_oneof![6 => 0..TASKS + 2, 2 => Just(MAIN)];
    let act = prop_oneof![
        4 => name().prop_map(Act::Wake),
        4 => name().prop_map(Act::WakeFromAfar),
        1 => (0..TASKS).prop_map(Act::Abort),
        1 => Just(Act::Spawn),
    ];
    prop::collection::vec(act, 0..4)
}

fn script(panics: u32) -> impl Strategy<Value = Script> {
    let last = prop_oneof![
        5 => Just(Last::Pending),
        5 => Just(Last::WakeSelf),
        1 => Just(Last::Finish),
        2 => Just(Last::WakeSelfAndFinish),
        panics => Just(Last::Panic),
    ];
    prop::collection::vec((acts(), last), 1..6).prop_map(VecDeque::from)
}

#[derive(Debug)]
enum Event {
    Poll(usize),
    /// The thread had nothing to do, and main was woken from afar.
    Idle,
}

impl PartialEq for Event {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Event::Poll(a), Event::Poll(b)) => a == b,
            (Event::Idle, Event::Idle) => true,
            _ => false,
        }
    }
}

/// What tasks share: the executor's side.
#[derive(Default)]
struct World {
    trace: RefCell<Vec<Event>>,
    wakers: RefCell<std::collections::BTreeMap<usize, Waker>>,
    handles: RefCell<Vec<Option<JoinHandle<()>>>>,
    spawner: RefCell<Option<Spawner<Task>>>,
}

type Task = Pin<Box<dyn Future<Output = ()>>>;

impl World {
    fn wake(&self, name: usize) {
        let waker = self.wakers.borrow().get(&name).cloned();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    fn wake_from_afar(&self, name: usize) {
        let waker = self.wakers.borrow().get(&name).cloned();
        if let Some(waker) = waker {
            std::thread::spawn(move || waker.wake()).join().unwrap();
        }
    }

    fn spawn(self: &Rc<Self>, script: Script) {
        let name = self.handles.borrow().len();
        let spawner = self.spawner.borrow().as_ref().unwrap().clone();
        let handle = spawner.spawn(self.run(name, script));
        self.handles.borrow_mut().push(Some(handle));
    }

    fn run(self: &Rc<Self>, name: usize, mut script: Script) -> Task {
        let world = self.clone();
        Box::pin(poll_fn(move |cx| world.poll(name, &mut script, cx)))
    }

    fn poll(self: &Rc<Self>, name: usize, script: &mut Script, cx: &mut Context<'_>) -> Poll<()> {
        self.trace.borrow_mut().push(Event::Poll(name));
        assert!(self.trace.borrow().len() < 5_000, "polls without end");
        self.wakers.borrow_mut().insert(name, cx.waker().clone());
        let Some((acts, last)) = script.pop_front() else {
            // Main ends every run; another task waits for good.
            return if name == MAIN { Poll::Ready(()) } else { Poll::Pending };
        };
        for act in acts {
            match act {
                Act::Wake(other) => self.wake(other),
                Act::WakeFromAfar(other) => self.wake_from_afar(other),
                Act::Abort(other) => {
                    if let Some(Some(handle)) = self.handles.borrow().get(other) {
                        handle.abort();
                    }
                }
                Act::Spawn => self.spawn(VecDeque::from([(vec![], Last::Finish)])),
            }
        }
        match last {
            Last::Pending => Poll::Pending,
            Last::WakeSelf => {
                cx.waker().wake_by_ref();
                Poll::Pending
            }
            Last::Finish => Poll::Ready(()),
            Last::WakeSelfAndFinish => {
                cx.waker().wake_by_ref();
                Poll::Ready(())
            }
            Last::Panic => resume_unwind(Box::new("scripted")),
        }
    }
}

/// Tells threads apart, and wakes main from afar each time that there is nothing to do.
struct WakingIdle(Rc<World>);

impl Idle for WakingIdle {
    fn sleep_until(&mut self, _: MonoNs) {
        unreachable!("no timer is set");
    }

    fn park_line<R: Fn(&CompletionLine) -> bool>(
        &mut self,
        line: &CompletionLine,
        ready: R,
        _: DurNs,
    ) -> bool {
        assert!(!ready(line), "the thread idles only when nothing is ready");
        self.0.trace.borrow_mut().push(Event::Idle);
        self.0.wake_from_afar(MAIN);
        ready(line)
    }

    fn thread_token(&self) -> Option<fn() -> usize> {
        fn token() -> usize {
            std::thread_local!(static HERE: u8 = const { 0 });
            HERE.with(|here| std::ptr::from_ref(here).addr())
        }
        Some(token)
    }
}

/// The same by queues.
#[derive(Default)]
struct Model {
    trace: Vec<Event>,
    /// By place; place 0 is main's.
    places: Vec<Option<(usize, Script)>>,
    free: Vec<usize>,
    arrived: VecDeque<(usize, Script)>,
    aborts: Vec<usize>,
    round: VecDeque<usize>,
    own: VecDeque<usize>,
    afar: VecDeque<usize>,
    /// In the own queue or in the round.
    queued: Vec<bool>,
    queued_from_afar: Vec<bool>,
    /// The place that a task's waker wakes, once it was polled.
    woken_place: std::collections::BTreeMap<usize, usize>,
    spawned: usize,
    aborted: Vec<usize>,
}

impl Model {
    fn spawn(&mut self, script: Script) {
        self.arrived.push_back((self.spawned, script));
        self.spawned += 1;
    }

    fn wake(&mut self, name: usize) {
        if let Some(&place) = self.woken_place.get(&name) {
            self.wake_place(place);
        }
    }

    fn wake_place(&mut self, place: usize) {
        if self.queued[place] {
        } else if !self.afar.is_empty() {
            self.wake_place_from_afar(place);
        } else {
            self.queued[place] = true;
            self.own.push_back(place);
        }
    }

    fn wake_from_afar(&mut self, name: usize) {
        if let Some(&place) = self.woken_place.get(&name) {
            self.wake_place_from_afar(place);
        }
    }

    fn wake_place_from_afar(&mut self, place: usize) {
        if !std::mem::replace(&mut self.queued_from_afar[place], true) {
            self.afar.push_back(place);
        }
    }

    /// Gives what arrived a place, and drops what was aborted.
    fn attend(&mut self) {
        while let Some(task) = self.arrived.pop_front() {
            let place = self.free.pop().unwrap_or_else(|| {
                self.places.push(None);
                self.queued.push(false);
                self.queued_from_afar.push(false);
                self.places.len() - 1
            });
            self.places[place] = Some(task);
            self.wake_place(place);
        }
        while let Some(name) = self.aborts.pop() {
            let held =
                |place: &Option<(usize, Script)>| place.as_ref().is_some_and(|t| t.0 == name);
            if let Some(place) = self.places.iter().position(held) {
                self.finish(place);
            }
        }
    }

    fn finish(&mut self, place: usize) {
        self.places[place] = None;
        self.free.push(place);
    }

    fn drain(&mut self) {
        self.round.append(&mut self.own);
        for place in std::mem::take(&mut self.afar) {
            self.queued_from_afar[place] = false;
            if !std::mem::replace(&mut self.queued[place], true) {
                self.round.push_back(place);
            }
        }
    }

    /// One run with a main future. `true`: it ended by a panic.
    fn run(&mut self, main: Script) -> bool {
        if self.places.is_empty() {
            self.places.push(None);
            self.queued.push(false);
            self.queued_from_afar.push(false);
        }
        let mut main = main;
        self.drain();
        self.round.retain(|&place| place != 0);
        self.queued[0] = true;
        self.round.push_front(0);
        loop {
            self.attend();
            if self.round.is_empty() {
                self.drain();
            }
            if self.round.is_empty() {
                self.trace.push(Event::Idle);
                self.wake_from_afar(MAIN);
                continue;
            }
            while let Some(place) = self.round.pop_front() {
                self.queued[place] = false;
                let polled = match place {
                    0 => Some((MAIN, std::mem::take(&mut main))),
                    _ => self.places[place].take(),
                };
                if let Some((name, mut script)) = polled {
                    let end = self.poll(name, place, &mut script);
                    let done = !matches!(end, Some(Last::Pending | Last::WakeSelf) | None);
                    let main_is_over = place == 0 && (done || end.is_none());
                    match place {
                        0 => main = script,
                        _ if done => self.finish(place),
                        _ => self.places[place] = Some((name, script)),
                    }
                    if let Some(Last::Panic) = end {
                        return true;
                    }
                    if main_is_over {
                        return false;
                    }
                }
                self.attend();
            }
        }
    }

    fn poll(&mut self, name: usize, place: usize, script: &mut Script) -> Option<Last> {
        self.trace.push(Event::Poll(name));
        self.woken_place.insert(name, place);
        let (acts, last) = script.pop_front()?;
        for act in acts {
            match act {
                Act::Wake(other) => self.wake(other),
                Act::WakeFromAfar(other) => self.wake_from_afar(other),
                Act::Abort(other) => {
                    let is_live = other == name
                        || self.arrived.iter().any(|task| task.0 == other)
                        || self.places.iter().flatten().any(|task| task.0 == other);
                    if is_live && !self.aborted.contains(&other) {
                        self.aborted.push(other);
                        self.aborts.push(other);
                    }
                }
                Act::Spawn => self.spawn(VecDeque::from([(vec![], Last::Finish)])),
            }
        }
        if let Last::WakeSelf | Last::WakeSelfAndFinish = last {
            self.wake_place(place);
        }
        Some(last)
    }
}

fn compare(tasks: Vec<Script>, mains: Vec<Script>) {
    let world = Rc::new(World::default());
    let clock = ManualClock::new();
    let reactor = Reactor::new(&clock);
    let mut idle = WakingIdle(world.clone());
    let mut executor: Executor<Task> = Executor::new();
    *world.spawner.borrow_mut() = Some(executor.spawner());
    let mut model = Model::default();
    for script in tasks {
        world.spawn(script.clone());
        model.spawn(script);
    }
    for main in mains {
        let future = world.run(MAIN, main.clone());
        let run = catch_unwind(AssertUnwindSafe(|| {
            executor.run_until(&reactor, &mut idle, BOUND, future)
        }));
        let panicked = model.run(main);
        assert_eq!(*world.trace.borrow(), model.trace);
        assert_eq!(run.is_err(), panicked);
        if let Ok(run) = run {
            run.unwrap();
        }
    }
    // The wakers outlive the executor: using them does nothing.
    drop(executor);
    let wakers = world.wakers.take();
    wakers.into_values().for_each(Waker::wake);
    for mut handle in world.handles.take().into_iter().flatten() {
        let polled = Pin::new(&mut handle).poll(&mut Context::from_waker(Waker::noop()));
        let Poll::Ready(result) = polled else { panic!("a handle of a gone executor pends") };
        let allowed = [ErrorCode::Aborted, ErrorCode::TaskPanicked];
        assert!(result.is_ok() || allowed.contains(&result.unwrap_err().code()));
    }
    world.spawner.take();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, max_shrink_iters: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn every_poll_comes_in_the_order_of_the_wakes(
        tasks in prop::collection::vec(script(1), TASKS),
        mains in prop::collection::vec(script(1), 1..5),
    ) {
        limit_memory(4 << 30);
        compare(tasks, mains);
    }
}

#[test]
fn a_main_that_was_woken_in_its_last_poll_leaves_the_next_run_as_it_is() {
    limit_memory(4 << 30);
    let woken = || VecDeque::from([(vec![], Last::WakeSelfAndFinish)]);
    let yields = || VecDeque::from([(vec![], Last::WakeSelf), (vec![], Last::WakeSelf)]);
    compare(vec![], vec![woken(), yields(), woken(), woken(), yields()]);
}

#[test]
fn a_main_that_a_panic_left_in_the_round_leaves_the_next_run_as_it_is() {
    limit_memory(4 << 30);
    let panics = VecDeque::from([(vec![], Last::WakeSelf), (vec![], Last::Panic)]);
    let yields = || VecDeque::from(vec![(vec![], Last::WakeSelf); 5]);
    compare(vec![panics], vec![yields(), yields()]);
}

#[test]
fn a_waker_that_is_used_while_no_run_is_on_puts_its_task_into_the_next() {
    let world = Rc::new(World::default());
    let clock = ManualClock::new();
    let reactor = Reactor::new(&clock);
    let mut idle = WakingIdle(world.clone());
    let mut executor: Executor<Task> = Executor::new();
    let polls = Rc::new(Cell::new(0));
    let (counted, shared) = (polls.clone(), world.clone());
    drop(executor.spawn(Box::pin(poll_fn(move |cx| {
        counted.set(counted.get() + 1);
        shared.wakers.borrow_mut().insert(0, cx.waker().clone());
        Poll::Pending
    }))));
    let main = || {
        let mut polled = false;
        poll_fn(move |cx| {
            cx.waker().wake_by_ref();
            if std::mem::replace(&mut polled, true) { Poll::Ready(()) } else { Poll::Pending }
        })
    };
    executor.run_until(&reactor, &mut idle, BOUND, main()).unwrap();
    world.wake(0);
    world.wake(0);
    executor.run_until(&reactor, &mut idle, BOUND, main()).unwrap();
    assert_eq!(polls.get(), 2);
}
