//! The pool of events of a context: a mark takes one, and gives it back once it is done.
//!
//! An event may be given back while its last record is still on its way: recording it again only moves
//! the point that it stands for. It may also be given back while another thread asks about it or waits
//! for it, who would then wait for a point of somebody else's: such an event is not taken before that
//! thread has let go of it. Events are destroyed when the context is closed, and only where nobody asks.
//!
//! There are two kinds. Marks take plain events, which cost the device nothing. A blocking wait for a plain
//! event spins, so one that is to sleep takes a sleeping event, records it at the point it waits for, and
//! gives it back.

use super::calls::Interface;
use super::handle::RawEvent;
use super::home::Home;
use super::lock;
use crate::core::error::Result;
use alloc::{sync::Arc, vec::Vec};
use core::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Mutex;

/// How many events that somebody asks about are passed over before a new one is created.
const LOOKS: usize = 4;

/// An event, which whoever asks about it holds.
pub(super) type Event = Arc<RawEvent>;

#[derive(Default)]
pub(super) struct Events {
    plain: Mutex<Vec<Event>>,
    sleeping: Mutex<Vec<Event>>,
    made: AtomicUsize,
}

impl Events {
    /// An event that no mark waits for and nobody asks about, within the context.
    pub(super) fn take<A: Interface>(&self, api: &A) -> Result<Event> {
        self.take_of(&self.plain, api, false)
    }

    /// An event for which a blocking wait sleeps, and which nobody else has.
    pub(super) fn take_sleeping<A: Interface>(&self, api: &A) -> Result<Event> {
        self.take_of(&self.sleeping, api, true)
    }

    fn take_of<A: Interface>(
        &self,
        pool: &Mutex<Vec<Event>>,
        api: &A,
        sleeping: bool,
    ) -> Result<Event> {
        if let Some(event) = take_free(pool) {
            return Ok(event);
        }
        let event = api.create_event(sleeping)?;
        self.made.fetch_add(1, Ordering::Relaxed);
        Ok(Arc::new(event))
    }

    /// Takes plain events back.
    pub(super) fn give_back(&self, events: impl IntoIterator<Item = Event>) {
        lock(&self.plain).extend(events);
    }

    /// Takes a sleeping event back.
    pub(super) fn give_sleeping_back(&self, event: Event) {
        lock(&self.sleeping).push(event);
    }

    /// How many there are, in use or not.
    pub(super) fn made(&self) -> usize {
        self.made.load(Ordering::Relaxed)
    }

    /// Destroys the free ones that nobody asks about.
    pub(super) fn destroy_free<A: Interface>(&self, home: &Home<A>) {
        let sleeping = core::mem::take(&mut *lock(&self.sleeping));
        let mut free = core::mem::take(&mut *lock(&self.plain));
        // Nobody asks about the sleeping ones in the pool, and nobody will.
        free.extend(sleeping);
        let mut asked = Vec::new();
        for at in (0..free.len()).rev() {
            if !is_alone(&mut free[at]) {
                asked.push(free.swap_remove(at));
            }
        }
        self.give_back(asked);
        self.made.fetch_sub(free.len(), Ordering::Relaxed);
        for event in free {
            // SAFETY: from `create_event`, taken out of the pool, held by nobody else.
            let result =
                home.within("destroy an event", |api| unsafe { api.destroy_event(*event) });
            home.counted(result);
        }
    }
}

fn take_free(pool: &Mutex<Vec<Event>>) -> Option<Event> {
    let mut free = lock(pool);
    let last = free.len();
    // Nobody can come to hold an event that is in the pool alone.
    let at = (last.saturating_sub(LOOKS)..last).rev().find(|at| is_alone(&mut free[*at]))?;
    Some(free.swap_remove(at))
}

/// Whether nobody else holds `event`: an acquire of what others did with it before.
fn is_alone(event: &mut Event) -> bool {
    Arc::get_mut(event).is_some()
}
