//! What a host lends the core so that one thread can wait: a sleep, a park on a line, and the means
//! to end either from another thread.

use super::line::CompletionLine;
use super::time::{DurNs, MonoNs};
use core::task::Waker;

/// How one thread idles. The host implements it; the core never blocks otherwise.
pub trait Idle {
    /// Sleeps until `at` on the clock that the reactor uses. May return earlier, and does if the
    /// [`unparker`](Self::unparker) was used since the last sleep or park began.
    ///
    /// An idle that ran code of the program on its own thread (a waker, a callback, the destructor of a
    /// buffer that it held) returns early after it. Such code may have made a task of this thread
    /// ready, and by its own thread: that wake uses no unparker, so nothing else ends the sleep. The
    /// same holds for [`park_line`](Self::park_line).
    fn sleep_until(&mut self, at: MonoNs);

    /// Idles until `ready(line)` holds or `bound` has passed, and returns what `ready(line)` said
    /// last. May return earlier, and does where the [`unparker`](Self::unparker) was used.
    ///
    /// `ready` is cheap, depends on more than the line, and may be called any number of times.
    /// A hardware monitor arms on `line`, calls `ready`, and only then waits.
    fn park_line<R: Fn(&CompletionLine) -> bool>(
        &mut self,
        line: &CompletionLine,
        ready: R,
        bound: DurNs,
    ) -> bool;

    /// Spins until `ready(line)` holds or `bound` has passed: like [`park_line`](Self::park_line), in a
    /// pause loop that gives the core to nobody else, for waits by a `spin` plan. It ends early for
    /// the same reasons, and brings I/O on as a park does.
    /// Default: [`park_line`](Self::park_line).
    fn spin_line<R: Fn(&CompletionLine) -> bool>(
        &mut self,
        line: &CompletionLine,
        ready: R,
        bound: DurNs,
    ) -> bool {
        self.park_line(line, ready, bound)
    }

    /// A waker that ends this thread's sleep or park from any thread, or makes the next one return
    /// at once. It alone decides whether that takes a system call: none where the thread is not
    /// asleep in the kernel. Provided: none, and then a foreign wake is found within the park bound.
    fn unparker(&self) -> Option<Waker> {
        None
    }

    /// A function that returns the calling thread's token, which is not 0 and which no other live
    /// thread has. With it an executor tells a wake of its own thread from a foreign one and spares it
    /// every atomic read-modify-write. Default: none, and then every wake is treated as foreign.
    ///
    /// With a token a task's waker must not be used from a signal handler or an interrupt that runs on
    /// the executor's thread. Such a wake has that thread's token and interrupts it between two plain
    /// stores of the same list: the task may never run again. From another thread, or without a token,
    /// a wake is safe at any time.
    fn thread_token(&self) -> Option<fn() -> usize> {
        None
    }

    /// Whether this idle also carries I/O of the program, and some of it is queued or under way. Costs
    /// a few loads at most; a busy executor asks between polls. Provided: none.
    #[inline]
    fn has_io(&self) -> bool {
        false
    }

    /// Brings that I/O on without idling: submits what is queued, takes what has completed, and wakes
    /// whoever waits for it, with nothing borrowed. `true` where something completed.
    ///
    /// A busy executor, which does not come to idle, calls it between polls where there is
    /// [`has_io`](Self::has_io), as often as it looks at completions and timers. `now` is told by the
    /// reactor's clock, so that the idle can keep its system calls apart. Sleeps and parks bring the
    /// I/O on by themselves. Provided: nothing.
    #[inline]
    fn poll_io(&mut self, now: MonoNs) -> bool {
        let _ = now;
        false
    }
}

impl<I: Idle + ?Sized> Idle for &mut I {
    fn sleep_until(&mut self, at: MonoNs) {
        (**self).sleep_until(at);
    }

    fn park_line<R: Fn(&CompletionLine) -> bool>(
        &mut self,
        line: &CompletionLine,
        ready: R,
        bound: DurNs,
    ) -> bool {
        (**self).park_line(line, ready, bound)
    }

    fn spin_line<R: Fn(&CompletionLine) -> bool>(
        &mut self,
        line: &CompletionLine,
        ready: R,
        bound: DurNs,
    ) -> bool {
        (**self).spin_line(line, ready, bound)
    }

    fn unparker(&self) -> Option<Waker> {
        (**self).unparker()
    }

    fn thread_token(&self) -> Option<fn() -> usize> {
        (**self).thread_token()
    }

    #[inline]
    fn has_io(&self) -> bool {
        (**self).has_io()
    }

    #[inline]
    fn poll_io(&mut self, now: MonoNs) -> bool {
        (**self).poll_io(now)
    }
}
