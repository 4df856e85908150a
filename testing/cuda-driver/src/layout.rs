//! `CUstreamBatchMemOpParams`: the union that a batch of memory operations is an array of.
//!
//! Only layout: the tests compile this file as well.

/// `CUstreamMemOpWriteValueParams_st`
#[repr(C)]
#[derive(Clone, Copy)]
pub struct WriteValueParams {
    /// [`WRITE_VALUE_32`](Params::WRITE_VALUE_32) or [`WRITE_VALUE_64`](Params::WRITE_VALUE_64).
    pub operation: u32,
    /// A device address.
    pub address: u64,
    /// `value64`; `value` is its lower half.
    pub value: u64,
    /// `CUstreamWriteValue_flags`
    pub flags: u32,
    /// The driver's own.
    pub alias: u64,
}

/// `CUstreamMemOpMemoryBarrierParams_st`
#[repr(C)]
#[derive(Clone, Copy)]
pub struct MemoryBarrierParams {
    /// [`BARRIER`](Params::BARRIER)
    pub operation: u32,
    /// `CUstreamMemoryBarrier_flags`
    pub flags: u32,
}

/// `CUstreamBatchMemOpParams_v1`
#[repr(C)]
#[derive(Clone, Copy)]
pub union Params {
    /// `CUstreamBatchMemOpType`, whatever the rest is.
    pub operation: u32,
    /// A store.
    pub write_value: WriteValueParams,
    /// A barrier.
    pub barrier: MemoryBarrierParams,
    /// The size of it all.
    pub pad: [u64; 6],
}

impl Params {
    /// `CU_STREAM_MEM_OP_WRITE_VALUE_32`
    pub const WRITE_VALUE_32: u32 = 2;
    /// `CU_STREAM_MEM_OP_WRITE_VALUE_64`
    pub const WRITE_VALUE_64: u32 = 5;
    /// `CU_STREAM_MEM_OP_BARRIER`
    pub const BARRIER: u32 = 6;
}
