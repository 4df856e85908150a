//! The word wait on a CPU that has the instructions: each case prints one line,
//! `word-wait: PASS name detail` or `word-wait: FAIL name detail`, and a last one says how many failed.
//!
//! `scripts/check-word-wait` boots it as the only program of an emulated machine, where it mounts
//! what it reads, and switches the machine off at the end. Started as any other program it runs
//! the same cases on the machine it is on.

mod cases;
mod machine;

fn main() {
    machine::prepare();
    let mut failed = 0;
    // Told at the end: a console that still sends interrupts the waits.
    let mut told = String::new();
    let mut tell = |name, verdict: Result<String, String>| {
        let (word, detail) = match verdict {
            Ok(detail) => ("PASS", detail),
            Err(detail) => {
                failed += 1;
                ("FAIL", detail)
            }
        };
        told += &format!("word-wait: {word} {name} {}\n", detail.trim_end());
    };
    match cases::probe() {
        Ok((word_wait, detail)) => {
            tell("probe", Ok(detail));
            for (name, case) in cases::ALL {
                tell(name, case(word_wait));
            }
        }
        Err(why) => tell("probe", Err(why)),
    }
    print!("{told}");
    println!("word-wait: done failed={failed}");
    machine::end(failed);
}
