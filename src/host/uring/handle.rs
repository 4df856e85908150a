//! What a program starts its own I/O with.

use super::buffer::{IoBuf, IoBufMut};
use super::op::Op;
use super::ops::{
    AT_POSITION, Accept, Close, Connect, Nop, Read, Recv, Send, Target, Timeout, Write,
};
use super::refusal::UringRefusal;
use super::ring::{Ring, UringStats};
use crate::core::time::MonoNs;
use alloc::{boxed::Box, rc::Rc, sync::Arc};
use core::fmt;
use core::net::SocketAddr;
use rustix::fd::OwnedFd;
use rustix::net::SocketAddrAny;
use std::io;

/// Starts operations on the ring that a thread idles in. A reference count to clone; for that thread
/// only.
///
/// Descriptors are shared with an operation while it runs (`Arc<OwnedFd>`, which
/// `OwnedFd::from(stream)` makes of the standard library's sockets and files). They are in blocking
/// mode: on one that is not, an operation ends with EAGAIN rather than waiting.
///
/// Buffers go into an operation and come back with its result. A result may be partial: the rest is
/// another operation's.
///
/// # Reading into a vector
///
/// never grows it. One rule, by whether it has spare capacity:
///
/// | the vector | the bytes go | afterwards it is |
/// |---|---|---|
/// | has spare capacity: `Vec::with_capacity(64)` | after its contents | longer by what was read |
/// | is full: `vec![0; 64]` | over its contents, from their beginning | as long as before |
/// | has no capacity: `Vec::new()` | nowhere: [`InvalidInput`](io::ErrorKind::InvalidInput) | the same |
///
/// The result says how many bytes are new.
/// So `Ok(0)` always means the end of the file, or a peer that has closed. A program that collects
/// appends to one vector, and reserves more once `len()` has come to `capacity()`.
///
/// ```
/// use gpu_async_reactor::host::Runtime;
/// use std::{io::Write, os::fd::OwnedFd, os::unix::net::UnixStream, sync::Arc};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let runtime = Runtime::new("poll", "io-uring")?;
/// // No ring on this host: `runtime.warnings()` has the reason.
/// let Some(ring) = runtime.uring().cloned() else { return Ok(()) };
/// let (mut peer, socket) = UnixStream::pair()?;
/// let socket = Arc::new(OwnedFd::from(socket));
/// runtime.block_on(async move {
///     peer.write_all(b"hello")?;
///     let (read, buffer) = ring.recv(&socket, vec![0; 64]).await;
///     assert_eq!((read?, buffer.len(), &buffer[..5]), (5, 64, &b"hello"[..]));
///
///     peer.write_all(b"hello")?;
///     let (read, buffer) = ring.recv(&socket, Vec::with_capacity(64)).await;
///     assert_eq!((read?, &buffer[..]), (5, &b"hello"[..]));
///     std::io::Result::Ok(())
/// })??;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct UringHandle {
    pub(super) ring: Rc<Ring>,
}

impl UringHandle {
    /// Reads at the file's position, or the next bytes of a pipe.
    pub fn read<B: IoBufMut>(&self, fd: &Arc<OwnedFd>, buffer: B) -> Op<Read<B>> {
        self.read_at(fd, buffer, AT_POSITION)
    }

    /// Reads at `offset` bytes from the file's beginning.
    pub fn read_at<B: IoBufMut>(&self, fd: &Arc<OwnedFd>, buffer: B, offset: u64) -> Op<Read<B>> {
        Op::new(&self.ring, Read { fd: fd.clone(), offset, target: Target::new(buffer) })
    }

    /// Writes at the file's position, or into a pipe.
    pub fn write<B: IoBuf>(&self, fd: &Arc<OwnedFd>, buffer: B) -> Op<Write<B>> {
        self.write_at(fd, buffer, AT_POSITION)
    }

