//! What is wrong with a text, and where.
//!
//! Every fault has the form `field: expected this, found that`, and the bytes it speaks of.

use crate::core::error::{Error, ErrorCode};
use crate::core::text::{WHOLE_CHARS, excerpt};
use alloc::{
    format,
    string::{String, ToString},
};
use core::{fmt::Display, ops::Range};

/// How much of what stood there a fault quotes, in characters.
const FOUND_CHARS: usize = 40;

/// A part of the text that knows where in the whole it stands.
#[derive(Clone, Copy)]
pub(super) struct Piece<'t> {
    pub(super) text: &'t str,
    start: usize,
}

impl<'t> Piece<'t> {
    pub(super) fn whole(text: &'t str) -> Self {
        Piece { text, start: 0 }
    }

    /// The part before byte `at`, and the part from there on. `at` is on a character boundary.
    pub(super) fn split_at(self, at: usize) -> (Self, Self) {
        let (head, tail) = self.text.split_at(at);
        (Piece { text: head, start: self.start }, Piece { text: tail, start: self.start + at })
    }

    /// The part before the first `separator`, and the part from it on, separator included.
    pub(super) fn split_before(self, separator: &str) -> (Self, Option<Self>) {
        match self.text.find(separator) {
            None => (self, None),
            Some(at) => {
                let (head, tail) = self.split_at(at);
                (head, Some(tail))
            }
        }
    }

    /// Without its first `bytes` bytes, which end on a character boundary.
    pub(super) fn skip(self, bytes: usize) -> Self {
        self.split_at(bytes).1
    }

    /// The empty piece behind the last byte.
    pub(super) fn end(self) -> Self {
        self.skip(self.text.len())
    }

    fn span(self) -> Range<usize> {
        self.start..self.start + self.text.len()
    }
}

/// The first fault of a text.
pub(super) struct Fault {
    says: String,
    span: Range<usize>,
}

impl Fault {
    /// `field` should have been `expected`, and `found` stood there.
    #[cold]
    pub(super) fn new(field: impl Display, expected: impl Display, found: Piece<'_>) -> Self {
        let quoted = match found.text {
            "" => "nothing".to_string(),
            text => format!("\"{}\"", excerpt(text, FOUND_CHARS)),
        };
        Fault { says: format!("{field}: expected {expected}, found {quoted}"), span: found.span() }
    }

    /// The error of `whole`, the text that was given to the parser.
    #[cold]
    pub(super) fn into_error(self, whole: &str) -> Error {
        Error::new(ErrorCode::InvalidPlan, [excerpt(whole, WHOLE_CHARS), self.says]).at(self.span)
    }
}

/// Which of the `names` was meant and how its spelling fails, as the end of what was expected:
/// blanks and capitals are what people get wrong and cannot see.
#[cold]
pub(super) fn one_of(names: &[&str], found: &str) -> String {
    let mut list = String::new();
    for (at, name) in names.iter().enumerate() {
        list.push_str(match at {
            0 => "",
            _ if at + 1 == names.len() => " or ",
            _ => ", ",
        });
        list.push_str(name);
    }
    if found.contains(char::is_whitespace) {
        list.push_str(" without spaces");
    } else if names.iter().any(|name| name.eq_ignore_ascii_case(found)) {
        list.push_str(" in lower case");
    }
    list
}
