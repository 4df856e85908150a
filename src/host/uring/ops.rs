//! What each operation holds, asks of the kernel, and resolves to.

use super::buffer::{IoBuf, IoBufMut};
use super::op::Operation;
use super::request::Request;
use crate::core::time::MonoNs;
use alloc::{boxed::Box, sync::Arc};
use io_uring::{opcode, types};
use rustix::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{SocketAddrAny, SocketFlags};
use std::io;

/// The kernel's number for "at the position of the file".
pub(super) const AT_POSITION: u64 = u64::MAX;

fn result(result: i32) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::from_raw_os_error(-result))
}

fn fd(owner: &Arc<OwnedFd>) -> types::Fd {
    types::Fd(owner.as_raw_fd())
}

/// As many bytes as one operation can be asked for: the kernel does less than 2^31 at a time.
fn length(bytes: usize) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

/// Appends what was read to the buffer.
fn filled<B: IoBufMut>(mut buffer: B, read: i32) -> (io::Result<usize>, B) {
    let read = result(read);
    if let Ok(count) = read {
        // SAFETY: `spare` was called for the request and the buffer was with the operation since; the
        // kernel says that it has written so many bytes from the beginning of that slice.
        unsafe { buffer.advance(count) };
    }
    (read, buffer)
}

/// See [`UringHandle::read`](super::UringHandle::read).
#[derive(Debug)]
pub struct Read<B> {
    pub(super) fd: Arc<OwnedFd>,
    pub(super) offset: u64,
    pub(super) buffer: B,
}

// SAFETY: the descriptor is kept open; `IoBufMut` answers for the buffer.
unsafe impl<B: IoBufMut> Operation for Read<B> {
    type Output = (io::Result<usize>, B);

    fn request(&mut self) -> Request {
        let spare = self.buffer.spare();
        let entry = opcode::Read::new(fd(&self.fd), spare.as_mut_ptr().cast(), length(spare.len()));
        Request::Entry(entry.offset(self.offset).build())
    }

    fn output(self, result: i32) -> Self::Output {
        filled(self.buffer, result)
    }
}

/// See [`UringHandle::recv`](super::UringHandle::recv).
#[derive(Debug)]
pub struct Recv<B> {
    pub(super) fd: Arc<OwnedFd>,
    pub(super) buffer: B,
}

// SAFETY: the descriptor is kept open; `IoBufMut` answers for the buffer.
unsafe impl<B: IoBufMut> Operation for Recv<B> {
    type Output = (io::Result<usize>, B);

    fn request(&mut self) -> Request {
        let spare = self.buffer.spare();
        let entry = opcode::Recv::new(fd(&self.fd), spare.as_mut_ptr().cast(), length(spare.len()));
        Request::Entry(entry.build())
    }

    fn output(self, result: i32) -> Self::Output {
        filled(self.buffer, result)
    }
}

/// See [`UringHandle::write`](super::UringHandle::write).
#[derive(Debug)]
pub struct Write<B> {
    pub(super) fd: Arc<OwnedFd>,
    pub(super) offset: u64,
    pub(super) buffer: B,
    /// How many bytes of the buffer were written before.
    pub(super) from: usize,
}

// SAFETY: the descriptor is kept open; `IoBuf` answers for the buffer.
unsafe impl<B: IoBuf> Operation for Write<B> {
    type Output = (io::Result<usize>, B);

    fn request(&mut self) -> Request {
        let bytes = &self.buffer.bytes()[self.from..];
        let entry = opcode::Write::new(fd(&self.fd), bytes.as_ptr(), length(bytes.len()));
        Request::Entry(entry.offset(self.offset).build())
    }

    fn output(self, written: i32) -> Self::Output {
        (result(written), self.buffer)
    }
}

/// See [`UringHandle::send`](super::UringHandle::send).
#[derive(Debug)]
pub struct Send<B> {
    pub(super) fd: Arc<OwnedFd>,
    pub(super) buffer: B,
    /// How many bytes of the buffer were sent before.
    pub(super) from: usize,
}

