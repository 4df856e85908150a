//! Calling a library's functions by name.

/// A function of a library, called with its arguments as a tuple.
pub trait Foreign<Arguments> {
    /// What it returns.
    type Answer;

    /// Calls it.
    ///
    /// # Safety
    ///
    /// As the function itself.
    unsafe fn invoke(self, arguments: Arguments) -> Self::Answer;
}

macro_rules! foreign {
    ($($type:ident $argument:ident),*) => {
        impl<Answer, $($type),*> Foreign<($($type,)*)> for unsafe extern "C" fn($($type),*) -> Answer {
            type Answer = Answer;

            unsafe fn invoke(self, ($($argument,)*): ($($type,)*)) -> Answer {
                // SAFETY: the caller's.
                unsafe { self($($argument),*) }
            }
        }
    };
}

foreign!();
foreign!(A a);
foreign!(A a, B b);
foreign!(A a, B b, C c);
foreign!(A a, B b, C c, D d);

/// Calls a function of an opened [`Library`](libloading::Library): its name, its arguments with
/// their types, its answer. For tests, which know the function's type, and pass numbers or addresses
/// that are good for what it does with them.
///
/// # Panics
///
/// Where there is no such function.
#[macro_export]
macro_rules! foreign_call {
    ($library:expr, $name:ident($($argument:expr => $type:ty),* $(,)?) -> $answer:ty) => {{
        type __Function = unsafe extern "C" fn($($type),*) -> $answer;
        let library: &$crate::Library = &$library;
        let arguments: ($($type,)*) = ($($argument,)*);
        let name = concat!(stringify!($name), "\0");
        // SAFETY: the caller knows the function's type.
        let function = unsafe { library.get::<__Function>(name.as_bytes()) };
        let function = *function.expect(stringify!($name));
        // SAFETY: the caller's arguments are numbers or good addresses.
        unsafe { $crate::Foreign::invoke(function, arguments) }
    }};
}

pub(crate) use foreign_call;
