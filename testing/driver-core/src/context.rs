//! Contexts, the threads' stacks of them, and what a call needs before it does anything.

use crate::driver::Call;
use crate::refusal::{Outcome, Refusal};
use crate::rules::Breaks;
use crate::state::{Context, Entry, Point, State};
use std::collections::HashMap;

impl State {
    fn new_context(&mut self, device: i32, primary: bool) -> u64 {
        let handle = self.new_handle();
        let context = Context {
            device,
            primary,
            references: 0,
            id: self.new_handle(),
            fault: None,
            reset: false,
            destroyed: false,
            legacy: None,
            per_thread: HashMap::new(),
        };
        self.contexts.insert(handle, context);
        handle
    }

    /// The primary context of `device`, made where there is none.
    pub(crate) fn primary(&mut self, device: i32) -> u64 {
        let mut contexts = self.contexts.iter();
        let found = contexts
            .find(|(_, context)| context.primary && !context.destroyed && context.device == device);
        match found {
            Some((&handle, _)) => handle,
            None => self.new_context(device, true),
        }
    }

    /// The context that is current to the calling thread, faulted or not.
    pub(crate) fn current(&mut self) -> Outcome<u64> {
        if self.rules.by_device {
            let device = self.thread().device;
            self.check_device(device)?;
            return Ok(self.primary(device));
        }
        let top = self.thread().stack.last().copied();
        let handle = top.ok_or(Refusal::InvalidContext)?.context;
        if self.contexts[&handle].destroyed {
            return Err(Refusal::ContextDestroyed);
        }
        Ok(handle)
    }

    /// The current context, for a call that its sticky fault answers.
    pub(crate) fn sound_current(&mut self) -> Outcome<u64> {
        let context = self.current()?;
        self.check_fault(context)?;
        Ok(context)
    }

    pub(crate) fn check_fault(&self, context: u64) -> Outcome {
        match self.contexts.get(&context).map(|context| context.fault) {
            Some(Some(code)) => Err(Refusal::Code(code)),
            Some(None) => Ok(()),
            // A reset came during a wait.
            None => Err(Refusal::ContextDestroyed),
        }
    }

    /// Whether nothing more will happen in `context`, whatever is queued.
    pub(crate) fn is_dead(&self, context: u64) -> bool {
        self.contexts.get(&context).is_none_or(|context| context.fault.is_some())
    }

    /// The context of an object that belongs to `owner`, if a call may use it now: by device the
    /// owner itself, else only where it is current.
    pub(crate) fn sound_owner(&mut self, owner: u64) -> Outcome {
        if self.rules.by_device {
            return self.check_fault(owner);
        }
        let current = self.sound_current()?;
        if current == owner { Ok(()) } else { Err(Refusal::InvalidContext) }
    }

    fn live_context(&mut self, handle: u64) -> Outcome {
        match self.contexts.get(&handle) {
            Some(context) if !context.destroyed => Ok(()),
            Some(_) => {
                self.log("a context was used after its end");
                Err(Refusal::ContextDestroyed)
            }
            None => Err(Refusal::InvalidContext),
        }
    }

    pub(crate) fn streams_of(&self, context: u64) -> Vec<u64> {
        let streams = self.streams.iter().filter(|(_, stream)| stream.context == context);
        streams.map(|(&handle, _)| handle).collect()
    }

    pub(crate) fn is_idle(&self, context: u64) -> bool {
        let mut streams = self.streams.values().filter(|stream| stream.context == context);
        streams.all(|stream| stream.done == stream.queued)
    }
}

impl Call {
    /// Initialises, if there is a device.
    ///
    /// # Errors
    ///
    /// A flag, or that there is no device.
    pub fn initialize(&mut self, flags: u32) -> Outcome {
        if flags != 0 {
            return Err(Refusal::InvalidValue);
        }
        if self.devices == 0 {
            return Err(Refusal::NoDevice);
        }
        self.initialized = true;
        Ok(())
    }

    /// A new reference to the primary context of `device`.
    ///
    /// # Errors
    ///
    /// That there is no such device.
    pub fn retain_primary(&mut self, device: i32) -> Outcome<u64> {
        self.check_device(device)?;
        let handle = self.primary(device);
        let id = self.new_handle();
        let context = self.contexts.get_mut(&handle).expect("made above");
        context.references += 1;
        if std::mem::take(&mut context.reset) {
            // The same pointer, and another context.
            context.fault = None;
            context.id = id;
        }
        Ok(handle)
    }

