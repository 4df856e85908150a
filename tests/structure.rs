//! The rules between the folders, checked on the sources.

use std::fs;
use std::path::{Path, PathBuf};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Every Rust file below `folder`, with its text.
fn sources(folder: &str) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    let mut folders = vec![root().join(folder)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = fs::read_to_string(&path).unwrap();
                found.push((path, text));
            }
        }
    }
    assert!(!found.is_empty(), "{folder} has sources");
    found
}

/// The lines of code, without comments.
fn code(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let lines =
        text.lines().enumerate().map(|(at, line)| (at + 1, line.split("//").next().unwrap()));
    // Unit tests stand at the end of a file and may use the standard library.
    lines.take_while(|(_, line)| !line.starts_with("#[cfg(test)]"))
}

fn is_test_only(path: &Path) -> bool {
    let name = path.file_name().unwrap().to_str().unwrap();
    ["tests.rs", "replay.rs", "model.rs"].contains(&name)
}

fn words(line: &str) -> impl Iterator<Item = &str> {
    line.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty())
}

fn forbid(folder: &str, forbidden: &[&str], why: &str) {
    for (path, text) in sources(folder).iter().filter(|(path, _)| !is_test_only(path)) {
        for (at, line) in code(text) {
            for word in words(line) {
                assert!(!forbidden.contains(&word), "{}:{at}: {word}: {why}", path.display());
            }
        }
    }
}

#[test]
fn core_knows_no_standard_library_no_vendor_no_runtime_and_no_other_folder() {
    let forbidden = [
        "std",
        "unsafe",
        "static",
        "tokio",
        "cuda",
        "hip",
        "metal",
        "vulkan",
        "software",
        "serde",
        "tracing",
        "todo",
        "unimplemented",
    ];
    for (path, text) in sources("src/core").iter().filter(|(path, _)| !is_test_only(path)) {
        for (at, line) in code(text) {
            let line = line
                .replace("&'static", "")
                .replace("'static", "")
                .replace("#![forbid(unsafe_code)]", "");
            // The name of a capability or setting is text for people.
            let line = line.split('"').step_by(2).collect::<String>();
            for folder in ["backend::", "host::"] {
                assert!(!line.contains(folder), "{}:{at}: core names {folder}", path.display());
            }
            for word in words(&line) {
                assert!(!forbidden.contains(&word), "{}:{at}: core names {word}", path.display());
            }
        }
    }
}

#[test]
fn backends_know_no_host_and_not_each_other() {
    forbid("src/backend", &["tokio"], "a backend names no runtime");
    for (path, text) in sources("src/backend").iter().filter(|(path, _)| !is_test_only(path)) {
        for (at, line) in code(text) {
            // The host's memory and functions are what a backend is about; the folder is not.
            let named = line.contains("host::") || line.contains("crate::host");
            assert!(!named, "{}:{at}: a backend names a host", path.display());
        }
    }
    let backends: Vec<String> = fs::read_dir(root().join("src/backend"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.file_stem().is_some_and(|name| name != "mod"))
        .map(|path| path.file_stem().unwrap().to_str().unwrap().to_string())
        .collect();
    for backend in &backends {
        // What all backends share is named by them and names none of them.
        let shared = ["lease", "mapped"];
        let others: Vec<_> = backends
            .iter()
            .filter(|other| *other != backend && !shared.contains(&other.as_str()))
            .collect();
        for (path, text) in sources("src/backend") {
            let own = path.components().any(|part| part.as_os_str() == backend.as_str())
                || path.file_stem().unwrap() == backend.as_str();
            for (at, line) in code(&text).filter(|_| own) {
                for other in &others {
                    let named = line.contains(&format!("backend::{other}"));
                    assert!(!named, "{}:{at}: {backend} names {other}", path.display());
                }
            }
        }
    }
}

#[test]
fn core_has_no_dependency_and_forbids_unsafe() {
    let core = fs::read_to_string(root().join("src/core/mod.rs")).unwrap();
    assert!(core.contains("#![forbid(unsafe_code)]"));
    let used: Vec<_> = sources("src/core")
        .into_iter()
        .filter(|(path, _)| !is_test_only(path))
        .flat_map(|(path, text)| {
            let uses = code(&text)
                .filter_map(|(_, line)| line.trim().strip_prefix("use ").map(str::to_string))
                .map(|line| words(&line).next().unwrap_or_default().to_string())
                .collect::<Vec<_>>();
            uses.into_iter().map(move |first| (path.clone(), first))
        })
        .collect();
    let modules: Vec<String> = sources("src/core")
        .iter()
        .map(|(path, _)| path.file_stem().unwrap().to_str().unwrap().to_string())
        .chain(sources("src/core").iter().filter_map(|(path, _)| {
            path.parent().and_then(Path::file_name).map(|name| name.to_str().unwrap().to_string())
        }))
        .collect();
    for (path, first) in used {
        let known = ["alloc", "core", "crate", "super", "self"].contains(&first.as_str())
            || modules.contains(&first)
            // The facade of atomics, under the model checker only.
            || (first == "loom" && path.ends_with("sync.rs"));
        assert!(known, "{}: core uses the crate {first}", path.display());
    }
}

#[test]
fn the_no_std_consumer_names_every_public_core_item() {
    let lib = fs::read_to_string(root().join("src/lib.rs")).unwrap();
    let consumer = fs::read_to_string(root().join("testing/no-std/src/lib.rs")).unwrap();
    let named: Vec<&str> = words(&consumer).collect();
    let mut exported = 0;
    for statement in lib.split("pub use crate::core::").skip(1) {
        let statement = statement.split(';').next().unwrap();
        let items = statement.rsplit("::").next().unwrap();
        for item in words(items) {
            exported += 1;
            assert!(named.contains(&item), "testing/no-std does not name {item}");
        }
    }
    assert!(exported > 60, "found only {exported} exports");
    assert!(!lib.contains("::*"), "exports are named, not globbed");
}
