//! The entry points: arguments in, status out. Documentation of each: the CUDA driver API.

use crate::batch::{check_flags, store_of};
use crate::layout::Params;
use crate::rules::{attribute, driver};
use crate::status;
use driver_core::abi::{HostAddress, HostData, HostFunction, Out};
use driver_core::memory::{Place, Request, Value};
use driver_core::{Call, CaptureStatus, Outcome, Refusal};
use std::ffi::c_char;

/// `CUdeviceptr`
type DeviceAddress = u64;
/// `CUcontext`, `CUstream`, `CUevent`, `CUgraph`: never looked behind.
type Handle = u64;

/// Defines entry points, and `ENTRIES`, their names.
macro_rules! entry_points {
    ($(fn $name:ident($($argument:ident: $type:ty),*) |$call:ident| $body:expr;)*) => {
        /// The names of the entry points.
        pub const ENTRIES: &[&str] = &[$(stringify!($name)),*];
        $(
            #[doc = concat!("`", stringify!($name), "` of the CUDA driver API.")]
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

/// What needs the initialising call.
fn ready<T>(call: &mut Call, body: impl FnOnce(&mut Call) -> Outcome<T>) -> Outcome<T> {
    call.initialized()?;
    body(call)
}

fn flags_at_most(flags: u32, known: u32) -> Outcome {
    if flags & !known == 0 { Ok(()) } else { Err(Refusal::InvalidValue) }
}

fn write(call: &mut Call, stream: Handle, at: u64, value: Value, flags: u32, v1: bool) -> Outcome {
    call.initialized()?;
    check_flags(flags)?;
    check_support(call, stream, value, v1)?;
    call.store(stream, &[(address(at)?, value)])
}

/// A batch must be shorter: `cuStreamBatchMemOp`.
const MOST: u32 = 256;

/// Whether the device of `stream` has memory operations of this kind.
fn check_support(call: &mut Call, stream: Handle, value: Value, v1: bool) -> Outcome {
    let device = call.stream_device(stream)?;
    let wide = value.bytes() == 8;
    let needed = match (v1, wide) {
        (true, false) => attribute::MEM_OPS_V1,
        (true, true) => attribute::MEM_OPS_64_V1,
        (false, true) => attribute::MEM_OPS_64,
        (false, false) => return Ok(()),
    };
    match call.device_attribute(device, needed) {
        Ok(1) => Ok(()),
        _ => Err(Refusal::NotSupported),
    }
}

fn batch(
    call: &mut Call,
    stream: Handle,
    count: u32,
    operations: Out<Params>,
    flags: u32,
    v1: bool,
) -> Outcome {
    call.initialized()?;
    if flags != 0 || count >= MOST {
        return Err(Refusal::InvalidValue);
    }
    let operations = operations.list(count as usize)?;
    let mut stores = Vec::new();
    for operation in &operations {
        if let Some((at, value)) = store_of(operation)? {
            check_support(call, stream, value, v1)?;
            stores.push((at, value));
        }
    }
    call.store(stream, &stores)
}

fn address(at: DeviceAddress) -> Outcome<usize> {
    usize::try_from(at).map_err(|_| Refusal::InvalidValue)
}

fn allocate_host(call: &mut Call, to: Out<HostAddress>, bytes: usize, flags: u32) -> Outcome {
    to.check()?;
    flags_at_most(flags, 7)?;
    let request = Request {
        place: Place::Host,
        bytes,
        // CU_MEMHOSTALLOC_PORTABLE, CU_MEMHOSTALLOC_DEVICEMAP
        portable: flags & 1 != 0,
        mapped: flags & 2 != 0,
        coherent: true,
    };
    let key = call.allocate(request)?;
    to.set(call.host_address(key))
}

fn allocate_device(call: &mut Call, to: Out<DeviceAddress>, bytes: usize) -> Outcome {
    to.check()?;
    let request =
        Request { place: Place::Device, bytes, portable: true, mapped: true, coherent: true };
    let key = call.allocate(request)?;
    to.set(key as u64)
}

fn end_capture(call: &mut Call, stream: Handle, graph: Out<Handle>) -> Outcome {
    graph.check()?;
    let ended = call.end_capture(stream);
    // A broken capture has a null graph.
    graph.set(*ended.as_ref().unwrap_or(&0))?;
    ended.map(|_| ())
}

fn status_text(code: i32, to: Out<*const c_char>, words: bool) -> Outcome {
    to.check()?;
    match status::text(code) {
        Some((name, text)) => to.set(if words { text } else { name }.as_ptr()),
        None => {
            to.set(std::ptr::null())?;
            Err(Refusal::InvalidValue)
        }
    }
}

entry_points! {
    fn cuInit(flags: u32) |call| call.initialize(flags);
    fn cuDriverGetVersion(version: Out<i32>) |call| version.set(call.driver_version());
    fn cuGetErrorName(code: i32, text: Out<*const c_char>) |_call| status_text(code, text, false);
    fn cuGetErrorString(code: i32, text: Out<*const c_char>) |_call| status_text(code, text, true);

    fn cuDeviceGetCount(count: Out<i32>) |call| ready(call, |call| count.set(call.device_count()));
    fn cuDeviceGet(device: Out<i32>, ordinal: i32) |call| ready(call, |call| {
        device.check()?;
        device.set(call.device(ordinal)?)
    });
    fn cuDeviceGetName(name: Out<u8>, len: i32, device: i32) |call| ready(call, |call| {
        let device = call.device(device)?;
        name.fill(format!("Test device {device}").as_bytes(), 0, len)
    });
    fn cuDeviceGetAttribute(value: Out<i32>, attribute: i32, device: i32) |call| ready(call, |call| {
        value.check()?;
        value.set(call.device_attribute(device, attribute)?)
    });

    fn cuDevicePrimaryCtxRetain(context: Out<Handle>, device: i32) |call| ready(call, |call| {
        context.check()?;
        context.set(call.retain_primary(device)?)
    });
    fn cuDevicePrimaryCtxRelease_v2(device: i32) |call| ready(call, |call| {
        call.release_primary(device)
    });
    fn cuCtxCreate_v2(context: Out<Handle>, _flags: u32, device: i32) |call| ready(call, |call| {
        context.check()?;
        context.set(call.create_context(device)?)
    });
    fn cuCtxDestroy_v2(context: Handle) |call| ready(call, |call| call.destroy_context(context));
    fn cuCtxGetCurrent(context: Out<Handle>) |call| ready(call, |call| {
        context.set(call.current_or_none())
    });
    fn cuCtxSetCurrent(context: Handle) |call| ready(call, |call| call.set_context(context));
    fn cuCtxPushCurrent_v2(context: Handle) |call| ready(call, |call| call.push_context(context));
    fn cuCtxPopCurrent_v2(context: Out<Handle>) |call| ready(call, |call| {
        let popped = call.pop_context()?;
        // The vendor's driver takes a null pointer here.
        if context.check().is_ok() { context.set(popped) } else { Ok(()) }
    });
    fn cuCtxGetDevice(device: Out<i32>) |call| ready(call, |call| {
        device.check()?;
        device.set(call.current_device()?)
    });
    fn cuCtxGetId(context: Handle, id: Out<u64>) |call| ready(call, |call| {
        id.check()?;
        id.set(call.context_id(context)?)
    });
    fn cuDevicePrimaryCtxReset_v2(device: i32) |call| ready(call, |call| {
        call.reset_primary(device)
    });
    fn cuCtxSynchronize() |call| ready(call, Call::synchronize_context);

    fn cuMemHostAlloc(to: Out<HostAddress>, bytes: usize, flags: u32) |call| ready(call, |call| {
        allocate_host(call, to, bytes, flags)
    });
    fn cuMemFreeHost(at: HostAddress) |call| ready(call, |call| {
        call.free(Place::Host, at.addr())
    });
    fn cuMemHostGetDevicePointer_v2(
        to: Out<DeviceAddress>, at: HostAddress, flags: u32
    ) |call| ready(call, |call| {
        to.check()?;
        flags_at_most(flags, 0)?;
        to.set(call.device_address(at)? as u64)
    });
    fn cuMemAlloc_v2(to: Out<DeviceAddress>, bytes: usize) |call| ready(call, |call| {
        allocate_device(call, to, bytes)
    });
    fn cuMemFree_v2(at: DeviceAddress) |call| ready(call, |call| {
        call.free(Place::Device, address(at)?)
    });
    fn cuMemcpyDtoHAsync_v2(
        to: HostAddress, from: DeviceAddress, bytes: usize, stream: Handle
    ) |call| ready(call, |call| call.copy_to_host(stream, to, address(from)?, bytes));
    fn cuMemcpyHtoDAsync_v2(
        to: DeviceAddress, from: HostAddress, bytes: usize, stream: Handle
    ) |call| ready(call, |call| call.copy_to_device(stream, address(to)?, from, bytes));
    fn cuMemsetD8Async(
        at: DeviceAddress, value: u8, bytes: usize, stream: Handle
    ) |call| ready(call, |call| call.fill(stream, address(at)?, value, bytes));

    fn cuStreamCreate(stream: Out<Handle>, flags: u32) |call| ready(call, |call| {
        stream.check()?;
        flags_at_most(flags, 1)?;
        stream.set(call.create_stream(flags == 1)?)
    });
    fn cuStreamDestroy_v2(stream: Handle) |call| ready(call, |call| call.destroy_stream(stream));
    fn cuStreamQuery(stream: Handle) |call| ready(call, |call| call.query_stream(stream));
    fn cuStreamSynchronize(stream: Handle) |call| ready(call, |call| {
        call.synchronize_stream(stream)
    });
    fn cuStreamGetCtx(stream: Handle, context: Out<Handle>) |call| ready(call, |call| {
        context.check()?;
        context.set(call.stream_context(stream)?)
    });
    fn cuStreamWaitEvent(stream: Handle, event: Handle, flags: u32) |call| ready(call, |call| {
        flags_at_most(flags, 1)?;
        call.wait_event(stream, event)
    });
    fn cuLaunchHostFunc(
        stream: Handle, function: HostFunction, data: HostData
    ) |call| ready(call, |call| call.launch_host(stream, function, data));

    fn cuStreamIsCapturing(stream: Handle, status: Out<CaptureStatus>) |call| ready(call, |call| {
        status.check()?;
        status.set(call.capture_status(stream)?)
    });
    fn cuStreamBeginCapture_v2(stream: Handle, mode: i32) |call| ready(call, |call| {
        call.begin_capture(stream, mode)
    });
    fn cuStreamEndCapture(stream: Handle, graph: Out<Handle>) |call| ready(call, |call| {
        end_capture(call, stream, graph)
    });
    fn cuGraphDestroy(graph: Handle) |call| ready(call, |call| call.destroy_graph(graph));
    // It is the thread's own and needs no initialising call: so the vendor's library answers.
    fn cuThreadExchangeStreamCaptureMode(mode: Out<i32>) |call| {
        let before = call.exchange_mode(mode.get()?)?;
        mode.set(before)
    };

    fn cuStreamWriteValue32(
        stream: Handle, at: DeviceAddress, value: u32, flags: u32
    ) |call| write(call, stream, at, Value::Word32(value), flags, true);
    fn cuStreamWriteValue32_v2(
        stream: Handle, at: DeviceAddress, value: u32, flags: u32
    ) |call| write(call, stream, at, Value::Word32(value), flags, false);
    fn cuStreamWriteValue64(
        stream: Handle, at: DeviceAddress, value: u64, flags: u32
    ) |call| write(call, stream, at, Value::Word64(value), flags, true);
    fn cuStreamWriteValue64_v2(
        stream: Handle, at: DeviceAddress, value: u64, flags: u32
    ) |call| write(call, stream, at, Value::Word64(value), flags, false);
    fn cuStreamBatchMemOp(
        stream: Handle, count: u32, operations: Out<Params>, flags: u32
    ) |call| batch(call, stream, count, operations, flags, true);
    fn cuStreamBatchMemOp_v2(
        stream: Handle, count: u32, operations: Out<Params>, flags: u32
    ) |call| batch(call, stream, count, operations, flags, false);

    fn cuEventCreate(event: Out<Handle>, flags: u32) |call| ready(call, |call| {
        event.check()?;
        flags_at_most(flags, 7)?;
        event.set(call.create_event(flags)?)
    });
    fn cuEventDestroy_v2(event: Handle) |call| ready(call, |call| call.destroy_event(event));
    fn cuEventRecord(event: Handle, stream: Handle) |call| ready(call, |call| {
        call.record_event(event, stream)
    });
    fn cuEventQuery(event: Handle) |call| ready(call, |call| call.query_event(event));
    fn cuEventSynchronize(event: Handle) |call| ready(call, |call| call.synchronize_event(event));
}
