//! What each operation holds, asks of the kernel, and resolves to.

use super::buffer::{IoBuf, IoBufMut, Room};
use super::ended::Ended;
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

fn fd(owner: &Arc<OwnedFd>) -> types::Fd {
    types::Fd(owner.as_raw_fd())
}

/// As many bytes as one operation can be asked for: the kernel does less than 2^31 at a time.
fn length(bytes: usize) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

/// How many bytes the kernel has read or written.
fn count(ended: Ended) -> io::Result<usize> {
    // 32 bits fit: the crate's rings are for processors of 64.
    ended.result().map(|count| count as usize)
}

/// A buffer that is read into, and the place in it.
#[derive(Debug)]
pub(super) struct Target<B> {
    buffer: B,
    /// Bytes are appended, so that the buffer is to be told of them.
    appends: bool,
}

impl<B: IoBufMut> Target<B> {
    pub(super) fn new(buffer: B) -> Self {
        Target { buffer, appends: false }
    }

    /// Where to write, and how much at the most.
    fn place(&mut self) -> Result<(*mut u8, u32), Ended> {
        let room = Room::of(&mut self.buffer).ok_or(Ended::NoRoom)?;
        self.appends = matches!(room, Room::Spare(_));
        Ok(match room {
            Room::Spare(spare) => (spare.as_mut_ptr().cast(), length(spare.len())),
            Room::Contents(bytes) => (bytes.as_mut_ptr(), length(bytes.len())),
        })
    }

    /// Gives the buffer back, with what was read.
    fn filled(mut self, ended: Ended) -> (io::Result<usize>, B) {
        let read = count(ended);
        if let (Ok(count), true) = (&read, self.appends) {
            // SAFETY: `spare` was called for the request and the buffer was with the operation since;
            // the kernel answered that it has written so many bytes from the beginning of that slice.
            unsafe { self.buffer.advance(*count) };
        }
        (read, self.buffer)
    }
}

/// See [`UringHandle::read`](super::UringHandle::read).
#[derive(Debug)]
pub struct Read<B> {
    pub(super) fd: Arc<OwnedFd>,
    pub(super) offset: u64,
    pub(super) target: Target<B>,
}

// SAFETY: the descriptor is kept open; `IoBufMut` answers for the buffer.
unsafe impl<B: IoBufMut> Operation for Read<B> {
    type Output = (io::Result<usize>, B);

    fn request(&mut self) -> Result<Request, Ended> {
        let (place, length) = self.target.place()?;
        let entry = opcode::Read::new(fd(&self.fd), place, length);
        Ok(Request::Entry(entry.offset(self.offset).build()))
    }

    fn output(self, ended: Ended) -> Self::Output {
        self.target.filled(ended)
    }
}

/// See [`UringHandle::recv`](super::UringHandle::recv).
#[derive(Debug)]
pub struct Recv<B> {
    pub(super) fd: Arc<OwnedFd>,
    pub(super) target: Target<B>,
}

// SAFETY: the descriptor is kept open; `IoBufMut` answers for the buffer.
unsafe impl<B: IoBufMut> Operation for Recv<B> {
    type Output = (io::Result<usize>, B);

    fn request(&mut self) -> Result<Request, Ended> {
        let (place, length) = self.target.place()?;
        let entry = opcode::Recv::new(fd(&self.fd), place, length);
        Ok(Request::Entry(entry.build()))
    }

    fn output(self, ended: Ended) -> Self::Output {
        self.target.filled(ended)
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

    fn request(&mut self) -> Result<Request, Ended> {
        let bytes = &self.buffer.bytes()[self.from..];
        let entry = opcode::Write::new(fd(&self.fd), bytes.as_ptr(), length(bytes.len()));
        Ok(Request::Entry(entry.offset(self.offset).build()))
    }

    fn output(self, ended: Ended) -> Self::Output {
        (count(ended), self.buffer)
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

    fn request(&mut self) -> Result<Request, Ended> {
        let bytes = &self.buffer.bytes()[self.from..];
        let entry = opcode::Send::new(fd(&self.fd), bytes.as_ptr(), length(bytes.len()));
        Ok(Request::Entry(entry.build()))
    }

    fn output(self, ended: Ended) -> Self::Output {
        (count(ended), self.buffer)
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

    fn request(&mut self) -> Result<Request, Ended> {
        let nobody = core::ptr::null_mut;
        let entry = opcode::Accept::new(fd(&self.fd), nobody(), core::ptr::null_mut());
        Ok(Request::Entry(entry.flags(SocketFlags::CLOEXEC.bits() as i32).build()))
    }

    fn output(self, ended: Ended) -> Self::Output {
        let accepted = ended.result()?;
        // SAFETY: the kernel made this descriptor for this operation, and nobody else knows it. An
        // orphan comes here too, and closes it.
        Ok(unsafe { OwnedFd::from_raw_fd(accepted as i32) })
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

    fn request(&mut self) -> Result<Request, Ended> {
        let address = self.address.as_ptr().cast();
        let entry = opcode::Connect::new(fd(&self.fd), address, self.address.addr_len());
        Ok(Request::Entry(entry.build()))
    }

    fn output(self, ended: Ended) -> Self::Output {
        ended.result().map(drop)
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

    fn request(&mut self) -> Result<Request, Ended> {
        Ok(Request::Entry(opcode::Close::new(types::Fd(self.fd.as_raw_fd())).build()))
    }

    fn output(self, ended: Ended) -> Self::Output {
        let untouched = Ended::Kernel(-Errno::CANCELED.raw_os_error());
        if matches!(ended, Ended::Kernel(_) | Ended::Lost(_)) && ended != untouched {
            // Closed, also where there was an error: it is nobody's, or another one's, by now. With a
            // lost ring nobody knows: kept open at the worst.
            let _ = self.fd.into_raw_fd();
        }
        ended.result().map(drop)
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

    fn request(&mut self) -> Result<Request, Ended> {
        Ok(Request::Timeout(self.at))
    }

    fn output(self, ended: Ended) -> Self::Output {
        match ended == Ended::Kernel(-Errno::TIME.raw_os_error()) {
            true => Ok(()),
            false => ended.result().map(drop),
        }
    }
}

/// See [`UringHandle::nop`](super::UringHandle::nop).
#[derive(Debug)]
pub struct Nop;

// SAFETY: no memory and no descriptor is referred to.
unsafe impl Operation for Nop {
    type Output = io::Result<()>;

    fn request(&mut self) -> Result<Request, Ended> {
        Ok(Request::Entry(opcode::Nop::new().build()))
    }

    fn output(self, ended: Ended) -> Self::Output {
        ended.result().map(drop)
    }
}