    /// Gives a reference back. The last one ends the context, once its work is over.
    ///
    /// # Errors
    ///
    /// That nobody holds one.
    pub fn release_primary(&mut self, device: i32) -> Outcome {
        self.check_device(device)?;
        let handle = self.primary(device);
        let references = self.contexts[&handle].references;
        if references == 0 {
            self.log("a primary context was released that nobody had retained");
            return Err(Refusal::InvalidContext);
        }
        if references == 1 {
            self.guard()?;
        }
        self.contexts.get_mut(&handle).expect("looked at above").references -= 1;
        if references == 1 {
            self.end_context(handle);
        }
        Ok(())
    }

    /// Ends everything of the primary context of `device`, whatever it is doing and however many references
    /// there are, as another library of the process may do. Contexts that are retained are destroyed until
    /// somebody retains again, which revives the same handle; those of a thread's device are there again at
    /// once.
    ///
    /// # Errors
    ///
    /// That there is no such device.
    pub fn reset_primary(&mut self, device: i32) -> Outcome {
        self.check_device(device)?;
        let handle = self.primary(device);
        let id = self.new_handle();
        let destroyed = (self.rules.code)(Refusal::ContextDestroyed);
        let by_device = self.rules.by_device;
        let context = self.contexts.get_mut(&handle).expect("made above");
        context.legacy = None;
        context.per_thread.clear();
        if by_device {
            (context.id, context.fault) = (id, None);
        } else {
            (context.reset, context.fault) = (true, Some(destroyed));
        }
        for stream in self.streams_of(handle) {
            self.streams.get_mut(&stream).expect("listed above").reset = true;
        }
        self.submit_batched();
        self.release_holds(handle);
        let memory = self.memory.live().filter(|(_, piece)| piece.context == handle);
        let memory: Vec<_> = memory.map(|(key, _)| key).collect();
        memory.into_iter().for_each(|key| self.memory.free(key));
        self.events.retain(|_, event| event.context != handle);
        for stream in self.streams_of(handle) {
            self.bury_stream(stream);
        }
        self.driver.announce();
        Ok(())
    }

    /// The number of a context, or of the current one for 0: another one after a reset.
    ///
    /// # Errors
    ///
    /// That there is no such context.
    pub fn context_id(&mut self, handle: u64) -> Outcome<u64> {
        let handle = if handle == 0 { self.current()? } else { handle };
        self.live_context(handle)?;
        self.check_fault(handle)?;
        Ok(self.contexts[&handle].id)
    }

    /// A new context, current to the calling thread.
    ///
    /// # Errors
    ///
    /// That there is no such device.
    pub fn create_context(&mut self, device: i32) -> Outcome<u64> {
        self.check_device(device)?;
        let handle = self.new_context(device, false);
        self.thread().stack.push(Entry { context: handle, pushed: true });
        Ok(handle)
    }

    /// Ends a context that was created, once its work is over.
    ///
    /// # Errors
    ///
    /// That there is no such context.
    pub fn destroy_context(&mut self, handle: u64) -> Outcome {
        self.live_context(handle)?;
        if self.contexts[&handle].primary {
            return Err(Refusal::InvalidContext);
        }
        self.guard()?;
        self.end_context(handle);
        let stack = &mut self.thread().stack;
        if stack.last().is_some_and(|top| top.context == handle) {
            stack.pop();
        }
        Ok(())
    }

    /// Waits for everything in a context, then ends it and what belongs to it.
    fn end_context(&mut self, handle: u64) {
        self.submit_batched();
        self.wait_until(|state| state.is_dead(handle) || state.is_idle(handle));
        let Some(context) = self.contexts.get_mut(&handle) else { return };
        if context.destroyed || context.references > 0 {
            // Another thread has ended it, or retained it again, during the wait.
            return;
        }
        context.destroyed = true;
        self.flush(handle);
        self.release_holds(handle);
        let memory = self.memory.live().filter(|(_, piece)| piece.context == handle);
        let memory: Vec<_> = memory.map(|(key, piece)| (key, piece.request.place)).collect();
        for (key, place) in memory {
            self.log(format!("a context ended with {place:?} memory that was not freed"));
            self.quarantine(key);
        }
        self.events.retain(|_, event| event.context != handle);
        for stream in self.streams_of(handle) {
            self.bury_stream(stream);
        }
    }

    /// Pushes `handle` onto the calling thread's stack.
    ///
    /// # Errors
    ///
    /// That there is no such context.
    pub fn push_context(&mut self, handle: u64) -> Outcome {
        self.live_context(handle)?;
        self.thread().stack.push(Entry { context: handle, pushed: true });
        Ok(())
    }

