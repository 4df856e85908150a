//! What waiting is made of: no standard library, no vendor, no runtime, no unsafe code, no statics.
#![forbid(unsafe_code)]

pub(crate) mod doorbell;
pub(crate) mod error;
pub(crate) mod estimate;
pub(crate) mod executor;
pub(crate) mod fallback;
pub(crate) mod idle;
pub(crate) mod line;
mod pace;
pub(crate) mod plan;
pub(crate) mod pool;
pub(crate) mod port;
pub(crate) mod reactor;
pub(crate) mod setting;
pub(crate) mod sync;
mod text;
pub(crate) mod time;
