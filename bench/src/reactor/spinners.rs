//! (e) Many `spin` waits that are pending while one more task waits for short work again and again:
//! its lateness, and the status queries that all of them make.

use crate::measure::{Effort, Samples};
use crate::report::{Cell, Section, Verdict};
use gpu_async_reactor::backend::software::{Hang, SoftwareDevice, SoftwareStream, Work};
use gpu_async_reactor::host::Runtime;
use gpu_async_reactor::{Clock, DurNs};
use std::rc::Rc;

const PENDING: [usize; 4] = [0, 100, 1_000, 10_000];
const COLUMNS: [&str; 5] = ["", "0", "100", "1,000", "10,000"];
const STREAMS: usize = 1_000;
const BACKSTOP_NS: u64 = 1_000_000;
const TARGET_LATENESS: f64 = 2.0;
const TARGET_QUERIES: f64 = 1.05;

pub fn run(effort: Effort) -> Section {
    let mut section = Section::new("reactor (e): pending spin waits beside one more", &COLUMNS);
    section.note("work of 300 us on the software device; the others hang, on up to 1,000 streams");
    let (mut lateness, mut p99, mut queries) = (Vec::new(), Vec::new(), Vec::new());
    for pending in PENDING {
        let measured = measure(pending, effort.pick(200, 1_000));
        p99.push(Cell::Counted(measured.p99));
        queries.push(measured.queries);
        lateness.push(measured.lateness);
    }
    let cells = |samples: &[Samples]| samples.iter().map(|s| Cell::Measured(s.spread())).collect();
    section.row("lateness, ns", cells(&lateness));
    section.row("lateness p99, ns", p99);
    section
        .row("queries a stream and backstop", queries.iter().map(|&q| Cell::Counted(q)).collect());
    let many = Samples(vec![lateness[3].median() / lateness[0].median()]);
    let what = "lateness beside 10,000 against beside none";
    section.verdicts.push(Verdict::at_most(what, &many, " x", TARGET_LATENESS));
    let what = "queries a stream and backstop, 10,000 pending";
    let queries = Samples(vec![queries[3]]);
    section.verdicts.push(Verdict::at_most(what, &queries, "", TARGET_QUERIES));
    section
}

struct Measured {
    lateness: Samples,
    p99: f64,
    queries: f64,
}

fn measure(pending: usize, waits: usize) -> Measured {
    let runtime = Runtime::new("spin:backstop_us=1000", "gpu-reactor").expect("a plan and a name");
    let device = SoftwareDevice::builder().workers(1).build().expect("a device");
    let stream = || -> Rc<SoftwareStream> {
        Rc::new(device.stream_on(runtime.doorbell()).expect("a stream"))
    };
    let hang = Hang::new();
    let streams: Vec<_> = (0..pending.min(STREAMS)).map(|_| stream()).collect();
    for stream in &streams {
        stream.queue(Work::new().hang(&hang)).expect("a stream without faults");
    }
    for at in 0..pending {
        let (stream, handle) = (streams[at % streams.len()].clone(), runtime.handle());
        drop(runtime.spawn(async move {
            let mut port = handle.port(&*stream);
            handle.wait("pending", &mut port).await.expect("work that ends");
        }));
    }
    let (own, handle) = (stream(), runtime.handle());
    let clock = handle.clock();
    let measured = runtime.block_on(async {
        let step = async || {
            own.delay(DurNs::from_us(300)).expect("a stream without faults");
            let port = handle.port(&*own);
            let ticket = port.mark().expect("a stream without faults");
            let mut port = port.at(ticket);
            handle.wait("step", &mut port).await.expect("work that ends");
            let stamp = own.stamp_of(ticket.number()).expect("the latest completion");
            clock.monotonic_ns().since(stamp).0 as f64
        };
        for _ in 0..20 {
            step().await;
        }
        let (began, before) = (clock.monotonic_ns(), device.calls().queries);
        let mut lateness = Vec::with_capacity(waits);
        for _ in 0..waits {
            lateness.push(step().await);
        }
        let elapsed = clock.monotonic_ns().since(began).0 as f64;
        // Each step of the one task queries twice by itself: before and after the word.
        let queries = (device.calls().queries - before).saturating_sub(2 * waits as u64) as f64;
        let shares = streams.len().max(1) as f64 * elapsed / BACKSTOP_NS as f64;
        let mut sorted = lateness.clone();
        sorted.sort_by(f64::total_cmp);
        let p99 = sorted[sorted.len() * 99 / 100];
        Measured { lateness: Samples(lateness), p99, queries: queries / shares }
    });
    hang.release();
    runtime.run().expect("waits that end");
    measured.expect("a main future that ends")
}
