//! The pool of events of a context: a mark takes one, and gives it back once it is done.
//!
//! An event may be given back while its last record is still on its way, or while another thread
//! asks about it: recording it again only moves the point that it stands for. Who asked about the
//! old point then hears "pending" for a point that is done, and asks again. Events are destroyed
//! when the context is closed, and only where no stream is left.

use super::calls::Interface;
use super::handle::RawEvent;
use super::home::Home;
use super::lock;
use crate::core::error::Result;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Mutex;

#[derive(Default)]
pub(super) struct Events {
    free: Mutex<Vec<RawEvent>>,
    made: AtomicUsize,
}

impl Events {
    /// An event that no mark waits for, within the context.
    pub(super) fn take<A: Interface>(&self, api: &A) -> Result<RawEvent> {
        let free = lock(&self.free).pop();
        if let Some(event) = free {
            return Ok(event);
        }
        let event = api.create_event()?;
        self.made.fetch_add(1, Ordering::Relaxed);
        Ok(event)
    }

    pub(super) fn give_back(&self, events: impl IntoIterator<Item = RawEvent>) {
        lock(&self.free).extend(events);
    }

    /// How many there are, in use or not.
    pub(super) fn made(&self) -> usize {
        self.made.load(Ordering::Relaxed)
    }

    /// Destroys the free ones.
    ///
    /// # Safety
    ///
    /// Nobody is asking about an event that was given back.
    pub(super) unsafe fn destroy_free<A: Interface>(&self, home: &Home<A>) {
        let free = core::mem::take(&mut *lock(&self.free));
        self.made.fetch_sub(free.len(), Ordering::Relaxed);
        for event in free {
            // SAFETY: from `create_event`, taken out of the pool, asked about by nobody.
            let result = home.within("destroy an event", |api| unsafe { api.destroy_event(event) });
            home.counted(result);
        }
    }
}
