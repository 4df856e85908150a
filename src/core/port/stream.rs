//! What a vendor's stream can do, and nothing about waiting.

use crate::core::error::Result;
use crate::core::line::{CompletionLine, SharedLine, Slot};
use alloc::{boxed::Box, rc::Rc, sync::Arc};

/// A stream of a device: an in-order queue of work.
///
/// A backend implements this once; [`ThreadPort`](crate::ThreadPort) and
/// [`ReactorPort`](crate::ReactorPort) do the waiting. Methods take `&self`; the trait is
/// dyn-compatible.
///
/// The stream owns the numbers of its slot. After a sticky error every status method answers with
/// that error, whether or not a word was stored.
pub trait DeviceStream {
    /// The line of this stream's slot, which lives as long as somebody uses it.
    fn line(&self) -> &SharedLine;

    /// The slot that this stream stores into.
    fn slot(&self) -> Slot;

    /// A number that streams of one device have in common and streams of two devices do not: an
    /// address of something that lives as long as the stream. If a status call of one stream hangs, a
    /// watcher leaves the other streams of the same device alone. Default: the address of its line,
    /// as if each line were of a device of its own.
    fn device_key(&self) -> usize {
        let line: &CompletionLine = (**self.line()).as_ref();
        core::ptr::from_ref(line).addr()
    }

    /// The status of everything queued so far: `true` once done.
    ///
    /// # Errors
    ///
    /// The device's status, where it is neither done nor pending.
    fn query(&self) -> Result<bool>;

    /// Blocks the thread until everything queued so far is done.
    ///
    /// # Errors
    ///
    /// The device's status, where it is neither done nor pending.
    fn synchronize(&self) -> Result<()>;

    /// Refuses a poll of everything queued that could not end by itself, for example while the
    /// stream is being captured into a graph and so stays pending. Asked once before such a poll.
    /// Provided: refuses none.
    ///
    /// # Errors
    ///
    /// Why, or the device's status.
    fn check_poll(&self) -> Result<()> {
        Ok(())
    }

    /// Queues, behind everything queued so far, the store of the next number into the slot, then a
    /// ring of the doorbell this stream is bound to, if any, and a mark that
    /// [`query_mark`](Self::query_mark) can ask about. Returns the number.
    ///
    /// # Errors
    ///
    /// The device's status; nothing was queued then that a wait could rely on.
    fn mark(&self) -> Result<u64>;

    /// The status of what was queued before the mark of `number`, and of nothing after it.
    ///
    /// # Errors
    ///
    /// The device's status, or [`NeverIssued`](crate::ErrorCode::NeverIssued).
    fn query_mark(&self, number: u64) -> Result<bool>;

    /// Blocks the thread until what was queued before the mark of `number` is done.
    ///
    /// # Errors
    ///
    /// The device's status, or [`NeverIssued`](crate::ErrorCode::NeverIssued).
    fn synchronize_mark(&self, number: u64) -> Result<()>;
}

/// Makes a stream of what holds one: every method is that of `$inner`, the provided ones too.
macro_rules! forward_stream {
    ($self:ident: impl[$($generics:tt)*] $stream:ty => $inner:expr) => {
        impl<$($generics)*> $crate::core::port::DeviceStream for $stream {
            fn line(&$self) -> &$crate::core::line::SharedLine {
                $inner.line()
            }

            fn slot(&$self) -> $crate::core::line::Slot {
                $inner.slot()
            }

            fn device_key(&$self) -> usize {
                $inner.device_key()
            }

            fn query(&$self) -> $crate::core::error::Result<bool> {
                $inner.query()
            }

            fn synchronize(&$self) -> $crate::core::error::Result<()> {
                $inner.synchronize()
            }

            fn check_poll(&$self) -> $crate::core::error::Result<()> {
                $inner.check_poll()
            }

            fn mark(&$self) -> $crate::core::error::Result<u64> {
                $inner.mark()
            }

            fn query_mark(&$self, number: u64) -> $crate::core::error::Result<bool> {
                $inner.query_mark(number)
            }

            fn synchronize_mark(&$self, number: u64) -> $crate::core::error::Result<()> {
                $inner.synchronize_mark(number)
            }
        }
    };
}
#[allow(unused_imports, reason = "whose backends are there, the features say")]
pub(crate) use forward_stream;

forward_stream!(self: impl[S: DeviceStream + ?Sized] &S => (**self));
forward_stream!(self: impl[S: DeviceStream + ?Sized] Box<S> => (**self));
forward_stream!(self: impl[S: DeviceStream + ?Sized] Rc<S> => (**self));
forward_stream!(self: impl[S: DeviceStream + ?Sized] Arc<S> => (**self));