    /// Takes the current context from the calling thread's stack.
    ///
    /// # Errors
    ///
    /// That the stack is empty.
    pub fn pop_context(&mut self) -> Outcome<u64> {
        match self.thread().stack.pop() {
            Some(top) => Ok(top.context),
            None => {
                self.log("a context was popped from an empty stack");
                Err(Refusal::InvalidContext)
            }
        }
    }

    /// Makes `handle` the top of the calling thread's stack, or removes the top for 0.
    ///
    /// # Errors
    ///
    /// That there is no such context.
    pub fn set_context(&mut self, handle: u64) -> Outcome {
        if handle != 0 {
            self.live_context(handle)?;
        }
        let stack = &mut self.thread().stack;
        let pushed = stack.pop().is_some_and(|top| top.pushed);
        if handle != 0 {
            stack.push(Entry { context: handle, pushed });
        } else if pushed {
            self.log("a pushed context was unbound instead of popped");
        }
        Ok(())
    }

    /// The context that is current, or 0.
    #[must_use]
    pub fn current_or_none(&mut self) -> u64 {
        self.thread().stack.last().map_or(0, |top| top.context)
    }

    /// The device of the current context.
    ///
    /// # Errors
    ///
    /// That none is current.
    pub fn current_device(&mut self) -> Outcome<i32> {
        if self.rules.by_device {
            return Ok(self.thread().device);
        }
        let context = self.current()?;
        Ok(self.contexts[&context].device)
    }

    /// Chooses the calling thread's device.
    ///
    /// # Errors
    ///
    /// That there is no such device.
    pub fn set_device(&mut self, device: i32) -> Outcome {
        self.check_device(device)?;
        self.thread().device = device;
        Ok(())
    }

    /// Waits for everything in the current context.
    ///
    /// # Errors
    ///
    /// A sticky fault, or that a capture forbids it.
    pub fn synchronize_context(&mut self) -> Outcome {
        let context = self.sound_current()?;
        self.guard()?;
        self.guard_wide(context)?;
        self.submit_batched();
        let queued = self.ends_of(context);
        // Without a flag of the context, which nobody sets, the wait is active.
        self.spin_until(|state| {
            state.is_dead(context) || queued.iter().all(|at| state.has_come(*at))
        });
        self.check_fault(context)?;
        self.flush(context);
        Ok(())
    }

    /// Refuses to ask about a whole context, or to wait for it, where that breaks captures in any mode.
    fn guard_wide(&mut self, context: u64) -> Outcome {
        let breaks = self.traits().context_wait_breaks;
        let streams = self.streams.values().filter(|stream| match breaks {
            Breaks::ByMode => false,
            Breaks::OfContext => stream.context == context,
            Breaks::All => true,
        });
        let broken: Vec<u64> = streams.filter_map(|stream| stream.capture).collect();
        if broken.is_empty() {
            return Ok(());
        }
        let entry = self.entry;
        broken.into_iter().for_each(|capture| self.invalidate(capture, entry));
        Err(Refusal::CaptureUnsupported)
    }

    /// What is queued in `context` now.
    fn ends_of(&self, context: u64) -> Vec<Point> {
        self.streams_of(context).into_iter().map(|stream| self.end_of(stream)).collect()
    }

    /// Waits until `context` is idle or faulted.
    pub(crate) fn settle(&mut self, context: u64) -> Outcome {
        // Work that is queued meanwhile is not waited for.
        let queued = self.ends_of(context);
        self.submit_batched();
        self.wait_until(|state| {
            state.is_dead(context) || queued.iter().all(|at| state.has_come(*at))
        });
        self.check_fault(context)?;
        self.flush(context);
        Ok(())
    }

    /// How many devices there are.
    #[must_use]
    pub fn device_count(&mut self) -> i32 {
        self.devices
    }

    /// The number of the device with that ordinal.
    ///
    /// # Errors
    ///
    /// That there is no such device.
    pub fn device(&mut self, ordinal: i32) -> Outcome<i32> {
        self.check_device(ordinal)?;
        Ok(ordinal)
    }

    /// An attribute of a device.
    ///
    /// # Errors
    ///
    /// That there is no such device, or that the driver does not know the attribute.
    pub fn device_attribute(&mut self, device: i32, attribute: i32) -> Outcome<i32> {
        self.check_device(device)?;
        self.attribute(device, attribute)
    }

    /// The driver's version.
    #[must_use]
    pub fn driver_version(&mut self) -> i32 {
        self.version
    }
}