// SAFETY: the descriptor is kept open; `IoBuf` answers for the buffer.
unsafe impl<B: IoBuf> Operation for Send<B> {
    type Output = (io::Result<usize>, B);

    fn request(&mut self) -> Request {
        let bytes = &self.buffer.bytes()[self.from..];
        let entry = opcode::Send::new(fd(&self.fd), bytes.as_ptr(), length(bytes.len()));
        Request::Entry(entry.build())
    }

    fn output(self, sent: i32) -> Self::Output {
        (result(sent), self.buffer)
    }
}

/// See [`UringHandle::accept`](super::UringHandle::accept).
#[derive(Debug)]
pub struct Accept {
    pub(super) fd: Arc<OwnedFd>,
}

// SAFETY: the descriptor is kept open; no memory is referred to.
unsafe impl Operation for Accept {
    type Output = io::Result<OwnedFd>;

    fn request(&mut self) -> Request {
        let nobody = core::ptr::null_mut;
        let entry = opcode::Accept::new(fd(&self.fd), nobody(), core::ptr::null_mut());
        Request::Entry(entry.flags(SocketFlags::CLOEXEC.bits() as i32).build())
    }

    fn output(self, accepted: i32) -> Self::Output {
        result(accepted)?;
        // SAFETY: the kernel made this descriptor for this operation, and nobody else knows it. An
        // orphan comes here too, and closes it.
        Ok(unsafe { OwnedFd::from_raw_fd(accepted) })
    }
}

/// See [`UringHandle::connect`](super::UringHandle::connect).
#[derive(Debug)]
pub struct Connect {
    pub(super) fd: Arc<OwnedFd>,
    /// At an address of its own.
    pub(super) address: Box<SocketAddrAny>,
}

// SAFETY: the descriptor is kept open, and the address lies in a box, where nothing writes to it.
unsafe impl Operation for Connect {
    type Output = io::Result<()>;

    fn request(&mut self) -> Request {
        let address = self.address.as_ptr().cast();
        let entry = opcode::Connect::new(fd(&self.fd), address, self.address.addr_len());
        Request::Entry(entry.build())
    }

    fn output(self, connected: i32) -> Self::Output {
        result(connected).map(drop)
    }
}

/// See [`UringHandle::close`](super::UringHandle::close).
#[derive(Debug)]
pub struct Close {
    /// Closed by the kernel, unless the operation was cancelled before it began.
    pub(super) fd: OwnedFd,
}

// SAFETY: the descriptor is open until the kernel closes it; no memory is referred to.
unsafe impl Operation for Close {
    type Output = io::Result<()>;

    fn request(&mut self) -> Request {
        Request::Entry(opcode::Close::new(types::Fd(self.fd.as_raw_fd())).build())
    }

    fn output(self, closed: i32) -> Self::Output {
        if closed != -Errno::CANCELED.raw_os_error() {
            // Closed, also where there was an error: it is nobody's, or another one's, by now.
            let _ = self.fd.into_raw_fd();
        }
        result(closed).map(drop)
    }
}

/// See [`UringHandle::timeout`](super::UringHandle::timeout).
#[derive(Debug)]
pub struct Timeout {
    pub(super) at: MonoNs,
}

// SAFETY: the ring copies the instant to a place of its own.
unsafe impl Operation for Timeout {
    type Output = io::Result<()>;

    fn request(&mut self) -> Request {
        Request::Timeout(self.at)
    }

    fn output(self, ended: i32) -> Self::Output {
        match ended == -Errno::TIME.raw_os_error() {
            true => Ok(()),
            false => result(ended).map(drop),
        }
    }
}

/// See [`UringHandle::nop`](super::UringHandle::nop).
#[derive(Debug)]
pub struct Nop;

// SAFETY: no memory and no descriptor is referred to.
unsafe impl Operation for Nop {
    type Output = io::Result<()>;

    fn request(&mut self) -> Request {
        Request::Entry(opcode::Nop::new().build())
    }

    fn output(self, ended: i32) -> Self::Output {
        result(ended).map(drop)
    }
}
