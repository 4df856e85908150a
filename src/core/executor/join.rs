//! Handles of tasks, and the table where results wait for them.
//!
//! ```text
//!   [running] --finish--> [finished] --handle polled or dropped--> [free]
//!       |  handle dropped: detached --finish--> [free]
//! ```
//!
//! A handle that is polled directly by a task of the same executor is remembered by that task's
//! number and not by a clone of its waker: it costs no reference count, and it is not mistaken for a
//! waker that another thread might use. No table is borrowed while a value or a waker is dropped or
//! woken.

use crate::contain::contain;
use crate::core::error::{Error, ErrorCode, Result};
use alloc::{rc::Rc, vec::Vec};
use core::cell::{Cell, RefCell};
use core::fmt;
use core::pin::Pin;
use core::task::{Context, Poll, Waker};

const NO_PLACE: u32 = u32::MAX;

/// The results of one executor's tasks.
pub(super) struct JoinTable<T> {
    entries: RefCell<Entries<T>>,
    /// Whether the executor has to look at aborts or at its inbox.
    pub(super) attention: Cell<bool>,
    aborts: RefCell<Vec<u32>>,
    /// The task being polled: what its waker points to, and its number.
    polling: Cell<(*const (), u32)>,
}

struct Entries<T> {
    entries: Vec<Entry<T>>,
    free: Vec<u32>,
}

enum Entry<T> {
    Free,
    Running { place: u32, waiter: Waiter, has_handle: bool, aborted: bool },
    Finished(Result<T>),
}

/// Who waits for a task to finish.
pub(super) enum Waiter {
    Nobody,
    /// A task of the same executor.
    Task(u32),
    Other(Waker),
}

impl<T> JoinTable<T> {
    pub(super) fn new() -> Self {
        JoinTable {
            entries: RefCell::new(Entries { entries: Vec::new(), free: Vec::new() }),
            attention: Cell::new(false),
            aborts: RefCell::default(),
            polling: Cell::new((core::ptr::null(), NO_PLACE)),
        }
    }

    /// A new running entry, which a handle holds.
    pub(super) fn add(&self) -> u32 {
        let mut table = self.entries.borrow_mut();
        let entry = Entry::Running {
            place: NO_PLACE,
            waiter: Waiter::Nobody,
            has_handle: true,
            aborted: false,
        };
        match table.free.pop() {
            Some(join) => {
                table.entries[join as usize] = entry;
                join
            }
            None => {
                table.entries.push(entry);
                table.entries.len() as u32 - 1
            }
        }
    }

    /// The task of `join` has been given `place`.
    pub(super) fn set_place(&self, join: u32, at: u32) {
        if let Entry::Running { place, .. } = &mut self.entries.borrow_mut().entries[join as usize]
        {
            *place = at;
        }
    }

    /// The task at `index`, whose waker points to `data`, is polled from now on.
    #[inline]
    pub(super) fn set_polling(&self, data: *const (), index: u32) {
        self.polling.set((data, index));
    }

    /// Keeps the result for the handle, or drops it where there is none. Says whom to wake.
    pub(super) fn finish(&self, join: u32, result: Result<T>) -> Waiter {
        let mut table = self.entries.borrow_mut();
        let entry = core::mem::replace(&mut table.entries[join as usize], Entry::Free);
        match entry {
            Entry::Running { has_handle: true, waiter, .. } => {
                table.entries[join as usize] = Entry::Finished(result);
                waiter
            }
            _ => {
                table.free.push(join);
                drop(table);
                drop(result);
                Waiter::Nobody
            }
        }
    }

    /// The place of the next task to abort. Every running task has one by the time this is called.
    pub(super) fn next_abort(&self) -> Option<u32> {
        loop {
            let join = self.aborts.borrow_mut().pop()?;
            // The number may belong to a later task by now, which nobody has aborted.
            if let Entry::Running { place, aborted, .. } =
                &mut self.entries.borrow_mut().entries[join as usize]
            {
                if core::mem::take(aborted) {
                    return Some(*place);
                }
            }
        }
    }

