use gpu_async_reactor::host::*;
use gpu_async_reactor::*;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::*;
use std::task::*;
use std::time::*;
struct C(AtomicUsize);
impl Wake for C {
    fn wake(self: Arc<Self>) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}
fn main() {
    let watcher = Watcher::new(WatchPolicy::SPIN).unwrap();
    let n = 1000;
    let mut words: Vec<OwnedDescriptor> = (0..n / 8)
        .flat_map(|_| {
            let line = CompletionLine::shared();
            Slot::ALL.map(|slot| OwnedDescriptor { line: line.clone(), slot, target: 0 })
        })
        .collect();
    let c = Arc::new(C(AtomicUsize::new(0)));
    let waker = Waker::from(c.clone());
    let mut cx = Context::from_waker(&waker);
    let mut best = [u64::MAX; 5];
    for _ in 0..2000 {
        c.0.store(n, Ordering::Relaxed);
        let t0 = Instant::now();
        let mut ws: Vec<_> = words
            .iter_mut()
            .map(|w| {
                w.target += 1;
                let s = w.clone();
                watcher.watch(w.clone(), WatchOptions::new(DurNs::from_ms(100)), move || {
                    Ok(s.is_complete())
                })
            })
            .collect();
        let t1 = Instant::now();
        for w in &mut ws {
            assert!(Pin::new(w).poll(&mut cx).is_pending());
        }
        let t2 = Instant::now();
        for w in &words {
            (*w.line).as_ref().store(w.slot, w.target);
        }
        let t3 = Instant::now();
        while c.0.load(Ordering::Acquire) != 0 {
            std::hint::spin_loop();
        }
        let t4 = Instant::now();
        for w in &mut ws {
            assert!(Pin::new(w).poll(&mut cx).is_ready());
        }
        drop(ws);
        let t5 = Instant::now();
        for (b, d) in best.iter_mut().zip([t1 - t0, t2 - t1, t3 - t2, t4 - t3, t5 - t4]) {
            *b = (*b).min(d.as_nanos() as u64);
        }
    }
    println!(
        "make {} register {} store {} complete {} take+drop {} ns/1000",
        best[0], best[1], best[2], best[3], best[4]
    );
}
