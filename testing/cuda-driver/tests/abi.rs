//! What a loader and a C caller see of the library.
#![cfg(target_os = "linux")]

mod common;

use common::{Cuda, Handle};
use cuda_driver_layout::{MemoryBarrierParams, Params, WriteValueParams};
use driver_core::{Library, foreign_call, library, soname, symbols, without_symbol};
use std::collections::BTreeSet;
use std::ffi::{CStr, c_char};
use std::mem::{align_of, offset_of, size_of};
use std::sync::atomic::Ordering;

/// The layout as this package declares it, without linking the library that these tests open.
#[path = "../src/layout.rs"]
mod cuda_driver_layout;

#[test]
fn the_soname_is_the_vendors() {
    assert_eq!(soname(library("cuda_driver")).unwrap().as_deref(), Some("libcuda.so.1"));
}

#[test]
fn the_parameters_of_a_batch_are_laid_out_as_in_the_header() {
    assert_eq!(size_of::<Params>(), 48);
    assert_eq!(align_of::<Params>(), 8);
    assert_eq!(offset_of!(WriteValueParams, address), 8);
    assert_eq!(offset_of!(WriteValueParams, value), 16);
    assert_eq!(offset_of!(WriteValueParams, flags), 24);
    assert_eq!(offset_of!(WriteValueParams, alias), 32);
    assert_eq!(offset_of!(MemoryBarrierParams, flags), 4);
    assert_eq!((Params::WRITE_VALUE_32, Params::WRITE_VALUE_64, Params::BARRIER), (2, 5, 6));
}

#[test]
fn the_loader_finds_it_under_the_vendors_name_once_it_is_open() {
    let _cuda = Cuda::fresh();
    // SAFETY: a test driver runs no code of its own when it is opened.
    let by_name = unsafe { Library::new("libcuda.so.1") }.unwrap();
    // SAFETY: looked up only.
    assert!(unsafe { by_name.get::<unsafe extern "C" fn() -> u64>(b"fake_reset\0") }.is_ok());
}

#[test]
fn names_of_status_codes_agree_with_the_vendors_library() {
    let cuda = Cuda::fresh();
    let Ok(path) = std::env::var("GPU_REAL_LIBCUDA") else {
        println!("skipped: GPU_REAL_LIBCUDA does not say where the vendor's library is");
        return;
    };
    // SAFETY: the vendor's library, which is opened by every program that uses it.
    let real = unsafe { Library::new(&path) }.expect(&path);
    let mut known = 0;
    for code in -1..1100 {
        let mut name: *const c_char = std::ptr::null();
        let to = &raw mut name;
        let status = foreign_call!(
            real, cuGetErrorName(code => i32, to => *mut *const c_char) -> i32);
        // SAFETY: not null, so a text of the library's that it never frees.
        let name = (!name.is_null()).then(|| unsafe { CStr::from_ptr(name) });
        let name = name.map(|name| name.to_str().unwrap().to_string());
        // This library knows a later header's codes as well.
        if name.is_some() {
            assert_eq!(text(&cuda, code, false), (status, name), "{code}");
            known += 1;
        } else if text(&cuda, code, false).1.is_none() {
            assert_eq!(text(&cuda, code, false).0, status, "an unknown code: {code}");
        }
    }
    assert!(known > 80, "{known}");
    println!("{known} names compared with the vendor's library");
}

#[test]
fn a_machine_without_a_device_is_told_as_the_vendors_library_tells_it() {
    let cuda = Cuda::fresh();
    let Ok(path) = std::env::var("GPU_REAL_LIBCUDA") else {
        println!("skipped: GPU_REAL_LIBCUDA does not say where the vendor's library is");
        return;
    };
    // SAFETY: the vendor's library, which is opened by every program that uses it.
    let real = unsafe { Library::new(&path) }.expect(&path);
    let init = |library: &Library, flags: u32| foreign_call!(library, cuInit(flags => u32) -> i32);
    if init(&real, 0) == 0 {
        println!("skipped: there is a device here");
        return;
    }
    cuda.control.devices(0);
    let answers = |library: &Library| {
        let mut number = 0;
        let mut mode = 0;
        let mut handle: Handle = 0;
        let (to, mode_to, handle_to) = (&raw mut number, &raw mut mode, &raw mut handle);
        vec![
            init(library, 0),
            init(library, 1),
            foreign_call!(library, cuDriverGetVersion(to => *mut i32) -> i32),
            foreign_call!(library, cuDriverGetVersion(std::ptr::null_mut() => *mut i32) -> i32),
            foreign_call!(library, cuDeviceGetCount(to => *mut i32) -> i32),
            foreign_call!(library, cuDeviceGet(to => *mut i32, 0 => i32) -> i32),
            foreign_call!(library, cuCtxGetCurrent(handle_to => *mut Handle) -> i32),
            foreign_call!(library, cuStreamQuery(0 => Handle) -> i32),
            foreign_call!(library, cuStreamCreate(handle_to => *mut Handle, 1 => u32) -> i32),
            foreign_call!(library, cuEventCreate(handle_to => *mut Handle, 2 => u32) -> i32),
            foreign_call!(library, cuCtxSynchronize() -> i32),
            foreign_call!(library, cuThreadExchangeStreamCaptureMode(mode_to => *mut i32) -> i32),
            foreign_call!(library, cuMemFreeHost(0 => usize) -> i32),
        ]
    };
    assert_eq!(answers(cuda.control.entry_points()), answers(&real));
}

