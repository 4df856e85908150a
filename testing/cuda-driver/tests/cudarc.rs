//! The crate `cudarc` on this library: what its loader finds by name works with it.
#![cfg(target_os = "linux")]

use cudarc::driver::CudaContext;
use driver_core::{Control, Live, library};
use std::os::unix::fs::symlink;
use std::process::Command;

/// Set in the child, whose loader searches a folder with the vendor's name in it. A loader reads its
/// search path once, when its process starts.
const CHILD: &str = "CUDA_DRIVER_CHILD";

#[test]
fn its_contexts_streams_and_copies_run_here() {
    if std::env::var_os(CHILD).is_some() {
        return copies_there_and_back();
    }
    let folder = std::env::temp_dir().join(format!("cuda-driver-cudarc-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    symlink(library("cuda_driver"), folder.join("libcuda.so")).unwrap();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "its_contexts_streams_and_copies_run_here", "--nocapture"])
        .env(CHILD, "1")
        .env("LD_LIBRARY_PATH", &folder)
        .spawn()
        .unwrap();
    let begin = std::time::Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if begin.elapsed().as_secs() > 60 {
            child.kill().unwrap();
        }
        std::thread::yield_now();
    };
    std::fs::remove_dir_all(&folder).unwrap();
    assert!(status.success(), "{status}");
}

fn copies_there_and_back() {
    let control = Control::open(library("cuda_driver"));
    {
        let context = CudaContext::new(0).unwrap();
        assert_eq!(context.name().unwrap(), "Test device 0");
        let stream = context.new_stream().unwrap();
        let numbers: Vec<u32> = (0..1000).collect();
        let mut device = stream.clone_htod(&numbers).unwrap();
        assert_eq!(control.live(Live::DeviceAllocations), 1);
        let second = stream.fork().unwrap();
        assert_eq!(second.clone_dtoh(&device).unwrap(), numbers);
        stream.memset_zeros(&mut device).unwrap();
        assert_eq!(stream.clone_dtoh(&device).unwrap(), [0; 1000]);
        // SAFETY: what is allocated is written before it is read.
        let mut pinned = unsafe { context.alloc_pinned::<u32>(1000) }.unwrap();
        pinned.as_mut_slice().unwrap().copy_from_slice(&numbers);
        stream.memcpy_htod(&pinned, &mut device).unwrap();
        assert_eq!(stream.clone_dtoh(&device).unwrap(), numbers);
        let event = stream.record_event(None).unwrap();
        event.synchronize().unwrap();
        assert!(event.is_complete());
        assert!(CudaContext::new(1).is_err(), "there is one device");
        stream.synchronize().unwrap();
        context.check_err().unwrap();
    }
    for what in [Live::DeviceAllocations, Live::HostAllocations, Live::Streams, Live::Events] {
        assert_eq!(control.live(what), 0, "{what:?}");
    }
    assert_eq!(control.live(Live::PrimaryReferences), 0);
    assert_eq!(control.violations(), [""; 0]);
    assert!(control.calls("cuMemcpyHtoDAsync_v2") == 2, "it was this library that ran");
}
