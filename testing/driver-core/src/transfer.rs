//! Memory as the entry points see it: allocating, freeing, stores, copies.

use crate::abi::HostAddress;
use crate::driver::Call;
use crate::memory::{self, AWAY, Place, Request, Value};
use crate::refusal::{Outcome, Refusal};
use crate::state::State;
use crate::work::{Bytes, Op};
use std::sync::atomic::Ordering;

impl State {
    fn is_unified(&self, device: i32) -> bool {
        self.attribute(device, self.rules.unified) == Ok(1)
    }

    /// Frees a piece, and logs stores that are still to come.
    pub(crate) fn quarantine(&mut self, key: usize) {
        let piece = self.memory.piece(key).expect("found by the caller");
        let pending = piece.pending.load(Ordering::Acquire);
        let place = piece.request.place;
        if pending > 0 {
            self.log(format!("{place:?} memory was freed under {pending} pending store(s)"));
        }
        self.memory.free(key);
    }

    /// The piece at a device address, for use by a stream of `context`.
    fn on_device(&mut self, context: u64, at: usize, bytes: usize) -> Outcome<usize> {
        let Some((key, piece)) = self.memory.on_device(at, bytes) else {
            return Err(Refusal::InvalidValue);
        };
        let (freed, owner, request) = (piece.freed, piece.context, piece.request);
        if freed {
            self.log("freed memory was named in a call");
            return Err(Refusal::InvalidValue);
        }
        let device = self.contexts[&context].device;
        let reachable = owner == context || request.portable || self.is_unified(device);
        let mapped = request.mapped || self.is_unified(device);
        if reachable && mapped { Ok(key) } else { Err(Refusal::InvalidValue) }
    }
}

impl Call {
    /// Allocates memory in the current context and returns the device's address.
    ///
    /// # Errors
    ///
    /// No bytes, no memory, a sticky fault, or that a capture forbids it.
    pub fn allocate(&mut self, request: Request) -> Outcome<usize> {
        let context = self.sound_current()?;
        self.guard()?;
        let unified = self.is_unified(self.contexts[&context].device);
        self.memory.allocate(context, request, unified)
    }

    /// The host's address of memory that was just allocated.
    #[must_use]
    pub fn host_address(&self, key: usize) -> HostAddress {
        self.memory.host_of(key)
    }

    /// The device's address of mapped host memory.
    ///
    /// # Errors
    ///
    /// That this is none.
    pub fn device_address(&mut self, host: HostAddress) -> Outcome<usize> {
        let context = self.sound_current()?;
        let Some((_, piece)) = self.memory.on_host(host.addr(), 1) else {
            return Err(Refusal::InvalidValue);
        };
        let (freed, request, owner) = (piece.freed, piece.request, piece.context);
        if freed {
            self.log("freed memory was named in a call");
            return Err(Refusal::InvalidValue);
        }
        let unified = self.is_unified(self.contexts[&context].device);
        let reachable = unified || (request.mapped && (request.portable || owner == context));
        if !reachable {
            return Err(Refusal::InvalidValue);
        }
        Ok(if unified { host.addr() } else { host.addr() + AWAY })
    }

    /// Frees host memory, by its host address, or device memory, by its device address, once
    /// everything in the current context is over.
    ///
    /// # Errors
    ///
    /// That nothing begins there, a sticky fault, or that a capture forbids it.
    pub fn free(&mut self, place: Place, at: usize) -> Outcome {
        let context = self.sound_current()?;
        self.guard()?;
        let found = match place {
            Place::Host => self.memory.on_host(at, 1),
            Place::Device => self.memory.on_device(at, 1),
        };
        let found = found.filter(|(_, piece)| piece.request.place == place);
        let Some((key, piece)) = found else { return Err(Refusal::InvalidValue) };
        let (freed, owner) = (piece.freed, piece.context);
        let pending = piece.pending.load(Ordering::Acquire);
        let begins = match place {
            Place::Host => self.memory.host_of(key).addr() == at,
            Place::Device => key == at,
        };
        if freed {
            self.log(format!("{place:?} memory was freed twice"));
        }
        if freed || !begins {
            return Err(Refusal::InvalidValue);
        }
        if pending > 0 {
            // Waited for below, but no program may count on that.
            self.log(format!("{place:?} memory was freed under {pending} pending store(s)"));
        }
        self.settle(context)?;
        if owner != context {
            self.settle(owner)?;
        }
        if !self.memory.is_live(key) {
            self.log(format!("{place:?} memory was freed by two threads"));
            return Err(Refusal::InvalidValue);
        }
        self.memory.free(key);
        Ok(())
    }