    /// Writes at `offset` bytes from the file's beginning.
    pub fn write_at<B: IoBuf>(&self, fd: &Arc<OwnedFd>, buffer: B, offset: u64) -> Op<Write<B>> {
        Op::new(&self.ring, Write { fd: fd.clone(), offset, buffer, from: 0 })
    }

    /// Writes all of `buffer` into a pipe or at a file's position, by as many operations as it takes.
    /// Dropped in between, a part is written.
    pub async fn write_all<B: IoBuf>(&self, fd: &Arc<OwnedFd>, buffer: B) -> (io::Result<()>, B) {
        let write = |buffer, from| {
            Op::new(&self.ring, Write { fd: fd.clone(), offset: AT_POSITION, buffer, from })
        };
        all(buffer, write).await
    }

    /// Receives from a socket. 0 bytes: the peer has closed.
    pub fn recv<B: IoBufMut>(&self, fd: &Arc<OwnedFd>, buffer: B) -> Op<Recv<B>> {
        Op::new(&self.ring, Recv { fd: fd.clone(), target: Target::new(buffer) })
    }

    /// Sends to a socket. A closed peer is EPIPE, without a signal.
    pub fn send<B: IoBuf>(&self, fd: &Arc<OwnedFd>, buffer: B) -> Op<Send<B>> {
        Op::new(&self.ring, Send { fd: fd.clone(), buffer, from: 0 })
    }

    /// Sends all of `buffer`, by as many operations as it takes. Dropped in between, a part is sent.
    pub async fn send_all<B: IoBuf>(&self, fd: &Arc<OwnedFd>, buffer: B) -> (io::Result<()>, B) {
        all(buffer, |buffer, from| Op::new(&self.ring, Send { fd: fd.clone(), buffer, from })).await
    }

    /// Accepts a connection, as a descriptor that children do not inherit.
    pub fn accept(&self, listener: &Arc<OwnedFd>) -> Op<Accept> {
        Op::new(&self.ring, Accept { fd: listener.clone() })
    }

    /// Connects a socket.
    pub fn connect(&self, socket: &Arc<OwnedFd>, to: SocketAddr) -> Op<Connect> {
        let address = Box::new(SocketAddrAny::from(to));
        Op::new(&self.ring, Connect { fd: socket.clone(), address })
    }

    /// Closes a descriptor that nobody shares. Dropping a descriptor closes it too, within the drop;
    /// this is for where that may take long, and for its error.
    pub fn close(&self, fd: OwnedFd) -> Op<Close> {
        Op::new(&self.ring, Close { fd })
    }

    /// Resolves at `at`, told by the ring's own timer. The reactor's alarms do the same without the
    /// kernel; this one counts with a program whose tasks know only I/O.
    pub fn timeout(&self, at: MonoNs) -> Op<Timeout> {
        Op::new(&self.ring, Timeout { at })
    }

    /// Goes through the kernel and does nothing.
    pub fn nop(&self) -> Op<Nop> {
        Op::new(&self.ring, Nop)
    }

    /// Why the ring was lost, if the kernel refuses it since it was made.
    #[must_use]
    pub fn lost(&self) -> Option<UringRefusal> {
        self.ring.lost()
    }

    /// What the ring has done. A walk over the operations in flight.
    #[must_use]
    pub fn stats(&self) -> UringStats {
        self.ring.stats()
    }
}

/// Repeats an operation on what is left of a buffer.
async fn all<B: IoBuf, O>(mut buffer: B, operation: impl Fn(B, usize) -> O) -> (io::Result<()>, B)
where
    O: Future<Output = (io::Result<usize>, B)>,
{
    let mut done = 0;
    while done < buffer.bytes().len() {
        let (result, returned) = operation(buffer, done).await;
        buffer = returned;
        match result {
            Ok(0) => return (Err(io::ErrorKind::WriteZero.into()), buffer),
            Ok(count) => done += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return (Err(error), buffer),
        }
    }
    (Ok(()), buffer)
}

impl fmt::Debug for UringHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UringHandle").field("stats", &self.stats()).finish()
    }
}
