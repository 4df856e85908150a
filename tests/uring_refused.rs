//! A kernel or a sandbox that refuses io_uring is named, and what was asked for falls back (F18).
#![cfg(all(feature = "io-uring", target_os = "linux", not(loom)))]

use gpu_async_reactor::host::uring::{RingNeed, SetupCall, SetupCalls};
use gpu_async_reactor::host::{ParkPolicy, StdClock, UringIdle, UringRefusal, io_uring_caps};
use gpu_async_reactor::{ErrorCode, ExecutorCaps, ExecutorKind, Strictness, resolve};
use std::io;

/// A kernel or sandbox that refuses.
#[derive(Clone, Copy)]
struct Refusing {
    at: fn(SetupCall) -> bool,
    errno: rustix::io::Errno,
    sysctl: Option<u32>,
    lacks: Option<RingNeed>,
}

impl SetupCalls for Refusing {
    fn before(&self, call: SetupCall) -> io::Result<()> {
        match (self.at)(call) {
            true => Err(io::Error::from_raw_os_error(self.errno.raw_os_error())),
            false => Ok(()),
        }
    }

    fn disabled_sysctl(&self) -> Option<u32> {
        self.sysctl
    }

    fn has(&self, need: RingNeed, found: bool) -> bool {
        found && self.lacks != Some(need)
    }
}

#[test]
fn each_refusal_is_named_and_the_setting_falls_back_or_is_refused() {
    use rustix::io::Errno;
    let set_up = |call| matches!(call, SetupCall::Setup(_));
    let lacks = Refusing { at: |_| false, errno: Errno::PERM, sysctl: None, lacks: None };
    let works = UringIdle::with_calls(StdClock::new(), ParkPolicy::SPIN, 8, &lacks).is_ok();
    let refusing = |at, errno, sysctl| Refusing { at, errno, sysctl, lacks: None };
    let mut cases = vec![
        (refusing(set_up, Errno::PERM, Some(2)), "kernel.io_uring_disabled is 2"),
        (refusing(set_up, Errno::PERM, Some(1)), "kernel.io_uring_group"),
        (refusing(set_up, Errno::PERM, Some(0)), "seccomp"),
        (refusing(set_up, Errno::PERM, None), "seccomp"),
        (refusing(set_up, Errno::ACCESS, Some(0)), "security module"),
        (refusing(set_up, Errno::NOSYS, None), "ENOSYS"),
        (refusing(set_up, Errno::NOMEM, None), "locked memory"),
        (refusing(set_up, Errno::MFILE, None), "io_uring_setup"),
        (refusing(set_up, Errno::INVAL, None), "io_uring_setup"),
    ];
    if works {
        let register = |call| call == SetupCall::Register;
        let enter = |call| call == SetupCall::Enter;
        cases.extend([
            (refusing(register, Errno::PERM, Some(0)), "EPERM from io_uring_register"),
            (refusing(enter, Errno::PERM, Some(0)), "EPERM from io_uring_enter"),
            (refusing(enter, Errno::NOSYS, Some(0)), "ENOSYS from io_uring_enter"),
            (Refusing { lacks: Some(RingNeed::Waits), ..lacks }, "waits with a time-out"),
            (Refusing { lacks: Some(RingNeed::Operations), ..lacks }, "operations"),
        ]);
    }
    for (calls, named) in cases {
        let made = UringIdle::with_calls(StdClock::new(), ParkPolicy::SPIN, 8, &calls);
        let why = made.map(|_| ()).unwrap_err();
        assert!(why.to_string().contains(named), "{why} does not name {named}");
        assert_eq!(gpu_async_reactor::Error::from(why).code(), ErrorCode::Backend);

        let caps = ExecutorCaps { word_wait: Ok(()), io_uring: Err(why.to_string()) };
        let setting = resolve(ExecutorKind::IoUring, Strictness::Fallback, &caps).unwrap();
        assert_eq!(setting.running, ExecutorKind::GpuReactor);
        let warning = setting.warning.unwrap();
        assert_eq!(warning.code(), ErrorCode::ExecutorFallback);
        assert!(warning.to_string().contains(named), "{warning}");
        let refused = resolve(ExecutorKind::IoUring, Strictness::Strict, &caps).unwrap_err();
        assert_eq!(refused.code(), ErrorCode::ExecutorRefused);
        assert!(refused.to_string().contains(named), "{refused}");
    }
}

#[test]
fn the_probe_and_the_caps_say_the_same() {
    let (idle, caps) = UringIdle::probe(StdClock::new());
    assert_eq!(idle.as_ref().map(|_| ()).map_err(|why: &UringRefusal| why.to_string()), caps);
    assert_eq!(io_uring_caps(), caps);
    if let Ok(idle) = idle {
        assert_eq!(idle.policy(), ParkPolicy::BALANCED);
    }
}