/// The real library's symbols, where the environment says where it is.
fn real_symbols() -> Option<BTreeSet<String>> {
    match std::env::var("GPU_REAL_LIBCUDA") {
        Ok(path) => Some(symbols(&path).expect(&path).into_iter().collect()),
        Err(_) => {
            println!("skipped: GPU_REAL_LIBCUDA does not say where the vendor's library is");
            None
        }
    }
}

#[test]
fn every_entry_point_is_one_of_the_vendors() {
    let own = symbols(library("cuda_driver")).unwrap();
    let entries: Vec<_> = own.iter().filter(|name| name.starts_with("cu")).collect();
    assert_eq!(entries.len(), 51);
    let fakes = own.iter().filter(|name| name.starts_with("fake_")).count();
    assert_eq!(fakes, 24, "the control interface");
    if let Some(real) = real_symbols() {
        for entry in &entries {
            assert!(real.contains(*entry), "the vendor has no {entry}");
        }
        println!("{} entry points compared with the vendor's library", entries.len());
    }
}

#[test]
fn nothing_works_before_the_initialising_call_but_the_version_and_the_texts() {
    let cuda = Cuda::fresh();
    let mut number = 0;
    assert_eq!(cu!(cuda, cuDeviceGetCount(&raw mut number => *mut i32)), 3);
    assert_eq!(cu!(cuda, cuStreamQuery(0 => Handle)), 3);
    assert_eq!(cu!(cuda, cuDriverGetVersion(&raw mut number => *mut i32)), 0);
    assert_eq!(number, 12090);
    cuda.control.version(11040);
    assert_eq!(cu!(cuda, cuDriverGetVersion(&raw mut number => *mut i32)), 0);
    assert_eq!(number, 11040);
    cuda.control.devices(0);
    assert_eq!(cu!(cuda, cuInit(0 => u32)), 100, "no device");
    assert_eq!(cu!(cuda, cuDeviceGetCount(&raw mut number => *mut i32)), 3);
    cuda.control.devices(2);
    assert_eq!(cu!(cuda, cuInit(1 => u32)), 1, "no flag is known");
    assert_eq!(cu!(cuda, cuInit(0 => u32)), 0);
    assert_eq!(cu!(cuda, cuDeviceGetCount(&raw mut number => *mut i32)), 0);
    assert_eq!(number, 2);
    assert_eq!(cu!(cuda, cuDeviceGet(&raw mut number => *mut i32, 2 => i32)), 101);
}

/// The text of a status code.
fn text(cuda: &Cuda, code: i32, words: bool) -> (i32, Option<String>) {
    let mut text: *const c_char = std::ptr::null();
    let to = &raw mut text;
    let status = if words {
        cu!(cuda, cuGetErrorString(code => i32, to => *mut *const c_char))
    } else {
        cu!(cuda, cuGetErrorName(code => i32, to => *mut *const c_char))
    };
    // SAFETY: not null, so a text of the library's that it never frees.
    let text = (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) });
    (status, text.map(|text| text.to_str().unwrap().to_string()))
}

