//! `CUstreamBatchMemOpParams`: the union that a batch of memory operations is an array of.

use driver_core::memory::Value;
use driver_core::{Outcome, Refusal};

/// `CUstreamMemOpWriteValueParams_st`
#[repr(C)]
#[derive(Clone, Copy)]
pub struct WriteValue {
    /// [`WRITE_VALUE_32`](BatchMemOp::WRITE_VALUE_32) or [`WRITE_VALUE_64`](BatchMemOp::WRITE_VALUE_64).
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
pub struct MemoryBarrier {
    /// [`BARRIER`](BatchMemOp::BARRIER)
    pub operation: u32,
    /// `CUstreamMemoryBarrier_flags`
    pub flags: u32,
}

/// `CUstreamBatchMemOpParams_v1`
#[repr(C)]
#[derive(Clone, Copy)]
pub union BatchMemOp {
    /// `CUstreamBatchMemOpType`, whatever the rest is.
    pub operation: u32,
    /// A store.
    pub write_value: WriteValue,
    /// A barrier.
    pub barrier: MemoryBarrier,
    /// The size of it all.
    pub pad: [u64; 6],
}

impl BatchMemOp {
    /// `CU_STREAM_MEM_OP_WRITE_VALUE_32`
    pub const WRITE_VALUE_32: u32 = 2;
    /// `CU_STREAM_MEM_OP_WRITE_VALUE_64`
    pub const WRITE_VALUE_64: u32 = 5;
    /// `CU_STREAM_MEM_OP_BARRIER`
    pub const BARRIER: u32 = 6;
    /// A batch must be shorter: `cuStreamBatchMemOp`.
    pub const MOST: u32 = 256;

    /// The store that this is; none for a barrier, since all stores here are ordered.
    pub(crate) fn store(&self) -> Outcome<Option<(usize, Value)>> {
        // SAFETY: the first field of every variant, as the header lays them out.
        match unsafe { self.operation } {
            kind @ (Self::WRITE_VALUE_32 | Self::WRITE_VALUE_64) => {
                // SAFETY: the caller says by `operation` that it has filled in this variant, whose
                // fields are plain numbers.
                let write = unsafe { self.write_value };
                let at = usize::try_from(write.address).map_err(|_| Refusal::InvalidValue)?;
                check_flags(write.flags)?;
                let value = match kind {
                    Self::WRITE_VALUE_32 => Value::Word32(write.value as u32),
                    _ => Value::Word64(write.value),
                };
                Ok(Some((at, value)))
            }
            Self::BARRIER => Ok(None),
            // Waits and flushes: no test needs them.
            _ => Err(Refusal::NotSupported),
        }
    }
}

/// `CU_STREAM_WRITE_VALUE_DEFAULT` and `CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER` are known.
pub(crate) fn check_flags(flags: u32) -> Outcome {
    if flags <= 1 { Ok(()) } else { Err(Refusal::InvalidValue) }
}
