//! Gives the library the soname of the vendor's, and keeps it loaded once it is: its worker threads
//! and its handler of forks live as long as the process.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if std::env::var("CARGO_CFG_TARGET_OS").as_deref() == Ok("linux") {
        println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libamdhip64.so.6");
        println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
        // Its own calls stay its own, whatever else is loaded under these names.
        println!("cargo::rustc-cdylib-link-arg=-Wl,-Bsymbolic");
    }
}