#[test]
fn status_codes_have_the_vendors_names() {
    let cuda = Cuda::fresh();
    for (code, name) in [
        (0, "CUDA_SUCCESS"),
        (3, "CUDA_ERROR_NOT_INITIALIZED"),
        (201, "CUDA_ERROR_INVALID_CONTEXT"),
        (600, "CUDA_ERROR_NOT_READY"),
        (700, "CUDA_ERROR_ILLEGAL_ADDRESS"),
        (900, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"),
        (906, "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT"),
    ] {
        assert_eq!(text(&cuda, code, false), (0, Some(name.to_string())));
    }
    assert_eq!(text(&cuda, 700, true), (0, Some("illegal address".to_string())));
    assert_eq!(text(&cuda, 12345, false), (1, None), "an unknown code");
}

#[test]
fn names_and_attributes_of_devices() {
    let cuda = Cuda::ready();
    let mut name = [b'x'; 8];
    let to = name.as_mut_ptr();
    assert_eq!(cu!(cuda, cuDeviceGetName(to => *mut u8, 5 => i32, 0 => i32)), 0);
    assert_eq!(&name, b"Test\0xxx", "cut to the room there is");
    let mut value = -1;
    let to = &raw mut value;
    assert_eq!(cu!(cuda, cuDeviceGetAttribute(to => *mut i32, 122 => i32, 0 => i32)), 0);
    assert_eq!(value, 1);
    cuda.control.attribute(0, 122, Some(0));
    assert_eq!(cu!(cuda, cuDeviceGetAttribute(to => *mut i32, 122 => i32, 0 => i32)), 0);
    assert_eq!(value, 0);
    cuda.control.attribute(0, 122, None);
    assert_eq!(cu!(cuda, cuDeviceGetAttribute(to => *mut i32, 122 => i32, 0 => i32)), 1);
    assert_eq!(cu!(cuda, cuDeviceGetAttribute(to => *mut i32, 99999 => i32, 0 => i32)), 1);
    assert_eq!(cu!(cuda, cuDeviceGetAttribute(to => *mut i32, 122 => i32, 7 => i32)), 101);
}

#[test]
fn memory_operations_follow_the_attribute_of_their_kind() {
    let cuda = Cuda::ready();
    let stream = cuda.stream();
    let (words, at) = cuda.words();
    let not_supported = 801;
    let v1 = |value: u32| {
        cu!(cuda, cuStreamWriteValue32(
            stream => Handle, at => u64, value => u32, 0 => u32))
    };
    assert_eq!(v1(1), not_supported);
    cuda.control.attribute(0, 92, Some(1));
    assert_eq!(v1(2), 0);
    let wide = |at: u64| {
        cu!(cuda, cuStreamWriteValue64(
            stream => Handle, at => u64, 3 => u64, 0 => u32))
    };
    assert_eq!(wide(at + 8), not_supported);
    cuda.control.attribute(0, 93, Some(1));
    assert_eq!(wide(at + 8), 0);
    cuda.control.attribute(0, 122, Some(0));
    assert_eq!(cuda.write(stream, at + 16, 4), not_supported);
    assert_eq!(
        cu!(cuda, cuStreamWriteValue32_v2(
            stream => Handle, at + 16 => u64, 5 => u32, 0 => u32)),
        0,
        "32 bits need no attribute"
    );
    assert_eq!(cuda.synchronize(stream), 0);
    let seen: Vec<u64> = words[..3].iter().map(|word| word.load(Ordering::Acquire)).collect();
    assert_eq!(seen, [2, 3, 5]);
}

#[test]
fn a_batch_stores_in_its_order_and_knows_its_limits() {
    let cuda = Cuda::ready();
    let stream = cuda.stream();
    let (words, at) = cuda.words();
    let write = |operation, address, value| Params {
        write_value: WriteValueParams { operation, address, value, flags: 0, alias: 0 },
    };
    let mut batch = vec![
        write(Params::WRITE_VALUE_32, at, 0xffff_ffff_0000_0001),
        Params { barrier: MemoryBarrierParams { operation: Params::BARRIER, flags: 0 } },
        write(Params::WRITE_VALUE_32, at + 4, 2),
        write(Params::WRITE_VALUE_64, at + 8, 1 << 40),
    ];
    let mut run = |count: u32, flags: u32| {
        let first = batch.as_mut_ptr();
        cu!(cuda, cuStreamBatchMemOp_v2(
            stream => Handle, count => u32, first => *mut Params, flags => u32))
    };
    assert_eq!(run(4, 1), 1, "no flag is known");
    assert_eq!(run(256, 0), 1, "too many");
    assert_eq!(run(4, 0), 0);
    assert_eq!(cuda.synchronize(stream), 0);
    assert_eq!(words[0].load(Ordering::Acquire), 2 << 32 | 1, "two halves, the rest ignored");
    assert_eq!(words[1].load(Ordering::Acquire), 1 << 40);
    let mut wait = Params { pad: [0; 6] };
    wait.operation = 1;
    let first = &raw mut wait;
    let refused = cu!(cuda, cuStreamBatchMemOp_v2(
        stream => Handle, 1 => u32, first => *mut Params, 0 => u32));
    assert_eq!(refused, 801, "waits are not there");
}

#[test]
fn a_copy_of_the_library_can_lack_a_symbol() {
    let folder = std::env::temp_dir().join(format!("cuda-driver-abi-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let copy = folder.join("libcuda.so.1");
    without_symbol(library("cuda_driver"), "cuStreamWriteValue64_v2", &copy).unwrap();
    let control = driver_core::Control::open(&copy);
    let lookup = |name: &[u8]| {
        // SAFETY: looked up only, never called.
        unsafe { control.entry_points().get::<unsafe extern "C" fn()>(name) }.is_ok()
    };
    assert!(!lookup(b"cuStreamWriteValue64_v2\0"));
    assert!(lookup(b"cuStreamWriteValue64\0") && lookup(b"cuStreamWriteValue32_v2\0"));
    let status = driver_core::foreign_call!(control.entry_points(), cuInit(0 => u32) -> i32);
    assert_eq!(status, 0, "the rest works");
    assert!(without_symbol(&copy, "cuNoSuchThing", folder.join("x")).is_err());
    std::fs::remove_dir_all(&folder).unwrap();
}
