//! The cases of the backends that share `mapped`.

use crate::cases::{Cases, seen, why};
use crate::samples::{
    every_plan, is_seen, latency, many_streams, order, own_point, port, resolved,
};
use gpu_async_reactor::backend::mapped::{
    Device, DeviceMemory, HostFunctionPort, Interface, Stream,
};
use gpu_async_reactor::host::TokioClock;
use gpu_async_reactor::{DeviceStream, run_inline, wait};
use std::time::{Duration, Instant};

/// What a vendor's cases do with its driver besides waiting.
pub trait Captures<A: Interface> {
    /// Begins to capture `stream` in global mode.
    fn begin(&self, stream: &Stream<A>) -> Result<(), String>;

    /// Ends it: whether it was not broken.
    fn end(&self, stream: &Stream<A>) -> Result<bool, String>;
}

/// How much memory is filled, and how often.
const BYTES: usize = 64 << 20;
/// As above.
const FILLS: u32 = 8;
/// How many bytes are read back.
pub const CHECKED: usize = 4096;

fn check<A: Interface>(
    device: &Device<A>,
    memory: &DeviceMemory<A>,
    stream: &Stream<A>,
    value: u8,
) -> Result<(), String> {
    let pinned = device.pinned(CHECKED).map_err(why)?;
    let copied = stream.copy_back::<u8, _>(memory, BYTES - CHECKED..BYTES, pinned).map_err(why)?;
    stream.synchronize().map_err(why)?;
    let landed = copied.try_read().map_err(|not_yet| format!("{not_yet:?}"))?;
    match landed.iter().position(|byte| *byte != value) {
        None => Ok(()),
        Some(at) => Err(format!("byte {at} is {} instead of {value}", landed[at])),
    }
}

/// The cases.
pub fn run<A: Interface>(cases: &mut Cases, device: &Device<A>, captures: &impl Captures<A>) {
    let memory = match device.memory(BYTES) {
        Ok(memory) => memory,
        Err(error) => return cases.fail("device memory", &error.to_string()),
    };
    let fill =
        |stream: &Stream<A>, value| stream.fill(&memory, value, FILLS).map(drop).map_err(why);
    cases.case("the start-up probe's store lands", || {
        let form = device.store_form().map(|form| form.to_string());
        device.caps().store?;
        seen(format!("{}; refused: {:?}", form.unwrap_or_default(), device.store_refusals()))
    });
    cases
        .case("what a mark costs, and who knows first", || latency(&device.stream().map_err(why)?));
    cases.case("every plan ends when the work is done", || {
        let stream = device.stream().map_err(why)?;
        every_plan(&stream, fill, |stream, value| check(device, &memory, stream, value))
    });
    cases.case("a wait ends with its own mark", || {
        own_point(&device.stream().map_err(why)?, |stream| fill(stream, 1))
    });
    cases.case("the device rings the doorbell behind the word", || {
        let bell = device.doorbell().map_err(why)?;
        let stream = device.stream_on(&bell).map_err(why)?;
        let before = bell.snapshot();
        let number = stream.mark().map_err(why)?;
        let until = Instant::now() + Duration::from_secs(10);
        while !bell.changed_since(&before) {
            if Instant::now() > until {
                return Err("not rung within 10 s".to_string());
            }
            std::hint::spin_loop();
        }
        if is_seen(&stream, number) {
            seen("in that order")
        } else {
            Err("rung before".to_string())
        }
    });
    cases.case("a captured stream is pending, and its capture is not broken", || {
        let (captured, busy) = (device.stream().map_err(why)?, device.stream().map_err(why)?);
        captures.begin(&captured)?;
        let pending = !captured.query().map_err(why)?;
        let refused = captured.mark().is_err();
        let waited = std::thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                fill(&busy, 3)?;
                let clock = gpu_async_reactor::host::StdClock::new();
                let plan = resolved("poll").plan;
                let mut port = port(&busy);
                let waited = run_inline(wait(&plan, None, &mut port, &clock)).map_err(why)?;
                waited.map(drop).map_err(why)
            });
            waiting.join().expect("the thread does not panic")
        });
        let whole = captures.end(&captured)?;
        waited?;
        match (pending, refused, whole) {
            (true, true, true) => seen("beside the waits of another thread"),
            told => Err(format!("(pending, refused, whole) are {told:?}")),
        }
    });
    cases.case("a host function ends a park", || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
        let stream = device.stream().map_err(why)?;
        let plan = gpu_async_reactor::WaitPlan::parse("flag:park_us=10000,backstop_us=100000");
        runtime.map_err(why)?.block_on(async {
            let clock = TokioClock::new();
            let mut port = HostFunctionPort::new(&stream, clock);
            let mut ends = Vec::new();
            for value in 1..=10 {
                fill(&stream, value)?;
                let waited = wait(plan.as_ref().map_err(why)?, None, &mut port, &clock).await;
                ends.push(waited.map_err(why)?.end);
            }
            seen(format!("{ends:?}"))
        })
    });
    cases.case("words of 200,000 marks never go back", || {
        order(200_000, &device.stream().map_err(why)?)
    });
    cases.case("a thousand streams", || many_streams(1000, || device.stream().map_err(why)));
    cases.case("eight threads make and drop streams with waits in flight", || {
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8usize)
                .map(|thread| {
                    let memory = &memory;
                    scope.spawn(move || turns(device, memory, thread))
                })
                .collect();
            threads.into_iter().try_for_each(|thread| thread.join().expect("no panic"))
        })?;
        seen(format!("{:?}", device.stats()))
    });
    drop(memory);
    cases.case("a close frees everything", || {
        let report = device.close().map_err(why)?;
        if report.held == 0 && report.leaked == 0 && report.streams == 0 {
            seen(format!("{report:?}"))
        } else {
            Err(format!("{report:?}"))
        }
    });
}

fn turns<A: Interface>(
    device: &Device<A>,
    memory: &DeviceMemory<A>,
    thread: usize,
) -> Result<(), String> {
    for round in 0..50 {
        let stream = device.stream().map_err(why)?;
        let number = stream.mark().map_err(why)?;
        let pinned = device.pinned(CHECKED).map_err(why)?;
        let copied = stream.copy_back::<u8, _>(memory, 0..CHECKED, pinned).map_err(why)?;
        match (thread + round) % 3 {
            0 => drop((stream, copied)),
            1 => drop((copied, stream)),
            _ => {
                stream.synchronize().map_err(why)?;
                if !is_seen(&stream, number) {
                    return Err("a status says done and its word is not there".to_string());
                }
                drop(copied.try_read().map_err(|not_yet| format!("{not_yet:?}"))?);
            }
        }
    }
    Ok(())
}
