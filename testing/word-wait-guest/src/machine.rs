//! What an init has to do for itself.

use std::fs;

/// The longest that a user's wait may last, in ticks. Linux has the file where the CPU has `umwait`.
const CAP: &str = "/sys/devices/system/cpu/umwait_control/max_time";

/// The CPU whose waits are tested.
pub const WAITING_CPU: usize = 0;
/// The CPU that stores.
pub const STORING_CPU: usize = 1;

/// What the init calls itself with, once the machine is prepared.
#[cfg(target_os = "linux")]
const PREPARED: &str = "prepared";

fn is_init() -> bool {
    std::process::id() == 1
}

/// Mounts what the cases read, if this is the init, and begins anew on one CPU: the other one has
/// then not touched a page of this process, see `cases::OwnPage`.
pub fn prepare() {
    #[cfg(target_os = "linux")]
    if is_init() && std::env::args().all(|given| given != PREPARED) {
        use rustix::mount::{MountFlags, mount};
        use std::os::unix::process::CommandExt;
        for (kind, at) in [("proc", "/proc"), ("sysfs", "/sys")] {
            if let Err(why) = mount(kind, at, kind, MountFlags::empty(), None) {
                println!("word-wait: FAIL mount {at}: {why}");
            }
        }
        stay_on(WAITING_CPU);
        let why = std::process::Command::new("/init").arg(PREPARED).exec();
        println!("word-wait: FAIL exec {why}");
    }
    stay_on(WAITING_CPU);
}

/// Switches the machine off if this is the init, else ends the process.
pub fn end(failed: u32) -> ! {
    #[cfg(target_os = "linux")]
    if is_init() {
        use rustix::system::{RebootCommand, reboot};
        // The console's driver still has to send the last lines.
        let _ = rustix::termios::tcdrain(std::io::stdout());
        let refused = reboot(RebootCommand::PowerOff);
        println!("word-wait: FAIL power-off {refused:?}");
        loop {
            std::thread::park();
        }
    }
    std::process::exit(i32::from(failed > 0))
}

/// Keeps the calling thread on one CPU of the machine, if it has that many and lets.
pub fn stay_on(cpu: usize) {
    #[cfg(target_os = "linux")]
    {
        let mut only = rustix::thread::CpuSet::new();
        only.set(cpu);
        let _ = rustix::thread::sched_setaffinity(None, &only);
    }
    let _ = cpu;
}

/// The kernel's cap, if it has one that may be read.
pub fn cap() -> Option<u64> {
    fs::read_to_string(CAP).ok()?.trim().parse().ok()
}

/// Sets the cap. Only an init does: it is a setting of the whole machine.
pub fn set_cap(ticks: u64) -> Result<(), String> {
    if !is_init() {
        return Err("not the init".into());
    }
    fs::write(CAP, ticks.to_string()).map_err(|why| format!("{CAP}: {why}"))
}