    /// No task is polled now.
    pub(super) fn clear_polling(&self) {
        self.polling.set((core::ptr::null(), NO_PLACE));
    }

    /// The executor is gone: what is running never finishes. A waker that panics keeps no other
    /// handle from resolving.
    pub(super) fn close(&self) {
        let joins = self.entries.borrow().entries.len() as u32;
        for join in 0..joins {
            let running =
                matches!(self.entries.borrow().entries[join as usize], Entry::Running { .. });
            if running {
                if let Waiter::Other(waker) = self.finish(join, Err(aborted())) {
                    contain(|| waker.wake());
                }
            }
        }
    }
}

pub(super) fn aborted() -> Error {
    Error::plain(ErrorCode::Aborted)
}

/// The result of a spawned task. Dropping it detaches the task.
///
/// Resolves to the task's output, or to
/// [`Aborted`](ErrorCode::Aborted) once the task was aborted and dropped or its executor is gone, or
/// to [`TaskPanicked`](ErrorCode::TaskPanicked). Polled again after that, it says `Aborted`.
pub struct JoinHandle<T> {
    /// None where there never was a task, or its result was taken.
    task: Option<(Rc<JoinTable<T>>, u32)>,
}

impl<T> JoinHandle<T> {
    pub(super) fn new(table: Rc<JoinTable<T>>, join: u32) -> Self {
        JoinHandle { task: Some((table, join)) }
    }

    /// The handle of a task that could not be spawned.
    pub(super) fn of_nothing() -> Self {
        JoinHandle { task: None }
    }

    /// Asks for the task to be dropped. It is, at the latest, before the running executor polls the
    /// next task, or when it is run again; a task that aborts itself is dropped after the poll it is
    /// in. The handle resolves to [`Aborted`](ErrorCode::Aborted) after the drop. A task that has
    /// finished is left as it is.
    pub fn abort(&self) {
        if let Some((table, join)) = &self.task {
            if let Entry::Running { aborted, .. } =
                &mut table.entries.borrow_mut().entries[*join as usize]
            {
                if !core::mem::replace(aborted, true) {
                    table.aborts.borrow_mut().push(*join);
                    table.attention.set(true);
                }
            }
        }
    }

    /// Whether awaiting the handle would resolve at once.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.task.as_ref().is_none_or(|(table, join)| {
            matches!(table.entries.borrow().entries[*join as usize], Entry::Finished(_))
        })
    }
}

impl<T> Future for JoinHandle<T> {
    type Output = Result<T>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<T>> {
        let Some((table, join)) = &self.task else { return Poll::Ready(Err(aborted())) };
        let (polling, task) = table.polling.get();
        let waiter = if cx.waker().data() == polling && !polling.is_null() {
            Waiter::Task(task)
        } else {
            Waiter::Other(cx.waker().clone())
        };
        let mut entries = table.entries.borrow_mut();
        let at = *join as usize;
        if let Entry::Running { waiter: known, .. } = &mut entries.entries[at] {
            let old = core::mem::replace(known, waiter);
            drop(entries);
            drop(old);
            return Poll::Pending;
        }
        let entry = core::mem::replace(&mut entries.entries[at], Entry::Free);
        entries.free.push(*join);
        drop(entries);
        self.task = None;
        match entry {
            Entry::Finished(result) => Poll::Ready(result),
            Entry::Running { .. } | Entry::Free => Poll::Ready(Err(aborted())),
        }
    }
}

impl<T> Drop for JoinHandle<T> {
    fn drop(&mut self) {
        let Some((table, join)) = self.task.take() else { return };
        let mut entries = table.entries.borrow_mut();
        let at = join as usize;
        if let Entry::Running { has_handle, waiter, .. } = &mut entries.entries[at] {
            *has_handle = false;
            let waiter = core::mem::replace(waiter, Waiter::Nobody);
            drop(entries);
            drop(waiter);
            return;
        }
        let unread = core::mem::replace(&mut entries.entries[at], Entry::Free);
        entries.free.push(join);
        drop(entries);
        drop(unread);
    }
}

impl<T> fmt::Debug for JoinHandle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JoinHandle").field("finished", &self.is_finished()).finish()
    }
}
