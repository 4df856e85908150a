//! The entry points: arguments in, status out. Documentation of each: the HIP runtime API.

use crate::rules::{driver, event_flag, host_flag};
use crate::status;
use driver_core::abi::{HostAddress, HostData, HostFunction, Out};
use driver_core::memory::{Place, Request, Value};
use driver_core::{Call, CaptureStatus, Outcome, Refusal};
use std::ffi::c_char;

/// `hipDeviceptr_t`, a pointer that only the device follows.
type DeviceAddress = usize;
/// `hipStream_t`, `hipEvent_t`, `hipGraph_t`: never looked behind.
type Handle = u64;

/// Defines entry points that answer a status, and lists them.
macro_rules! entry_points {
    ($(fn $name:ident($($argument:ident: $type:ty),*) |$call:ident| $body:expr;)*) => {
        /// The names of the entry points.
        pub const ENTRIES: &[&str] = &[$(stringify!($name),)* "hipGetErrorName"];
        $(
            #[doc = concat!("`", stringify!($name), "` of the HIP runtime API.")]
            ///
            /// # Safety
            ///
            /// As the vendor's documentation has it: pointers are null or good for their purpose.
            // SAFETY: this library stands in for the one of the vendor that has this name, and is
            // never linked, only opened.
            #[unsafe(no_mangle)]
            #[allow(non_snake_case, reason = "the vendor's spelling")]
            pub unsafe extern "C" fn $name($($argument: $type),*) -> i32 {
                driver().call(stringify!($name), |$call| $body)
            }
        )*
    };
}

/// `hipGetErrorName` of the HIP runtime API: the one entry point that answers no status.
// SAFETY: as for the others.
#[unsafe(no_mangle)]
#[allow(non_snake_case, reason = "the vendor's spelling")]
pub extern "C" fn hipGetErrorName(code: i32) -> *const c_char {
    driver().call("hipGetErrorName", |_call| Ok(()));
    status::name(code).as_ptr()
}

fn flags_at_most(flags: u32, known: u32) -> Outcome {
    if flags & !known == 0 { Ok(()) } else { Err(Refusal::InvalidValue) }
}

/// Whether the environment makes memory coherent whose allocation does not say: the variable of the
/// header, and the one of the vendor's guide.
fn coherent_by_environment() -> bool {
    let set = |name: &str| std::env::var(name).is_ok_and(|value| value == "1");
    set("HIP_COHERENT_HOST_ALLOC") || set("HIP_HOST_COHERENT")
}

fn allocate_host(call: &mut Call, to: Out<HostAddress>, bytes: usize, flags: u32) -> Outcome {
    to.check()?;
    let known = host_flag::PORTABLE
        | host_flag::MAPPED
        | host_flag::WRITE_COMBINED
        | host_flag::NUMA_USER
        | host_flag::COHERENT
        | host_flag::NON_COHERENT;
    flags_at_most(flags, known)?;
    let coherent = flags & host_flag::COHERENT != 0;
    let non_coherent = flags & host_flag::NON_COHERENT != 0;
    if coherent && non_coherent {
        return Err(Refusal::InvalidValue);
    }
    if bytes == 0 {
        return to.set(HostAddress::NULL);
    }
    let request = Request {
        place: Place::Host,
        bytes,
        portable: true,
        mapped: true,
        coherent: coherent || (!non_coherent && coherent_by_environment()),
    };
    let key = call.allocate(request)?;
    to.set(call.host_address(key))
}

fn allocate_device(call: &mut Call, to: Out<DeviceAddress>, bytes: usize) -> Outcome {
    to.check()?;
    if bytes == 0 {
        return to.set(0);
    }
    let request =
        Request { place: Place::Device, bytes, portable: true, mapped: true, coherent: true };
    let key = call.allocate(request)?;
    to.set(key)
}

/// `hipErrorInvalidDevicePointer`
const INVALID_DEVICE_POINTER: i32 = 17;

fn free_device(call: &mut Call, at: DeviceAddress) -> Outcome {
    if at == 0 {
        return Ok(());
    }
    call.free(Place::Device, at).map_err(|refusal| match refusal {
        Refusal::InvalidValue => Refusal::Code(INVALID_DEVICE_POINTER),
        other => other,
    })
}

fn create_event(call: &mut Call, event: Out<Handle>, flags: u32) -> Outcome {
    event.check()?;
    let release = event_flag::RELEASE_TO_DEVICE | event_flag::RELEASE_TO_SYSTEM;
    let known = event_flag::BLOCKING_SYNC
        | event_flag::DISABLE_TIMING
        | event_flag::INTERPROCESS
        | event_flag::DISABLE_SYSTEM_FENCE
        | release;
    flags_at_most(flags, known)?;
    if flags & release == release {
        return Err(Refusal::InvalidValue);
    }
    event.set(call.create_event(flags)?)
}

fn end_capture(call: &mut Call, stream: Handle, graph: Out<Handle>) -> Outcome {
    graph.check()?;
    let ended = call.end_capture(stream);
    // A broken capture has a null graph.
    graph.set(*ended.as_ref().unwrap_or(&0))?;
    ended.map(|_| ())
}

fn device_count(call: &mut Call, count: Out<i32>) -> Outcome {
    let devices = call.device_count();
    count.set(devices)?;
    if devices == 0 { Err(Refusal::NoDevice) } else { Ok(()) }
}

