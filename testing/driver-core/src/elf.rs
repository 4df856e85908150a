//! Shared libraries as files: their soname, their symbols, a copy without one of them or of another name.
//!
//! ELF of 64 bits, little-endian, as the System V ABI describes it. Only what these three need.

use std::fs;
use std::io;
use std::ops::Range;
use std::path::Path;

const DYNAMIC: u32 = 6;
const SYMBOLS: u32 = 11;
const TAG_SONAME: u64 = 14;

/// A library's bytes, with its sections.
struct Elf {
    bytes: Vec<u8>,
}

/// What is needed of a section header.
struct Section {
    kind: u32,
    bytes: Range<usize>,
    link: usize,
}

fn wrong(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.to_string())
}

impl Elf {
    fn read(path: &Path) -> io::Result<Self> {
        let bytes = fs::read(path)?;
        if bytes.get(..6) != Some(b"\x7fELF\x02\x01") {
            return Err(wrong("not a 64-bit little-endian ELF file"));
        }
        Ok(Elf { bytes })
    }

    fn number(&self, at: usize, len: usize) -> io::Result<u64> {
        let bytes = self.bytes.get(at..at + len).ok_or_else(|| wrong("cut off"))?;
        Ok(bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)))
    }

    fn place(&self, at: usize, len: usize) -> io::Result<usize> {
        usize::try_from(self.number(at, len)?).map_err(|_| wrong("too large"))
    }

    fn section(&self, index: usize) -> io::Result<Section> {
        let header = self.place(0x28, 8)? + index * self.place(0x3a, 2)?;
        let start = self.place(header + 0x18, 8)?;
        Ok(Section {
            kind: u32::try_from(self.number(header + 4, 4)?).expect("4 bytes"),
            bytes: start..start + self.place(header + 0x20, 8)?,
            link: self.place(header + 0x28, 4)?,
        })
    }

    fn section_of(&self, kind: u32) -> io::Result<Section> {
        for index in 0..self.place(0x3c, 2)? {
            let section = self.section(index)?;
            if section.kind == kind {
                return Ok(section);
            }
        }
        Err(wrong("a section is missing"))
    }

    fn text(&self, at: usize) -> io::Result<String> {
        let rest = self.bytes.get(at..).ok_or_else(|| wrong("cut off"))?;
        let len = rest.iter().position(|byte| *byte == 0).ok_or_else(|| wrong("cut off"))?;
        Ok(String::from_utf8_lossy(&rest[..len]).into_owned())
    }

    /// Where the soname stands, if there is one.
    fn soname_at(&self) -> io::Result<Option<usize>> {
        let dynamic = self.section_of(DYNAMIC)?;
        let names = self.section(dynamic.link)?.bytes.start;
        for entry in dynamic.bytes.step_by(16) {
            if self.number(entry, 8)? == TAG_SONAME {
                return Ok(Some(names + self.place(entry + 8, 8)?));
            }
        }
        Ok(None)
    }

    /// Each defined dynamic symbol: where its name stands, and the name.
    fn symbols(&self) -> io::Result<Vec<(usize, String)>> {
        let table = self.section_of(SYMBOLS)?;
        let names = self.section(table.link)?.bytes.start;
        let mut found = Vec::new();
        for symbol in table.bytes.step_by(24) {
            let defined = self.number(symbol + 6, 2)? != 0;
            let name = names + self.place(symbol, 4)?;
            if defined {
                found.push((name, self.text(name)?));
            }
        }
        Ok(found)
    }
}

/// The soname of a shared library, if it has one.
///
/// # Errors
///
/// That the file cannot be read, or is no such library.
pub fn soname(path: impl AsRef<Path>) -> io::Result<Option<String>> {
    let elf = Elf::read(path.as_ref())?;
    elf.soname_at()?.map(|at| elf.text(at)).transpose()
}

/// Copies the library `from` to `to` with another soname, of the same length, so that a loader that has
/// opened one of the two takes them for two libraries.
///
/// # Errors
///
/// That a file cannot be read or written, that the library has no soname, or one of another length.
pub fn with_soname(from: impl AsRef<Path>, soname: &str, to: impl AsRef<Path>) -> io::Result<()> {
    let mut elf = Elf::read(from.as_ref())?;
    let at = elf.soname_at()?.ok_or_else(|| wrong("it has no soname"))?;
    if elf.text(at)?.len() != soname.len() {
        return Err(wrong("a soname of another length"));
    }
    elf.bytes[at..at + soname.len()].copy_from_slice(soname.as_bytes());
    fs::write(to, elf.bytes)
}

/// The names that a shared library defines.
///
/// # Errors
///
/// That the file cannot be read, or is no such library.
pub fn symbols(path: impl AsRef<Path>) -> io::Result<Vec<String>> {
    let elf = Elf::read(path.as_ref())?;
    Ok(elf.symbols()?.into_iter().map(|(_, name)| name).collect())
}

/// Copies the library `from` to `to` with the first byte of the name of `symbol` changed, so that
/// `dlsym` finds no such symbol in it: the hash of the table is still that of the old name, and the
/// name is another.
///
/// The copy is another library for the loader: opened by its path it has its own state.
///
/// # Errors
///
/// That a file cannot be read or written, or that there is no such symbol.
pub fn without_symbol(
    from: impl AsRef<Path>,
    symbol: &str,
    to: impl AsRef<Path>,
) -> io::Result<()> {
    let mut elf = Elf::read(from.as_ref())?;
    let symbols = elf.symbols()?;
    let found = symbols.iter().find(|(_, name)| name == symbol);
    let (at, _) = found.ok_or_else(|| wrong("there is no such symbol"))?;
    elf.bytes[*at] = b'~';
    fs::write(to, elf.bytes)
}
