//! Driving a future whose every step blocks the thread instead of pending.

use crate::core::error::{Error, ErrorCode, Result};
use core::{
    pin::pin,
    task::{Context, Poll, Waker},
};

/// Polls `future` once, for hosts whose futures finish on the first poll: a wait on a
/// [`ThreadPort`](crate::ThreadPort) with a timer that blocks. Allocates nothing.
///
/// # Errors
///
/// [`PendedInline`](ErrorCode::PendedInline) where the future is pending; it is dropped.
pub fn run_inline<F: Future>(future: F) -> Result<F::Output> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => Ok(output),
        Poll::Pending => Err(Error::plain(ErrorCode::PendedInline)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_future_that_pends_is_refused_and_dropped() {
        let error = run_inline(core::future::pending::<()>()).unwrap_err();
        assert_eq!(error.code(), ErrorCode::PendedInline);
        assert_eq!(run_inline(async { 7 }).unwrap(), 7);
    }
}