entry_points! {
    fn hipInit(flags: u32) |call| {
        call.initialize(flags).map_err(|refusal| match refusal {
            // What the vendor's runtime answers on a machine without a device.
            Refusal::NoDevice => Refusal::InvalidDevice,
            other => other,
        })
    };
    fn hipDriverGetVersion(version: Out<i32>) |call| version.set(call.driver_version());
    fn hipRuntimeGetVersion(version: Out<i32>) |call| version.set(call.driver_version());
    fn hipGetDeviceCount(count: Out<i32>) |call| device_count(call, count);
    fn hipGetDevice(device: Out<i32>) |call| {
        device.check()?;
        device.set(call.current_device()?)
    };
    fn hipSetDevice(device: i32) |call| call.set_device(device);
    fn hipDeviceGetAttribute(value: Out<i32>, attribute: i32, device: i32) |call| {
        value.check()?;
        value.set(call.device_attribute(device, attribute)?)
    };
    fn hipDeviceReset() |call| {
        let device = call.current_device()?;
        call.reset_primary(device)
    };
    fn hipGetLastError() |call| call.last_error(true);
    fn hipPeekAtLastError() |call| call.last_error(false);
    fn hipDeviceSynchronize() |call| call.synchronize_context();

    fn hipHostMalloc(to: Out<HostAddress>, bytes: usize, flags: u32) |call| {
        allocate_host(call, to, bytes, flags)
    };
    fn hipHostFree(at: HostAddress) |call| {
        if at == HostAddress::NULL { Ok(()) } else { call.free(Place::Host, at.addr()) }
    };
    fn hipHostGetDevicePointer(
        to: Out<DeviceAddress>, at: HostAddress, _flags: u32
    ) |call| {
        to.check()?;
        to.set(call.device_address(at)?)
    };
    fn hipMalloc(to: Out<DeviceAddress>, bytes: usize) |call| allocate_device(call, to, bytes);
    fn hipFree(at: DeviceAddress) |call| free_device(call, at);
    fn hipMemcpyDtoHAsync(
        to: HostAddress, from: DeviceAddress, bytes: usize, stream: Handle
    ) |call| call.copy_to_host(stream, to, from, bytes);
    fn hipMemcpyHtoDAsync(
        to: DeviceAddress, from: HostAddress, bytes: usize, stream: Handle
    ) |call| call.copy_to_device(stream, to, from, bytes);
    // The constant is a byte, whatever the type.
    fn hipMemsetAsync(
        at: DeviceAddress, value: i32, bytes: usize, stream: Handle
    ) |call| call.fill(stream, at, value as u8, bytes);

    fn hipStreamCreateWithFlags(stream: Out<Handle>, flags: u32) |call| {
        stream.check()?;
        flags_at_most(flags, 1)?;
        stream.set(call.create_stream(flags == 1)?)
    };
    fn hipStreamDestroy(stream: Handle) |call| call.destroy_stream(stream);
    fn hipStreamQuery(stream: Handle) |call| call.query_stream(stream);
    fn hipStreamSynchronize(stream: Handle) |call| call.synchronize_stream(stream);
    fn hipStreamGetDevice(stream: Handle, device: Out<i32>) |call| {
        device.check()?;
        device.set(call.stream_device(stream)?)
    };
    fn hipStreamWaitEvent(stream: Handle, event: Handle, flags: u32) |call| {
        flags_at_most(flags, 0)?;
        call.wait_event(stream, event)
    };
    fn hipLaunchHostFunc(
        stream: Handle, function: HostFunction, data: HostData
    ) |call| call.launch_host(stream, function, data);

    fn hipStreamIsCapturing(stream: Handle, status: Out<CaptureStatus>) |call| {
        status.check()?;
        status.set(call.capture_status(stream)?)
    };
    fn hipStreamBeginCapture(stream: Handle, mode: i32) |call| call.begin_capture(stream, mode);
    fn hipStreamEndCapture(stream: Handle, graph: Out<Handle>) |call| {
        end_capture(call, stream, graph)
    };
    fn hipGraphDestroy(graph: Handle) |call| call.destroy_graph(graph);
    fn hipThreadExchangeStreamCaptureMode(mode: Out<i32>) |call| {
        let before = call.exchange_mode(mode.get()?)?;
        mode.set(before)
    };

    // The flags are reserved and ignored.
    fn hipStreamWriteValue32(
        stream: Handle, at: DeviceAddress, value: u32, _flags: u32
    ) |call| call.store(stream, &[(at, Value::Word32(value))]);
    fn hipStreamWriteValue64(
        stream: Handle, at: DeviceAddress, value: u64, _flags: u32
    ) |call| call.store(stream, &[(at, Value::Word64(value))]);

    fn hipEventCreateWithFlags(event: Out<Handle>, flags: u32) |call| {
        create_event(call, event, flags)
    };
    fn hipEventDestroy(event: Handle) |call| call.destroy_event(event);
    fn hipEventRecord(event: Handle, stream: Handle) |call| call.record_event(event, stream);
    fn hipEventQuery(event: Handle) |call| call.query_event(event);
    fn hipEventSynchronize(event: Handle) |call| call.synchronize_event(event);
}