    /// Queues stores behind what a stream does, in their order, nothing in between.
    ///
    /// # Errors
    ///
    /// An address that the device cannot write, or that is not aligned, a sticky fault, a broken
    /// capture.
    pub fn store(&mut self, stream: u64, stores: &[(usize, Value)]) -> Outcome {
        let stream = self.stream(stream)?;
        let context = self.streams[&stream].context;
        let mut keys = Vec::new();
        for &(at, value) in stores {
            if at % value.bytes() != 0 {
                return Err(Refusal::InvalidValue);
            }
            keys.push(self.on_device(context, at, value.bytes())?);
        }
        let recorded = self.capture_of(stream)?.is_some();
        let ops = stores.iter().zip(keys).map(|(&(at, value), key)| {
            let to = self.memory.target(key, at);
            // A recorded store does not happen, so nothing can go wrong with it.
            let fate = if recorded { Default::default() } else { self.injections.next_fate() };
            Op::Store { to, value, fate }
        });
        let ops = ops.collect();
        self.enqueue(stream, ops)?;
        Ok(())
    }

    /// Queues a copy from the device to the host. Into memory that is not page-locked it returns
    /// once the copy is over.
    ///
    /// # Errors
    ///
    /// An address that is not the device's, a sticky fault, a broken capture.
    pub fn copy_to_host(
        &mut self,
        stream: u64,
        to: HostAddress,
        from: usize,
        len: usize,
    ) -> Outcome {
        let stream = self.stream(stream)?;
        let context = self.streams[&stream].context;
        if len == 0 {
            return Ok(());
        }
        let key = self.on_device(context, from, len)?;
        let locked = self.on_host(to, len)?;
        let from = Bytes::Piece(self.memory.target(key, from));
        let pageable = matches!(locked, Bytes::Program(_));
        let end = self.enqueue(stream, vec![Op::Copy { from, to: locked, len }])?;
        match end {
            Some(end) if pageable => self.settle_point(context, end),
            _ => Ok(()),
        }
    }

    /// Queues a copy from the host to the device. Memory that is not page-locked is read before it
    /// returns.
    ///
    /// # Errors
    ///
    /// An address that is not the device's, a sticky fault, a broken capture.
    pub fn copy_to_device(
        &mut self,
        stream: u64,
        to: usize,
        from: HostAddress,
        len: usize,
    ) -> Outcome {
        let stream = self.stream(stream)?;
        let context = self.streams[&stream].context;
        if len == 0 {
            return Ok(());
        }
        let key = self.on_device(context, to, len)?;
        let from = match self.on_host(from, len)? {
            Bytes::Program(from) => Bytes::Taken(memory::read(from, len)),
            locked => locked,
        };
        let to = Bytes::Piece(self.memory.target(key, to));
        self.enqueue(stream, vec![Op::Copy { from, to, len }])?;
        Ok(())
    }

    /// Queues a fill of device memory.
    ///
    /// # Errors
    ///
    /// An address that is not the device's, a sticky fault, a broken capture.
    pub fn fill(&mut self, stream: u64, at: usize, value: u8, len: usize) -> Outcome {
        let stream = self.stream(stream)?;
        let context = self.streams[&stream].context;
        if len == 0 {
            return Ok(());
        }
        let key = self.on_device(context, at, len)?;
        let to = self.memory.target(key, at);
        self.enqueue(stream, vec![Op::Fill { to, value, len }])?;
        Ok(())
    }

    /// What a host address names: page-locked memory, or the program's own.
    fn on_host(&mut self, at: HostAddress, len: usize) -> Outcome<Bytes> {
        if at.addr() == 0 {
            return Err(Refusal::InvalidValue);
        }
        let found = self.memory.on_host(at.addr(), len).map(|(key, piece)| (key, piece.freed));
        match found {
            // Begins in page-locked memory and ends behind it.
            None if self.memory.on_host(at.addr(), 1).is_some() => Err(Refusal::InvalidValue),
            None => Ok(Bytes::Program(at)),
            Some((_, true)) => {
                self.log("freed memory was named in a call");
                Err(Refusal::InvalidValue)
            }
            Some((key, false)) => {
                let offset = at.addr() - self.memory.host_of(key).addr();
                Ok(Bytes::Piece(self.memory.target(key, key + offset)))
            }
        }
    }
}
