//! The control interface as C functions of a driver library.

/// Exports the control interface from a driver library, for the device that `$driver` answers.
///
/// | function | effect |
/// |---|---|
/// | `u64 fake_reset()` | [`Driver::reset`](crate::Driver::reset) |
/// | `void fake_fail(const char *entry, u64 nth, int code)` | [`fail`](crate::Driver::fail) |
/// | `u64 fake_calls(const char *entry)` | [`calls`](crate::Driver::calls) |
/// | `void fake_fault(int code)` | [`fault`](crate::Driver::fault) |
/// | `void fake_lose_stores(u64 n)` | [`lose_stores`](crate::Driver::lose_stores) |
/// | `void fake_delay_stores(u64 n, u64 ns)` | [`delay_stores`](crate::Driver::delay_stores) |
/// | `void fake_hang_queries(int on)` | [`hang_queries`](crate::Driver::hang_queries) |
/// | `void fake_hang(const char *entry, int on)` | [`hang`](crate::Driver::hang) |
/// | `u64 fake_hung()` | [`hung`](crate::Driver::hung) |
/// | `void fake_attribute(int device, int attribute, int value)` | [`set_attribute`](crate::Driver::set_attribute) |
/// | `void fake_unknown_attribute(int device, int attribute)` | the same, to unknown: it then answers invalid value |
/// | `void fake_version(int version)` | [`set_version`](crate::Driver::set_version) |
/// | `void fake_devices(int devices)` | [`set_devices`](crate::Driver::set_devices) |
/// | `void fake_batching(int on)` | [`batching`](crate::Driver::batching) |
/// | `void fake_fault_aborts(int on)` | [`fault_aborts`](crate::Driver::fault_aborts) |
/// | `void fake_green(u64 stream)` | [`green`](crate::Driver::green) |
/// | `int fake_reset_device(int device)` | [`reset_device`](crate::Driver::reset_device) |
/// | `int fake_work(u64 stream, u64 ns)` | [`work`](crate::Driver::work) |
/// | `int fake_hold(u64 stream)` | [`hold`](crate::Driver::hold) |
/// | `void fake_release()` | [`release`](crate::Driver::release) |
/// | `void fake_settle()` | [`settle`](crate::Driver::settle) |
/// | `u64 fake_violations()` | how many [`violations`](crate::Driver::violations) there are |
/// | `u64 fake_violation(u64 index, char *text, u64 room)` | the length of one, whose text is put into `text` as far as there is room |
/// | `u64 fake_live(unsigned what)` | [`live`](crate::Driver::live), by the numbers of [`Live`](crate::Live) |
#[macro_export]
macro_rules! control {
    ($driver:path) => {
        extern "C" fn at_the_end_of_the_library() {
            let device: &'static $crate::Driver = $driver();
            device.end();
        }

        // SAFETY: the functions of this section are called once each when the library is finalised, without
        // arguments that they would need; this one does not unwind.
        #[used]
        #[unsafe(link_section = ".fini_array")]
        static AT_THE_END: extern "C" fn() = at_the_end_of_the_library;

        $crate::control! { $driver;
            fn fake_reset() -> u64 |driver| { driver.reset() }
            fn fake_fail(entry: $crate::abi::Text, nth: u64, code: i32) -> () |driver| {
                driver.fail(&entry.get(), nth, code);
            }
            fn fake_calls(entry: $crate::abi::Text) -> u64 |driver| { driver.calls(&entry.get()) }
            fn fake_fault(code: i32) -> () |driver| { driver.fault(code); }
            fn fake_lose_stores(stores: u64) -> () |driver| { driver.lose_stores(stores); }
            fn fake_delay_stores(stores: u64, ns: u64) -> () |driver| {
                driver.delay_stores(stores, $crate::DurNs(ns));
            }
            fn fake_hang_queries(on: i32) -> () |driver| { driver.hang_queries(on != 0); }
            fn fake_hang(entry: $crate::abi::Text, on: i32) -> () |driver| {
                driver.hang(&entry.get(), on != 0);
            }
            fn fake_hung() -> u64 |driver| { driver.hung() }
            fn fake_attribute(device: i32, attribute: i32, value: i32) -> () |driver| {
                driver.set_attribute(device, attribute, Some(value));
            }
            fn fake_unknown_attribute(device: i32, attribute: i32) -> () |driver| {
                driver.set_attribute(device, attribute, None);
            }
            fn fake_version(version: i32) -> () |driver| { driver.set_version(version); }
            fn fake_devices(devices: i32) -> () |driver| { driver.set_devices(devices); }
            fn fake_batching(on: i32) -> () |driver| { driver.batching(on != 0); }
            fn fake_fault_aborts(on: i32) -> () |driver| { driver.fault_aborts(on != 0); }
            fn fake_green(stream: u64) -> () |driver| { driver.green(stream); }
            fn fake_reset_device(device: i32) -> i32 |driver| { driver.reset_device(device) }
            fn fake_work(stream: u64, ns: u64) -> i32 |driver| {
                driver.work(stream, $crate::DurNs(ns))
            }
            fn fake_hold(stream: u64) -> i32 |driver| { driver.hold(stream) }
            fn fake_release() -> () |driver| { driver.release(); }
            fn fake_settle() -> () |driver| { driver.settle(); }
            fn fake_violations() -> u64 |driver| { driver.violations().len() as u64 }
            fn fake_violation(index: u64, text: $crate::abi::Out<u8>, room: u64) -> u64 |driver| {
                $crate::violation_text(driver, index, text, room)
            }
            fn fake_live(what: u32) -> u64 |driver| {
                $crate::Live::ALL.get(what as usize).map_or(u64::MAX, |what| driver.live(*what))
            }
        }
    };
    ($driver:path; $(fn $name:ident($($argument:ident: $type:ty),*) -> $answer:ty |$device:ident| $body:block)*) => {
        $(
            #[doc = concat!("See `driver_core::control`, at `", stringify!($name), "`.")]
            // SAFETY: the test drivers are the only libraries with this prefix, and export each name
            // once.
            #[unsafe(no_mangle)]
            pub extern "C" fn $name($($argument: $type),*) -> $answer {
                let $device: &'static $crate::Driver = $driver();
                $body
            }
        )*
    };
}

/// Puts the text of a violation into `text` and returns its length; 0 where there is none.
pub fn violation_text(
    driver: &'static crate::Driver,
    index: u64,
    text: crate::abi::Out<u8>,
    room: u64,
) -> u64 {
    let violations = driver.violations();
    let Some(found) = usize::try_from(index).ok().and_then(|index| violations.get(index)) else {
        return 0;
    };
    if room > 0 {
        // A null pointer asks for the length alone.
        let _ = text.fill(found.as_bytes(), 0, i32::try_from(room).unwrap_or(i32::MAX));
    }
    found.len() as u64
}
