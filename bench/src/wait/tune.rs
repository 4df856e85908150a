//! The margin and the window of a predicted `spin`, found by measuring: the least CPU among those
//! whose median lateness is within 2 us of the best.

use super::Load;
use crate::measure::Effort;
use gpu_async_reactor::WINDOW_MAX;

const WINDOWS: [u8; 3] = [1, 2, 4];
const MARGINS_US: [u64; 8] = [30, 60, 80, 100, 120, 150, 180, 220];

/// The text of the plan that did best.
pub fn tune(load: &Load, effort: Effort) -> String {
    // As much time for each candidate, whatever the work.
    let waits = (effort.pick(20_000, 150_000) / load.work.as_us()).clamp(3, 300) as u32;
    let step = effort.pick(2, 1);
    let mut tried = Vec::new();
    for window in WINDOWS.into_iter().step_by(step) {
        for margin_us in MARGINS_US.into_iter().step_by(step) {
            if margin_us * 2 > load.work.as_us() {
                continue;
            }
            let plan = predicted(window, margin_us);
            let (summary, _) = load.measure(&plan, waits, 7).expect("the software device works");
            let cpu = summary.cpu_share.unwrap_or(f64::INFINITY);
            tried.push((summary.lateness_ns.p50, cpu, plan));
        }
    }
    let least_late = tried.iter().map(|(p50, ..)| *p50).min().expect("some margin fits the work");
    tried.retain(|(p50, ..)| *p50 <= least_late + 2_000);
    tried.sort_by(|(_, one, _), (_, other, _)| one.total_cmp(other));
    tried.swap_remove(0).2
}

fn predicted(window: u8, margin_us: u64) -> String {
    assert!((1..=WINDOW_MAX).contains(&window));
    format!(
        "spin:backstop_us=20000+predict:margin_us={margin_us},min_sleep_us=20,max_sleep_us=1000000,window={window}"
    )
}
