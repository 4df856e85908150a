//! What the operations of a batch ask for.

use crate::layout::Params;
use driver_core::memory::Value;
use driver_core::{Outcome, Refusal};

/// The store that this is; none for a barrier, since all stores here are ordered.
pub(crate) fn store_of(operation: &Params) -> Outcome<Option<(usize, Value)>> {
    // SAFETY: the first field of every variant, as the header lays them out.
    match unsafe { operation.operation } {
        kind @ (Params::WRITE_VALUE_32 | Params::WRITE_VALUE_64) => {
            // SAFETY: the caller says by `operation` that it has filled in this variant, whose
            // fields are plain numbers.
            let write = unsafe { operation.write_value };
            let at = usize::try_from(write.address).map_err(|_| Refusal::InvalidValue)?;
            check_flags(write.flags)?;
            let value = match kind {
                Params::WRITE_VALUE_32 => Value::Word32(write.value as u32),
                _ => Value::Word64(write.value),
            };
            Ok(Some((at, value)))
        }
        Params::BARRIER => Ok(None),
        // Waits and flushes: no test needs them.
        _ => Err(Refusal::NotSupported),
    }
}

/// `CU_STREAM_WRITE_VALUE_DEFAULT` and `CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER` are known.
pub(crate) fn check_flags(flags: u32) -> Outcome {
    if flags <= 1 { Ok(()) } else { Err(Refusal::InvalidValue) }
}
